"""Engines that train the runs of a comparison: processes of this machine, or a cluster with Ray."""
