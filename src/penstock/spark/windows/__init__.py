"""Windows over time: results, corrections of them, and the rows that came too late.

`panes` runs on rows as they come, `keeping` where the state of a key is; both are pure functions over
Arrow tables, and Spark appears in `operator` only.
"""
