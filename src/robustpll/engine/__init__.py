"""One training loop for M models at once; knows of tensors, never of a method's formula."""
