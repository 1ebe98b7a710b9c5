"""What a proof is made of: criteria that pass or fail by a number, and rare effects that say how long a silence must last."""

from dataclasses import dataclass
from typing import Final, Literal

Status = Literal["passed", "failed", "not enough data", "not seen"]
STATUSES: Final[tuple[Status, ...]] = ("passed", "failed", "not enough data", "not seen")
Role = Literal["cause", "sign"]
CONFIDENCE: Final = 0.95
"""How sure a pass or a failure is to be, each by itself."""
RATE = "rate of the leak"


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that was bad, before and after, against a limit."""

    name: str
    role: Role
    """A cause decides; a sign is told."""
    status: Status
    before: float | None
    after: float | None
    unit: str
    limit: float | None
    """What `after` must not be above, for sure."""
    confidence: float | None
    """That what `status` says is so; None where nothing was tested."""
    because: str
    needed_s: float | None = None
    """How long to look for an answer, where there was too little to see."""


@dataclass(frozen=True, slots=True)
class Rare:
    """What happens so seldom that minutes without it prove nothing."""

    name: str
    status: Status
    before: int | None
    before_hours: float | None
    after: int | None
    after_hours: float
    needed_hours: float | None
    """Of quiet, until 95 % sure that it is rarer than it was: 3 / rate."""
    because: str
