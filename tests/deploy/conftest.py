"""What the tests of privileges and containers share."""

from collections.abc import Iterator

import pytest

from tests import zombies


@pytest.fixture(scope="module")
def many_zombies() -> Iterator[None]:
    """So many that they are named: a source that has nothing to name does not tell which right it lacks for it."""
    if zombies.unavailable():
        yield
    else:
        with zombies.zombies(150, "deploy", tmpfs=True):
            yield
