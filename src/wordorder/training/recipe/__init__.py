"""Recipes: the file, its sections, and every fault of them at once."""
