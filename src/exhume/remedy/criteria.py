"""What a proof is made of: criteria that pass or fail by a number, and rare effects that say how long a silence must last.

Code compares ids. The labels are for people: they are looked up where something is printed.
"""

from dataclasses import dataclass
from typing import Final, Literal

CriterionId = Literal["leak-rate", "zombies", "walks", "bursts", "restarts", "throttling", "reclaim", "late-polls", "stalls"]
RareId = Literal["nic-resets", "soft-lockups", "dead-jobs"]
Status = Literal["passed", "failed", "too-little", "not-seen"]
Role = Literal["cause", "sign"]
CONFIDENCE: Final = 0.95
"""How sure a pass or a failure is to be, each by itself."""

CRITERION_LABELS: Final[dict[CriterionId, str]] = {
    "leak-rate": "rate of the leak",
    "zombies": "zombies",
    "walks": "walks over memory cgroups",
    "bursts": "bursts of kernel time",
    "restarts": "restarts",
    "throttling": "CPU throttling",
    "reclaim": "direct reclaim",
    "late-polls": "late polls of the network",
    "stalls": "stalls of the network",
}
RARE_LABELS: Final[dict[RareId, str]] = {
    "nic-resets": "resets of network devices",
    "soft-lockups": "lockups",
    "dead-jobs": "dead jobs",
}
STATUS_LABELS: Final[dict[Status, str]] = {
    "passed": "passed",
    "failed": "failed",
    "too-little": "not enough data",
    "not-seen": "not seen",
}


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing that was bad, before and after, against a limit."""

    id: CriterionId
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

    @property
    def label(self) -> str:
        return CRITERION_LABELS[self.id]


@dataclass(frozen=True, slots=True)
class Rare:
    """What happens so seldom that minutes without it prove nothing."""

    id: RareId
    status: Status
    before: int | None
    before_hours: float | None
    after: int | None
    after_hours: float
    needed_hours: float | None
    """Of quiet, until 95 % sure that it is rarer than it was: 3 / rate."""
    because: str

    @property
    def label(self) -> str:
        return RARE_LABELS[self.id]
