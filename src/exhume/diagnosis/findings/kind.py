"""What defines a kind of finding: its facts, its detector, and what may follow from it.

Each kind has one file, which ends with its `Kind`, and one line in registry.py.

A rule's confidence: 0.99 the effect's own data show the cause (stacks, times on one core); 0.9 two measurements agree; 0.75
they agree in part; 0.6 it fits and what would prove it was not seen; 0.4 both were there, little more; below 0.25 no link.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Literal, TypeVar

from exhume.diagnosis.findings.model import Examined, Facts, Finding, is_of, of
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND
from exhume.record import record
from exhume.recording.recording import Node, Recording

C = TypeVar("C", bound=Facts)
E = TypeVar("E", bound=Facts)

Judged = tuple[float, str] | None
"""The confidence that one finding follows from another, and why; None: nothing says so."""

Role = Literal["condition", "pain", "symptom", "tenant", "other"]
"""What a kind is to a verdict.

symptom: what a node suffers from. pain: hurts a node by being there. condition: harms sooner or later; without a symptom that
follows from it, it is not yet a cause of harm. tenant: affects one tenant only, no reason to call the node sick.
"""

# Shares of what was seen (stack samples of a core, stalls with a stack) from which it is the explanation, and below which it
# is none: what was seen was something else.
NEARLY: Final = 0.9
MOSTLY: Final = 0.5
HARDLY: Final = 0.1
# Findings that are further apart than this are not joined.
TOGETHER_NS: Final = 60 * SECOND


@record(frozen=True, slots=True)
class Link:
    """One step of the chain: a finding, and why it follows from the one before it."""

    finding: Finding[Facts]
    because: str
    confidence: float
    disproof: str = ""
    """What would show that it does not follow."""


@record(frozen=True, slots=True)
class Culprit:
    subject: str
    share: float


@record(frozen=True, slots=True)
class Remedy:
    """What exhume itself can do."""

    id: Literal["fix", "purge-zombies"]
    target: str
    """A unit, a kind of finding, or a cgroup."""
    command: str
    effect: str

    @property
    def summary(self) -> str:
        return f"{self.command}: {self.effect}"


@record(frozen=True, slots=True)
class Step:
    """What to do or to look at next: a sentence, or a command with a comment."""

    text: str
    fix: str = ""
    """The target of the `exhume fix` that the step is about: it is left out where that remedy is offered."""


Cost = Literal["nothing", "restart", "reboot", "upgrade", "capacity"]
COSTS: Final[dict[Cost, str]] = {
    "nothing": "nothing",
    "restart": "a restart",
    "reboot": "a reboot",
    "upgrade": "an upgrade",
    "capacity": "capacity",
}
"""For people, after "costs"."""


@record(frozen=True, slots=True)
class Advice:
    """What to do about the cause, or what not to do although others would."""

    text: str
    because: str
    cost: Cost = "nothing"
    against: bool = False
    """Advised against: it was tried in such cases, and the evidence here says that it would not help."""


@record(frozen=True, slots=True)
class Case:
    """All that a kind may look at: every finding, whatever its severity, and the chain."""

    node: Node
    findings: tuple[Finding[Facts], ...]
    chain: tuple[Link, ...]
    ruled_out: tuple[str, ...] = ()
    """Kinds that were looked for and are not there."""

    def of(self, facts: type[E], serious: bool = True) -> list[Finding[E]]:
        return [finding for finding in of(self.findings, facts) if finding.serious or not serious]

    def linked(self, facts: type[E]) -> Finding[E] | None:
        """The first of that kind in the chain."""
        return next((link.finding for link in self.chain if is_of(link.finding, facts)), None)

    def has(self, *kinds: type[Facts]) -> bool:
        """Any of them, in the chain."""
        return any(isinstance(link.finding.facts, kinds) for link in self.chain)


@record(frozen=True, slots=True)
class Rule(Generic[C, E]):
    """One thing that may follow."""

    cause: type[C]
    effect: type[E]
    judge: Callable[[Finding[C], Finding[E]], Judged]
    disproof: str = ""
    """What would show that it did not."""


def _none(finding: Finding[Facts], case: Case) -> Iterable[Any]:
    return ()


@record(frozen=True, slots=True, kw_only=True)
class Kind(Generic[C]):
    facts: type[C]
    detect: Callable[[Recording, Thresholds], Examined]
    role: Role
    title: Callable[[Finding[C]], str] = lambda finding: finding.summary
    """As the subject, in the plural, of "... hold a core in the kernel"."""
    harm: Callable[[C], str] | None = None
    """Of a symptom: what its cause does."""
    rules: tuple[Rule[Any, Any], ...] = ()
    """What may follow from it, and what it may follow from."""
    culprits: Callable[[Finding[C], Case], Iterable[Culprit]] = _none
    """Who caused it: the one that leaks, never the one that has to walk what was leaked."""
    steps: Callable[[Finding[C], Case], Iterable[Step]] = _none
    """What to do or to look at next; only commands that exist and do no harm."""
    advice: Callable[[Finding[C], Case], Iterable[Advice]] = _none
    remedies: Callable[[Finding[C], Case], Iterable[Remedy]] = _none
    """What exhume itself can do about it."""
    against: Callable[[Finding[C], Case], Iterable[str]] = _none
    """What does not fit, if it is the cause."""


def within(parent: str, path: str) -> bool:
    """Whether a cgroup path lies in another, by whole names. An unknown path lies nowhere, and contains nothing."""
    return bool(parent and path) and (path == parent or path.startswith(parent.rstrip("/") + "/"))
