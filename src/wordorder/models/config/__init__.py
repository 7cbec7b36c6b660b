"""Configure the models: one class per kind of model, their defaults, and the faults of what is asked for."""
