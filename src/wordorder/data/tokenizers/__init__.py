"""Tokenizers: train one of six kinds, or load an existing one."""
