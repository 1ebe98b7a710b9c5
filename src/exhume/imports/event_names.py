"""Names of events as perf prints them (perf-list(1)): what is counted, by which unit, in which modes.

`cpu_core/cycles/P` is what a unit calls cycles, `cpu-clock/freq=199/` an event with terms, `cycles:u` one with modifiers, and
`sched:sched_switch` a tracepoint, whose colon belongs to its name.
"""

import re
from typing import Final, NamedTuple

from exhume.text import printable

CLOCKS: Final = ("cycles", "cpu-clock", "task-clock")
"""What cores are sampled by, the better first."""
CYCLES: Final = ("cycles", "cpu-cycles", "cpu_cycles")
"""The first as perf, the kernel and Arm's units call it."""

_MODIFIERS: Final = re.compile(r"(?<=.):([ukhIGHpPDSWebR]+)$", re.ASCII | re.DOTALL)
_UNIT: Final = re.compile(r"([^/]+)/(.+)/:?([a-zA-Z]*)", re.ASCII | re.DOTALL)
_WORD: Final = re.compile(r"[\w.-]+", re.ASCII)
# Terms that say how to sample, and not what (config_term_names in tools/perf/util/parse-events.c).
_HOW: Final = frozenset(
    "name period freq branch_type time call-graph stack-size max-stack nr inherit no-inherit overwrite no-overwrite percore "
    "aux-output aux-action aux-sample-size metric-id".split()
)
_ALL: Final = frozenset("ukh")


class Name(NamedTuple):
    plain: str
    unit: str
    """"" where it is not said."""
    modes: frozenset[str]
    """In which it counts: u(ser), k(ernel), h(ypervisor)."""
    guests: frozenset[str]
    """H(ost), G(uest)."""

    def apart(self, other: "Name") -> bool:
        """Nothing can be counted by both."""
        units = self.unit and other.unit and self.unit != other.unit
        return bool(units) or not self.modes & other.modes or not self.guests & other.guests


def parse(text: str) -> Name:
    name, unit, letters = text, "", ""
    if (told := _UNIT.fullmatch(text)) is not None:
        keys = [term.partition("=")[0] for term in told[2].split(",")]
        bare = [term for term in told[2].split(",") if term not in _HOW and _WORD.fullmatch(term)]
        letters = told[3]
        if bare:
            name, unit = bare[0], told[1]
        elif all(key in _HOW for key in keys):
            name = told[1]
    elif (found := _MODIFIERS.search(text)) is not None:
        name, letters = text[: found.start()], found[1]
    return Name(name, unit, _ALL & frozenset(letters) or _ALL, frozenset("HG") & frozenset(letters) or frozenset("HG"))


def plain(text: str) -> str:
    """Without unit, terms and modifiers."""
    return parse(text).plain


def uneven(name: str, least: int, most: int) -> str:
    """What is to be said where samples stand for so many events each; "" where that is about the same."""
    if most <= 2 * least:
        return ""
    return (
        f"each sample counts once, and stands for {least:,} to {most:,} {printable(name)}: shares are of samples, not of "
        f"{printable(name)}; perf record -c N gives all the same weight"
    )


def clock(name: str) -> str:
    """Which of CLOCKS a plain name stands for; "" for none."""
    return "cycles" if name in CYCLES else name if name in CLOCKS else ""
