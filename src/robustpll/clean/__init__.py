"""From a table with conflicting labels to labels, their doubts, and a page to settle these.

`run.Cleaning` does all of it. Its parts: `judge` (what is held of each row without its own
candidates), `findings` (what is odd), `review` and `asking` (which rows need a person, and in which
order), `page`, and `decided` (what people said).
"""
