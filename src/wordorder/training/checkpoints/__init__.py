"""Checkpoints: whole or absent, without pickle, also of sharded models."""
