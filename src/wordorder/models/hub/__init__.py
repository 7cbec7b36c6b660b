"""Save and read the folders that the hub holds: weights, model cards, and the places of adapters."""
