"""Spend fewer channels on rare tokens: embedding and softmax over clusters of a vocabulary."""
