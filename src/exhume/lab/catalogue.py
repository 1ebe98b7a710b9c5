"""All scenarios, the incident first."""

from importlib import import_module
from typing import Final

from exhume.errors import UsageError
from exhume.lab.scenario import Scenario

MODULES: Final = (
    "starvation",
    "leaks",
    "crash_loops",
    "throttling",
    "load",
    "memory",
    "printk",
    "softirq",
)
"""Of the package `scenarios`, in the order in which their scenarios are listed; each has SCENARIOS."""


def scenarios() -> list[Scenario]:
    found: list[Scenario] = []
    for module in MODULES:
        found += import_module(f"exhume.lab.scenarios.{module}").SCENARIOS
    return found


def scenario(name: str) -> Scenario:
    from difflib import get_close_matches

    known = {each.name: each for each in scenarios()}
    if name not in known:
        near = get_close_matches(name, known, 1)
        raise UsageError(
            f"there is no scenario {name!r}{f', did you mean {near[0]}?' if near else ''}; exhume lab list has them"
        )
    return known[name]
