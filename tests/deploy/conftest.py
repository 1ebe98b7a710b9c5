"""What the tests of privileges and containers share."""

import os
import subprocess
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


@pytest.fixture(scope="module")
def tracefs() -> Iterator[None]:
    """Mounted, as it is on a node: an agent with few capabilities cannot mount it."""
    if os.geteuid() != 0 or os.path.isdir("/sys/kernel/tracing/events"):
        yield
        return
    subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=False)
    yield
    subprocess.run(["umount", "/sys/kernel/tracing"], check=False)
