"""The report's figures as files."""
