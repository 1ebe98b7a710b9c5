"""What a hypothesis is made of, and the two questions that most of them ask of a core and of a late poll."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from exhume.findings.model import Finding
from exhume.recording.recording import Node
from exhume.verdict.report import Advice, Culprit, Link, Remedy

Judged = tuple[float, str] | None
"""How sure it is that one follows from the other, and why; None if nothing says so."""

# Shares of what was seen (stack samples of a core, stalls with a stack) from which it is the explanation, and below which it
# is none: what was seen was something else.
NEARLY, MOSTLY, HARDLY = 0.9, 0.5, 0.1
SECOND_NS = 10**9
# What happened longer before or after than this is not put side by side.
TOGETHER_NS = 60 * SECOND_NS


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that may follow."""

    effect: str
    judge: Callable[[Finding, Finding], Judged]
    disproof: str = ""
    """What would show that it did not."""


@dataclass(frozen=True, slots=True)
class Case:
    """All that a hypothesis may look at when it is to speak: every finding, whatever its severity, and the chain."""

    node: Node
    findings: tuple[Finding, ...]
    chain: tuple[Link, ...]
    ruled_out: tuple[str, ...] = ()
    """Kinds that were looked for and are not there."""

    def of(self, kind: str, serious: bool = True) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == kind and (finding.severity != "info" or not serious)]

    def has(self, *kinds: str) -> bool:
        """Any of them, in the chain."""
        return any(link.finding.kind in kinds for link in self.chain)


def _nobody(finding: Finding, case: Case) -> Iterable[Culprit]:
    return ()


def _nothing(finding: Finding, case: Case) -> Iterable[Advice]:
    return ()


def _no_doubt(finding: Finding, case: Case) -> Iterable[str]:
    return ()


def _no_remedy(finding: Finding, case: Case) -> Iterable[Remedy]:
    return ()


@dataclass(frozen=True, slots=True)
class Hypothesis:
    kind: str
    """Of the finding it is about."""
    title: Callable[[Finding], str] = field(default=lambda finding: finding.summary)
    """As the subject, in the plural, of "... hold a core in the kernel"."""
    harm: str = ""
    """Of a symptom: what its cause does, with {subject}."""
    rules: tuple[Rule, ...] = ()
    culprits: Callable[[Finding, Case], Iterable[Culprit]] = _nobody
    """Whose doing it is, if it is the cause: who leaks, never who merely has to walk what was leaked."""
    step: str | Callable[[Finding, Case], str] = ""
    """What to do or to look at next, with {subject}, {core} and {directory}; only commands that exist and do no harm."""
    advice: Callable[[Finding, Case], Iterable[Advice]] = _nothing
    remedies: Callable[[Finding, Case], Iterable[Remedy]] = _no_remedy
    """What exhume itself can do about it."""
    against: Callable[[Finding, Case], Iterable[str]] = _no_doubt
    """What does not fit, if it is the cause."""


def within(parent: object, path: object) -> bool:
    """Whether a cgroup path lies in another, by whole names."""
    return isinstance(parent, str) and isinstance(path, str) and (path == parent or path.startswith(parent.rstrip("/") + "/"))


def looked(core: Finding) -> bool:
    """Whether stacks of that core were taken in that time."""
    return core.value("stack samples") is not None


def seen_there(core: Finding, share: float) -> tuple[float, str]:
    """How sure a link is whose work most stacks of the core show, and their share in words."""
    who = core.value("process")
    said = f"in {share:.0%} of the stack samples of this core" + (f", most of them {who}'s" if who is not None else "")
    if core.number("sampled") >= MOSTLY:
        return (0.99 if min(share, core.number("sampled")) >= NEARLY else 0.95), said
    return 0.75, f"{said}, which were taken in {core.number('sampled'):.0%} of that time"


def filled_by(core: Finding, what: str, said: str, most: float = 0.99) -> Judged:
    """A core full of kernel time, by what its stacks show: most of them this work, or it is no explanation."""
    share = core.number(what)
    if not looked(core) or share < MOSTLY:
        return None
    sure, seen = seen_there(core, share)
    return min(most, sure), f"{said} {seen}"


def held_by(napi: Finding, what: str, said: str, sure: float = 0.93) -> Judged:
    """A stall's own evidence: what the core did while the poll was late. Time that the hypervisor took explains it as well."""
    share = napi.number(what)
    if share < HARDLY:
        return None
    where = f"in {share:.0%} of the time in which the poll was late"
    if napi.number("steal") >= MOSTLY:
        return 0.4, f"{said} {where}, but the hypervisor took {napi.number('steal'):.0%} of the core's time meanwhile"
    if share < MOSTLY:
        return 0.4, f"{said} only {where}"
    return (max(sure, 0.97) if share >= NEARLY and sure >= 0.9 else sure), f"{said} {where}"


def in_the_trace(lockup: Finding, what: str, said: str, sure: float = 0.9) -> Judged:
    """A lockup's own evidence: the call trace that the kernel printed with it."""
    return (sure, f"{said} in the call trace that the kernel printed") if lockup.number(what) >= MOSTLY else None


def program(finding: Finding) -> str:
    """Who did it, as far as the finding says: its unit, its pod, else its name with its PID."""
    named = (finding.value(what) for what in ("its unit", "its pod", "its cgroup", "process"))
    return next((str(name) for name in named if name not in (None, "", "/")), "")
