"""unused-agent: a unit that starts by itself, is in trouble, and that no other unit needs. Nobody would miss it.

It alone never makes a node sick. What systemd does not know of is not known here either: who calls it over the network, or what
the node is there for. So those that nodes are run or reached by are left alone.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Annotated, ClassVar

from exhume.diagnosis.findings import crash_loop, memcg_leak
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.kind import Case, Kind, Remedy, Step
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown, of
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.findings.unit_fix import fix_unit
from exhume.host.programs import protected_unit, services
from exhume.host.unit_needs import UNASKED
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.text import printable

MOST_TOLD = 5
# Unit file states of what starts by itself (systemctl(1), is-enabled).
_ENABLED = ("enabled", "enabled-runtime")


class Trouble(Enum):
    LOOPS = "crash-loop"
    FAILED = "failed"
    LEAKS = "memcg-leak"

    def __str__(self) -> str:
        return _TROUBLES[self]


_TROUBLES = {
    Trouble.LOOPS: "is started again and again",
    Trouble.FAILED: "has failed",
    Trouble.LEAKS: "leaks memory cgroups",
}


@record(frozen=True, slots=True, kw_only=True)
class UnusedAgent(Facts):
    kind: ClassVar[str] = "unused-agent"
    unit_name: Annotated[str, Shown("unit", source="systemd")]
    enabled: Annotated[str, Shown("enabled", source="systemd UnitFileState")]
    needed_by: Annotated[str, Shown("needed by", source="systemd RequiredBy, BoundBy, WantedBy, TriggeredBy and the like")] = (
        "no other unit"
    )
    active: Annotated[str, Shown("state", source="systemd ActiveState")]
    trouble: Annotated[Trouble, Shown("trouble", source=".trouble_source")]

    def summary(self) -> str:
        return f"{printable(self.unit_name)} is enabled and {self.trouble}, and {self.needed_by} needs it"

    def short(self) -> tuple[str, str]:
        return f"unused unit {printable(self.unit_name)}", f"{self.enabled} · {self.trouble}"

    @property
    def unit(self) -> str:
        return self.unit_name

    @property
    def trouble_source(self) -> str:
        return CrashLoop.kind if self.trouble is Trouble.LOOPS else "systemd"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("units"):
        return Examined(UnusedAgent.kind, unseen=recording.why_off("units"))
    loops = {loop.facts.name: loop for loop in of(crash_loop.detect(recording, thresholds).findings, CrashLoop)}
    leaking = of(memcg_leak.detect(recording, thresholds).findings, MemcgLeak)
    leaks = {leak.facts.owner.unit or leak.subject for leak in leaking}
    latest: dict[str, dict[str, str]] = {}
    table = recording["units"]
    texts = (table.texts(name) for name in ("unit", "active", "enabled", "needed_by"))
    for _, unit, active, enabled, needed_by in sorted(zip(table.ints("time").tolist(), *texts, strict=True)):
        known = latest.setdefault(unit, {"enabled": "", "needed_by": UNASKED})
        known["active"] = active
        known["enabled"] = enabled or known["enabled"]
        known["needed_by"] = needed_by if needed_by != UNASKED else known["needed_by"]
    findings, troubled, unasked = [], 0, 0
    for unit, known in sorted(latest.items()):
        trouble = _trouble(unit, known, loops, leaks)
        if trouble is None or known["enabled"] not in _ENABLED or _needed_anyway(unit):
            continue
        troubled += 1
        unasked += known["needed_by"] == UNASKED
        if known["needed_by"] == "":
            findings.append(_finding(recording, unit, known, trouble, loops.get(unit)))
    if findings:
        findings.sort(key=lambda finding: (finding.severity != "warning", finding.subject))
        return Examined(UnusedAgent.kind, tuple(findings[:MOST_TOLD]))
    if unasked:
        return Examined(UnusedAgent.kind, unseen=f"who needs {unasked} of {troubled} enabled units in trouble was not asked")
    if troubled:
        return Examined(UnusedAgent.kind, ruled_out=f"other units need each of the {troubled} that are enabled and in trouble")
    return Examined(UnusedAgent.kind, ruled_out=f"none of {len(latest)} units is enabled and in trouble")


def _needed_anyway(unit: str) -> bool:
    """What people and clusters reach a node by, what runs its work, and what is used without a dependency that shows it."""
    return protected_unit(unit) or unit in services("unseen-use")


def _trouble(unit: str, known: dict[str, str], loops: dict[str, Finding[CrashLoop]], leaks: set[str]) -> Trouble | None:
    if unit in loops:
        return Trouble.LOOPS
    if known["active"] == "failed":
        return Trouble.FAILED
    return Trouble.LEAKS if unit in leaks else None


def _finding(
    recording: Recording, unit: str, known: dict[str, str], trouble: Trouble, loop: Finding[CrashLoop] | None
) -> Finding[UnusedAgent]:
    severity: Severity = "warning" if loop is not None and loop.serious else "info"
    start, end = recording.window
    facts = UnusedAgent(subject=unit, unit_name=unit, enabled=known["enabled"], active=known["active"], trouble=trouble)
    return Finding(facts, severity, start, end)


def _steps(agent: Finding[UnusedAgent], case: Case) -> Iterator[Step]:
    unit = agent.subject
    yield Step(f"systemctl list-dependencies --reverse {unit} shows who needs it")
    yield Step(f"exhume fix {unit} if nothing needs it", fix=unit)


def _remedies(agent: Finding[UnusedAgent], case: Case) -> Iterator[Remedy]:
    yield from fix_unit(agent.facts, agent.subject)


KIND = Kind(facts=UnusedAgent, detect=detect, role="tenant", steps=_steps, remedies=_remedies)
