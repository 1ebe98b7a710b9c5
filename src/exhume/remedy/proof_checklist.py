"""An incident from its first sign to the policy that keeps it from coming back, step by step: done or open, by the evidence.

Each step is a function of what is known; none of them looks at the node. The first that is open is the one to do next.
"""

import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import Report
from exhume.host.owners import owner
from exhume.host.quantities import HOUR, SECOND, duration
from exhume.image.policy import Policy
from exhume.remedy.proof import Proof
from exhume.text import printable

SCHEMA: Final = "exhume.checklist/2"
StepId = Literal["finish", "cgroup-version", "scan", "correlate", "audit", "disable", "clean-up", "validate", "lifecycle"]
State = Literal["done", "open", "not-needed"]
STEP_LABELS: Final[dict[StepId, str]] = {
    "finish": "finish what was begun",
    "cgroup-version": "know the cgroup version",
    "scan": "count and name the zombies",
    "correlate": "find the cause before adding nodes",
    "audit": "audit what starts by itself",
    "disable": "disable what leaks",
    "clean-up": "let the zombies go",
    "validate": "validate for ten minutes",
    "lifecycle": "write it into the image's policy",
}
STATE_LABELS: Final[dict[State, str]] = {"done": "done", "open": "open", "not-needed": "not needed"}
# The window that the last step but one asks for; a little less is as good.
WINDOW_S: Final = 600.0
_NEARLY: Final = 0.95
_AUDITED: Final = ("starts", "harmful", "unused", "needed")


# States of a unit's file in which nothing starts it at boot by itself (systemctl(1), is-enabled). A static one is started by
# whoever needs it, and a mask in /run is gone by then.
_OFF: Final = ("disabled", "masked", "linked", "transient", "not-found")
_SHOWN: Final = {
    "": "not known whether enabled",
    "static": "static: others start it",
    "masked-runtime": "masked until the next boot only",
}


@dataclass(frozen=True, slots=True)
class Unit:
    """As it is now."""

    active: str
    """ActiveState; empty where nobody could be asked."""
    enabled: str
    """UnitFileState; not-found where there is no file, empty where that is not known."""

    @property
    def off(self) -> bool:
        return self.active in ("inactive", "failed") and self.enabled in _OFF

    def __str__(self) -> str:
        return f"{self.active or 'not known to be stopped'}, {_SHOWN.get(self.enabled, self.enabled)}"


@dataclass(frozen=True, slots=True)
class Known:
    """Everything that the steps go by; what could not be learnt is None, with the reason in `why`."""

    cgroups: str = ""
    memory_at: str = ""
    zombies: int | None = None
    live: int = 0
    places: tuple[tuple[str, int], ...] = ()
    """Where zombies lived, and how many; the most first."""
    report: Report | None = None
    """The diagnosis of what the flight recorder has."""
    recorded_h: float = 0.0
    units: dict[str, Unit] | None = None
    """The culprits."""
    audit: dict[str, Any] | None = None
    proof: Proof | None = None
    incident_end: str = ""
    """RFC 3339: a proof of an earlier time is of another incident."""
    policy: Policy | None = None
    done: tuple[tuple[str, str], ...] = ()
    """Of each application of a plan that stands: its name, and what it was about."""
    unfinished: tuple[str, str, str] | None = None
    """The application that hangs in the balance: its name, what it is about, and how it stands."""
    why: dict[str, str] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)

    @property
    def culprits(self) -> tuple[str, ...]:
        """Units that the diagnosis names, the worst first."""
        if self.report is None:
            return ()
        subjects = [self.report.verdict.subject, *(culprit.subject for culprit in self.report.verdict.culprits)]
        named = (subject if "/" not in subject else owner(subject).unit for subject in subjects)
        return tuple(dict.fromkeys(name for name in named if name.endswith((".service", ".timer", ".socket"))))

    @property
    def sick(self) -> bool:
        return self.report is not None and self.report.health in ("warning", "critical")

    @property
    def many(self) -> bool:
        return self.zombies is not None and self.thresholds.many_zombies(self.zombies, self.live)


@dataclass(frozen=True, slots=True)
class Step:
    id: StepId
    state: State
    evidence: str
    command: str = ""
    """What to type, where it is open."""

    @property
    def label(self) -> str:
        return STEP_LABELS[self.id]


def finish(known: Known) -> Step | None:
    """Only where something was begun and not ended: nothing else can be done to the node before, and it comes first."""
    if (why := known.why.get("done")) is not None:
        return Step("finish", "open", f"whether a fix was interrupted is not known: {why}", "sudo exhume history")
    if known.unfinished is None:
        return None
    identity, target, status = known.unfinished
    told = f"exhume fix {printable(target, 80)} ({identity}) is {status}; exhume undo {identity} takes it back"
    way = "exhume undo" if status == "undoing" else "exhume fix --resume"
    return Step("finish", "open", told, f"sudo {way} {identity}")


def cgroup_version(known: Known) -> Step:
    if not known.cgroups or known.cgroups == "none":
        return Step("cgroup-version", "open", known.why.get("cgroups", "no cgroup hierarchy is visible"), "exhume check -v")
    where = f", memory is at {printable(known.memory_at)}" if known.memory_at else ""
    return Step("cgroup-version", "done", f"{known.cgroups}{where}")


def scan(known: Known) -> Step:
    if known.zombies is None:
        return Step("scan", "open", known.why.get("zombies", "they were not counted"), "sudo exhume zombies")
    said = f"{known.zombies:,} zombie memory cgroups, {known.live:,} live"
    if known.many and not known.places:
        return Step("scan", "open", f"{said}; where they lived is not known", "sudo exhume zombies")
    most = f"; {known.places[0][1]:,} lived in {printable(known.places[0][0], 80)}" if known.places else ""
    return Step("scan", "done", said + most)


