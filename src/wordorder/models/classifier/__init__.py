"""Classify texts with any text network: the model, its head, and what builds the network from a configuration."""
