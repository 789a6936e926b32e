"""Pictures, as functions of arrays: no training here, no file is read."""
