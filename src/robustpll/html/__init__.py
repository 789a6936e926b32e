"""Pages that are one file each: they need no network, and nothing in them runs but their script."""
