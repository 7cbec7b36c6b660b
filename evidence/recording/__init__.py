"""What a recording of a commit holds; `evidence/record.py` runs it."""
