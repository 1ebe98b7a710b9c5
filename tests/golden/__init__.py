"""The oracle: the judgements of exhume on fixed inputs, as data without sentences. `python -m tests.golden` regenerates it."""
