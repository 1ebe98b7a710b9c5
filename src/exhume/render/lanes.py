"""The lanes of a timeline as data: what lies in each, how it is told, how high it stands."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.diagnosis.findings.model import Span
from exhume.recording.recording import Ints

Shares = NDArray[np.float64]
Importance = Literal["info", "warning", "critical"]
Measure = Literal["kernel", "busy", "steal"]
"""What a core is looked at for."""
STATES = ("system", "softirq", "user", "steal")
"""What a strip of a core tells apart, in the order in which it is drawn; the rest is idle."""
ROWS: dict[Measure, tuple[int, ...]] = {"kernel": (0, 1), "busy": (0, 1, 2), "steal": (3,)}
"""The states of STATES that it is made of."""
# A count that changes by less than this share of itself, or by fewer than so many, does not fill the height of its lane.
_SWING = 0.05
_FEWEST = 4
_MIDDLE = 0.45  # not on the edge between two blocks of a terminal, which a change of one would cross


class Strip(NamedTuple):
    """A core: by state (row, as STATES) and column of time its share, not a number where nothing is known of it."""

    core: int
    shares: Shares
    measure: Measure = "kernel"
    """What it is shown for."""
    most: float = 0.0
    """The most of that, by steps that have nothing to do with the columns."""

    @property
    def shown(self) -> Shares:
        """The share of what it is shown for."""
        return measured(self.shares, self.measure)


class Line(NamedTuple):
    """A count over time."""

    name: str
    times: Ints
    values: Ints

    @property
    def told(self) -> str:
        """From what to what it went; between what and what, where it went both ways."""
        first, last, least, most = (int(value) for value in (self.values[0], self.values[-1], *_ends(self.values)))
        if least == most:
            return f"{most:,}"
        if (first, last) == (least, most):
            return f"{first:,} to {last:,}"
        return f"{first:,} down to {last:,}" if (first, last) == (most, least) else f"between {least:,} and {most:,}"

    @property
    def heights(self) -> Shares:
        """Between 0 and 1: from its least to its most, where that is a change worth the whole height; a small one stays small,
        around the middle."""
        least, most = _ends(self.values)
        span = max(most - least, _SWING * most, _FEWEST)
        heights: Shares = _MIDDLE * (1 - (most - least) / span) + (self.values - np.float64(least)) / span
        return heights


class Bars(NamedTuple):
    """When something that was due did not run, by device."""

    name: str
    spans: tuple[Span, ...]


class Flag(NamedTuple):
    """A line of a log."""

    time: int
    severity: Importance
    kind: str
    subject: str
    message: str


class Restarts(NamedTuple):
    """When a unit was seen to have been restarted, between two readings of its counter, and how often."""

    unit: str
    times: tuple[int, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Lanes over one window, on the recording's clock; the end is outside."""

    start: int
    end: int
    focus: tuple[int, int]
    """The incident itself."""
    strips: tuple[Strip, ...]
    lines: tuple[Line, ...]
    bars: tuple[Bars, ...]
    flags: tuple[Flag, ...]
    restarts: tuple[Restarts, ...]
    hidden_flags: int = 0

    @property
    def columns(self) -> int:
        return int(self.strips[0].shares.shape[1]) if self.strips else 0


def measured(shares: Shares, measure: Measure) -> Shares:
    """The shares of what a core is looked at for, by column."""
    together: Shares = shares[list(ROWS[measure])].sum(axis=0)
    return together


def _ends(values: Ints) -> tuple[int, int]:
    return int(values.min()), int(values.max())
