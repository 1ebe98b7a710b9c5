"""The remedy that hypotheses about units share: `exhume fix`, which prints a plan and asks before it changes anything."""

from collections.abc import Iterator

from exhume.image.systemd import names
from exhume.verdict.report import Remedy

ACTED_ON = ("service", "socket", "timer", "path")


def fix_unit(unit: object, leaks: bool = False) -> Iterator[Remedy]:
    """For what is the name of a unit, and nothing else."""
    if isinstance(unit, str) and names.valid(unit) and names.kind(unit) in ACTED_ON:
        purge = "purge the zombies without a reboot; " if leaks else ""
        yield Remedy("fix", unit, f"exhume fix {unit}: stop, disable, mask; {purge}can be undone")
