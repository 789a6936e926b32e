"""Adversarial attacks; they need only a function from rows to scores."""
