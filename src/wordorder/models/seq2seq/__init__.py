"""Write one text from another: the encoder-decoder model and its head."""
