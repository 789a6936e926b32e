"""Adversarial attacks for all models at once; they need only a function from rows to scores."""
