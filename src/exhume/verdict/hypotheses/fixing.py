"""The remedy that hypotheses about units share: `exhume fix`, which prints a plan and asks before it changes anything."""

from collections.abc import Iterator

from exhume.findings.model import CGROUPS, Finding
from exhume.image.systemd import names
from exhume.node.owners import own_unit, units
from exhume.verdict.report import Remedy

ACTED_ON = ("service", "socket", "timer", "path")


def fixable(finding: Finding, unit: object) -> bool:
    """Whether it is the name of a unit, and of one of the node's own: users' managers and tenants have some of that name."""
    if not isinstance(unit, str) or not names.valid(unit) or names.kind(unit) not in ACTED_ON:
        return False
    paths = [finding.subject, *(str(finding.value(name) or "") for name in CGROUPS)]
    return all(own_unit(path)[0] == unit for path in paths if "/" in path and unit in units(path))


def fix_unit(finding: Finding, unit: object, leaks: bool = False) -> Iterator[Remedy]:
    if fixable(finding, unit):
        purge = "purge the zombies without a reboot; " if leaks else ""
        yield Remedy("fix", str(unit), f"exhume fix {unit}: stop, disable, mask; {purge}can be undone")
