"""Read whole texts: the encoder model, its heads, and documents longer than one segment."""
