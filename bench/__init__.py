"""Benchmarks against what a user would run instead, in one run, printed as ratios."""
