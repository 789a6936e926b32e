"""How good a model is, how sure it is, and how much it withstands."""
