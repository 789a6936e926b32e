"""Clean a table: resolve its labels, list doubtful ones, and make a page to decide them."""
