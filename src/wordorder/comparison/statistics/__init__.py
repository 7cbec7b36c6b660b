"""Exact tests, intervals, and what a few seeds can show."""
