"""Where the runs of a comparison are trained: in processes of this machine, or on a cluster with Ray."""
