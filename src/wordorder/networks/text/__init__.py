"""Turn a text into one vector: bags of words, convolutions, recurrent networks and Transformers, real and complex."""
