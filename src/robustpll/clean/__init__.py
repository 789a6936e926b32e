"""Clean a table: resolve its labels, list doubtful ones, and make a page to decide them.

`run.Cleaning` does all of it. `judge` predicts each row without its own candidates, `findings`
lists what looks wrong, `review` chooses the rows for a person, `page` shows them, and
`decisions_file` reads what people decided.
"""
