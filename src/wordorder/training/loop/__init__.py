"""The training loop: steps, losses, scores, checkpoints, the memory that it carries, progress and stopping."""
