"""Tools of the repository itself: nothing of the package imports them."""
