"""Probes: measurements of every trained model of a comparison besides its loss, one file per probe."""
