"""For all tests: patience where the machine disturbs what they count; the same examples every day, new ones with --all."""

import functools
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings

# A day's work is not to fail by an example nobody has seen yet; ./test --all goes looking for those. CI has time for more.
settings.register_profile("everyday", derandomize=True, max_examples=30)
settings.register_profile("ci", derandomize=True)
settings.register_profile("search", derandomize=False)
settings.load_profile(os.environ.get("EXHUME_EXAMPLES", "everyday"))

# These count zombies that are pinned by pages they made a moment ago, to the last one.
EXACT = ("tests.remedy.test_purge", "tests.remedy.test_evict", "tests.remedy.test_steps", "tests.remedy.test_proof_live",
         "tests.node.test_memcg_walk", "tests.node.test_memcg_pins", "tests.node.test_cgroup_events",
         "tests.cli.test_zombies", "tests.test_real_node")  # fmt: skip
TRIES = 4
_again: list[str] = []


def _drops_cache_by_itself() -> bool:
    """DAMON's proactive reclaim takes pages that look cold, whosever they are; its thread is called kdamond."""
    for pid in os.listdir("/proc"):
        if pid.isdigit():
            try:
                with open(f"/proc/{pid}/comm") as file:
                    if file.read().startswith("kdamond"):
                        return True
            except OSError:
                continue
    return False


def _patient(test: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **keywords: Any) -> None:
        for tries in range(TRIES):
            try:
                test(*args, **keywords)
                return
            except (AssertionError, ValueError):  # a value is missing where one is unpacked, too
                if tries == TRIES - 1:
                    raise
                _again.append(test.__qualname__)
                time.sleep(0.5)

    return run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not _drops_cache_by_itself():
        return
    for item in items:
        if isinstance(item, pytest.Function) and item.module.__name__.startswith(EXACT):
            item.obj = _patient(item.obj)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Patience is told: a test that needs it often may have found something."""
    for name in sorted(set(_again)):
        terminalreporter.write_line(f"tried again, DAMON drops cache here: {name} ({_again.count(name)} times)")
