"""Read from left to right and generate: the decoder model, its head, its caches, and streams of tokens."""
