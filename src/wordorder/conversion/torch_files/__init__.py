"""Read torch's files so that nothing in them is imported or called."""
