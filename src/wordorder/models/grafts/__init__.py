"""Graft an encoding on a BERT or RoBERTa that is already trained."""
