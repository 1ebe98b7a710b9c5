"""For all tests: the same examples every time, so that a change fails only by what it changed."""

import contextlib
import os

from hypothesis import HealthCheck, settings

from tests.examples import PROFILE, examples

settings.register_profile(
    PROFILE,
    derandomize=PROFILE != "search",
    max_examples=examples(),
    deadline=None,  # how long an example takes is no property of the code on a busy machine
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(PROFILE)

# What a command prints must not depend on the terminal of whoever runs the tests. GNU readline, which pytest's workers import,
# sets both in the environment of child processes without telling os.environ.
with contextlib.suppress(ImportError):
    import readline  # noqa: F401
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)
    os.unsetenv(name)
