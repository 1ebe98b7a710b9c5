"""Stacks of other tools, read: perf.data, the text of perf script, folded stacks."""
