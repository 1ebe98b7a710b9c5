"""How many examples each property test tries: few every day, more in CI, many with `./test --all`."""

import os

PROFILE = os.environ.get("EXHUME_EXAMPLES", "everyday")
_SCALE = {"everyday": 0.1, "ci": 0.4, "search": 2.0}[PROFILE]


def examples(number: int = 100) -> int:
    """`number` is what a thorough run tries."""
    return max(5, round(number * _SCALE))
