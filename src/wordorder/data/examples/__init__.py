"""Examples and batches: segments, lanes, labels, masking, and their order."""
