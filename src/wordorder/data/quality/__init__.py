"""The numbers of a corpus: duplicates, leaks between splits, and lines that were passed over."""
