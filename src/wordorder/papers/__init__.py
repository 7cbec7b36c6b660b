"""What only the reproduction of a paper needs."""