def correlate(known: Known) -> Step:
    """More nodes from the same image inherit the leak: the cause comes before capacity."""
    if known.report is None:
        return Step("correlate", "open", known.why.get("report", "nothing is recorded"), "sudo exhume record --for 1h")
    verdict = known.report.verdict
    if known.sick and verdict.cause is None:
        told = f"the node suffered, and the cause is not visible: {verdict.summary}"
        return Step("correlate", "open", told, "sudo exhume diagnose -v")
    if not known.sick:
        return Step("correlate", "done", f"no incident in {duration(known.recorded_h * HOUR)} of recording")
    return Step("correlate", "done", f"{verdict.summary} ({verdict.confidence:.0%} sure)")


def audit(known: Known) -> Step:
    if known.audit is None:
        why = known.why.get("audit", "no audit is kept")
        keep = "mkdir -p /var/lib/exhume; exhume audit --json > /var/lib/exhume/audit.json"
        return Step("audit", "open", why, f"sudo sh -c '{keep}'")
    return Step("audit", "done", _audited(known.audit))


def _audited(document: dict[str, Any]) -> str:
    counts = document.get("counts")
    if not isinstance(counts, dict) or not all(isinstance(counts.get(word), int) for word in _AUDITED):
        return "an audit is kept"
    return "{starts:,} things start by themselves: {harmful:,} harmful, {unused:,} unused, {needed:,} needed".format(**counts)


def disable(known: Known) -> Step:
    if not known.culprits:
        if known.sick:
            return Step("disable", "open", "no unit is named as the culprit", "sudo exhume diagnose")
        return Step("disable", "not-needed", "nothing is accused")
    unit = known.culprits[0]
    if known.units is None:
        why = known.why.get("units", "systemd was not asked")
        return Step("disable", "open", f"whether {printable(unit)} still runs is not known: {why}", _fix(unit))
    for unit in known.culprits:
        state = known.units.get(unit, Unit("", ""))
        if not state.off:
            return Step("disable", "open", f"{printable(unit)} is {state}", _fix(unit))
    by = next((f", by {identity}" for identity, text in reversed(known.done) if known.culprits[0] in text), "")
    return Step("disable", "done", f"{', '.join(map(printable, known.culprits))}: neither running nor enabled{by}")


def _fix(unit: str) -> str:
    return f"sudo exhume fix {shlex.quote(printable(unit))}"


def clean_up(known: Known) -> Step:
    if known.zombies is None:
        return Step("clean-up", "open", known.why.get("zombies", "they were not counted"), "sudo exhume zombies")
    if known.many:
        told = f"{known.zombies:,} are left, {known.live:,} live"
        return Step("clean-up", "open", told, "sudo exhume zombies purge --dry-run")
    return Step("clean-up", "done", f"{known.zombies:,} zombies are no matter")


def validate(known: Known) -> Step:
    command = "sudo exhume verify --for 10m"
    proof = known.proof
    if proof is None:
        return Step("validate", "open", known.why.get("proof", "no proof is kept"), command)
    if known.incident_end and proof.after.start and proof.after.start < known.incident_end:
        return Step("validate", "open", f"the proof of {proof.after.end} is older than the last incident", command)
    if proof.passed is not True:
        return Step("validate", "open", f"{proof.after.end}: {proof.summary}", command)
    if proof.after.seconds < _NEARLY * WINDOW_S:
        return Step("validate", "open", f"passed, but over {duration(proof.after.seconds * SECOND)} only", command)
    return Step(
        "validate", "done", f"passed at {proof.after.end} over {duration(proof.after.seconds * SECOND)}: {proof.summary}"
    )


def lifecycle(known: Known) -> Step:
    if known.policy is None:
        why = known.why.get("policy", "no policy was named")
        return Step("lifecycle", "open", why, "exhume audit --write-policy policy.toml")
    nobody = [one.name for one in known.policy.agents if not one.owner]
    if nobody:
        told = f"{len(nobody):,} of {len(known.policy.agents):,} agents have no owner, {printable(nobody[0])} first"
        return Step("lifecycle", "open", told, "exhume audit --policy policy.toml")
    kept = [unit for unit in known.culprits if (found := known.policy.find(unit)) is not None and not found.images]
    if kept:
        told = f"{printable(kept[0])} leaked, and the policy lets every image have it"
        return Step("lifecycle", "open", told, "exhume audit --policy policy.toml")
    return Step("lifecycle", "done", f"{len(known.policy.agents):,} agents, each with an owner")


STEPS: Final[tuple[Callable[[Known], Step], ...]] = (
    cgroup_version,
    scan,
    correlate,
    audit,
    disable,
    clean_up,
    validate,
    lifecycle,
)


@dataclass(frozen=True, slots=True)
class Checklist:
    hostname: str
    steps: tuple[Step, ...]

    @property
    def next(self) -> Step | None:
        return next((step for step in self.steps if step.state == "open"), None)


def checklist(known: Known, hostname: str = "") -> Checklist:
    begun = finish(known)
    return Checklist(hostname, (*([begun] if begun is not None else []), *(step(known) for step in STEPS)))


def as_json(made: Checklist) -> dict[str, Any]:
    steps = [{"id": step.id, "label": step.label, **asdict(step)} for step in made.steps]
    return {"schema": SCHEMA, **asdict(made), "steps": steps, "next": made.next.id if made.next is not None else None}
