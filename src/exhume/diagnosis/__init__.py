"""From findings to a verdict: the causal chain, what was ruled out, and the report as data."""
