"""Measures of predictions: pure functions of arrays."""
