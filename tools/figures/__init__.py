"""Count what the table of `python -m tools.house` shows, each number in one function."""
