"""The ways to compute attention, one class a file."""
