"""From a table with conflicting labels to labels, their doubts, and a page to settle these.

`clean_table` does all of it; the parts are `judge` (what others' labels say of each row),
`findings` (what is odd), `review` (which rows need a person) and `page`.
"""
