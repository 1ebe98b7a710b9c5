"""A running systemd as the oracle: what it says of units, read back as data."""

import shlex
from collections.abc import Iterable

from tests.systemd import Machine

AT_ONCE = 100
Shown = dict[str, str]


def show(machine: Machine, units: Iterable[str], *properties: str) -> dict[str, Shown]:
    """`systemctl show` of units by the names that were asked for."""
    found: dict[str, Shown] = {}
    every = list(units)
    for start in range(0, len(every), AT_ONCE):
        some = every[start : start + AT_ONCE]
        text = machine.run(["systemctl", "show", "-p", ",".join(properties), "--", *some], timeout=300).stdout
        blocks = text.strip("\n").split("\n\n")
        for name, block in zip(some, blocks, strict=True):
            found[name] = dict(line.split("=", 1) for line in block.split("\n") if "=" in line)
    return found


def listed(value: str) -> set[str]:
    """A list of units as systemctl shows it: names with backslashes are quoted."""
    return set(shlex.split(value))


def made_by_generators(machine: Machine) -> set[tuple[str, str]]:
    """Dependencies that generators made there: the owner of the directory, and the name of the link."""
    text = machine.run(["find", "/run/systemd", "-path", "*/generator*", "-type", "l", "-printf", "%h/%f\\n"]).stdout
    found = set()
    for path in text.split():
        directory, _, name = path.rpartition("/")
        found.add((directory.rpartition("/")[2].rpartition(".")[0], name))
    return found
