"""The remedy that kinds about units share: `exhume fix`, which prints a plan and asks before it changes anything."""

from collections.abc import Iterator

from exhume.diagnosis.findings.kind import Remedy
from exhume.diagnosis.findings.model import Facts
from exhume.host.owners import own_unit, units
from exhume.host.systemd import names


def fixable(facts: Facts, unit: str) -> bool:
    """Whether it is the name of a unit, and of one of the node's own: users' managers and tenants have some of that name."""
    if not names.valid(unit) or names.kind(unit) not in names.ACTED_ON:
        return False
    paths = (facts.subject, *facts.cgroup_paths)
    return all(own_unit(path)[0] == unit for path in paths if "/" in path and unit in units(path))


def fix_unit(facts: Facts, unit: str, leaks: bool = False) -> Iterator[Remedy]:
    if fixable(facts, unit):
        purge = "purge the zombies without a reboot; " if leaks else ""
        yield Remedy("fix", unit, f"exhume fix {unit}", f"stop, disable, mask; {purge}can be undone")
