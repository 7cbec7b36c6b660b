"""The training loop: trainers, the memory and batches that they carry, progress and stopping."""
