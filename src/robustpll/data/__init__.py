"""Datasets, and noise that turns true labels into candidates."""
