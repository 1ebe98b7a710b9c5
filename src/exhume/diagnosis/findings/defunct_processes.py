"""defunct-processes: `<defunct>` entries that a parent has not reaped. A process is not a cgroup, but an unreaped process keeps
its css_set, and with it its cgroup after rmdir: that group is a zombie until the process is reaped (since 4.4, 2e91fa7f6d45
"cgroup: keep zombies associated with their original cgroups")."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, ClassVar

from exhume.diagnosis.findings.kind import HARDLY, MOSTLY, NEARLY, Advice, Case, Culprit, Judged, Kind, Remedy, Rule, Step
from exhume.diagnosis.findings.memcg_leak import purges
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown
from exhume.diagnosis.findings.offender import Offender
from exhume.diagnosis.findings.stretches import ordered
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.findings.unreaped import Parent, unreaped
from exhume.diagnosis.findings.zombie_memcgs import ZombieMemcgs
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.text import printable

INIT = 1
_CGROUP = "/proc/PID/cgroup"
_DISPROOF = "zombies that stay after their processes were reaped"


@record(frozen=True, slots=True)
class Children:
    """The defunct children of one parent."""

    comm: str
    """Of most of them."""
    number: int
    examined: int
    """Defunct processes whose parents were read, of whichever parent."""


@record(frozen=True, slots=True, kw_only=True)
class DefunctProcesses(Facts):
    kind: ClassVar[str] = "defunct-processes"
    defunct: Annotated[int, Shown("defunct", "processes", "/proc/PID/stat state Z")]
    zombies_held: Annotated[int | None, Shown("zombies held", "cgroups", "css_set of the ended tasks, by a BPF iterator")] = (
        None
    )
    zombies_perhaps_held: Annotated[
        int | None, Shown("zombies perhaps held", "cgroups", "as many as zombies to which nothing is charged")
    ] = None
    """Instead of `zombies_held` where the kernel could not be asked."""
    zombies: int = 0
    """Zombie memory cgroups in all, if any is held."""
    parent: Annotated[Parent | None, Shown("parent", "PID", "/proc/PID/stat")] = None
    """Of most of those that hold zombies if that is known, else of most of the defunct processes."""
    parent_process: Annotated[Process | None, Shown("process", source=_CGROUP)] = None
    """This and the next three are only set if the parent is not PID 1."""
    parent_unit: Annotated[str, Shown("its unit", source=_CGROUP)] = ""
    parent_pod: Annotated[str, Shown("its pod", source=_CGROUP)] = ""
    parent_cgroup: Annotated[str, Shown("cgroup", source=_CGROUP)] = ""
    children: Children | None = None
    """None if the parent is known by the zombies that its children hold, or unknown."""

    def summary(self) -> str:
        return self._number() + self._holding() + self._parent()

    def short(self) -> tuple[str, str]:
        held = self._holding().strip() if self.held else ""
        parent = f"parent {self.parent_name}" if self.parent_name else ""
        return self._number(), " · ".join(part for part in (held, parent) if part)

    @property
    def focus_offender(self) -> Offender | None:
        if self.parent_process is None:
            return None
        return Offender(process=self.parent_process, seen_in=_CGROUP, unit=self.parent_unit, pod=self.parent_pod)

    @property
    def cgroup_paths(self) -> tuple[str, ...]:
        return (self.parent_cgroup,) if self.parent_cgroup else ()

    @property
    def held(self) -> int:
        """Zombie memory cgroups that they hold, or perhaps hold."""
        return self.zombies_held or self.zombies_perhaps_held or 0

    @property
    def parent_name(self) -> str:
        """Its unit, its pod, else its name and PID; empty if unknown."""
        if self.parent is None:
            return ""
        return self.parent_unit or self.parent_pod or str(self.parent_process or f"PID {self.parent.pid}")

    def _number(self) -> str:
        return "1 defunct process" if self.defunct == 1 else f"{self.defunct:,} defunct processes"

    def _holding(self) -> str:
        if not self.held:
            each = "it" if self.defunct == 1 else "each"
            return f" ({each} holds a PID, and may pin a removed cgroup until collected)"
        hold = "hold" + ("s" if self.defunct == 1 else "")
        perhaps = "" if self.zombies_held else "perhaps "
        return f" {perhaps}{hold} {self.held:,} of {self.zombies:,} zombie memory cgroups"

    def _parent(self) -> str:
        if self.parent is None:
            return ""
        if self.children is None:
            return f": {self.parent.process} does not reap its children"
        comm, number, examined = self.children.comm, self.children.number, self.children.examined
        many = f"{number} of the {examined} looked at" if examined < self.defunct or number < examined else "all of them"
        many = "it" if self.defunct == 1 else many
        if self.parent.pid == INIT:
            them = "it" if self.defunct == 1 else "them"
            return f": {comm}; PID 1 is the parent of {many} and will collect {them}"
        return f": {comm}, {many} not collected by {self.parent.process}"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    series = recording.counter("processes_defunct")
    if series is None:
        return Examined(DefunctProcesses.kind, unseen=recording.why_off("processes"))
    _, counts = ordered(series)
    count = int(counts[-1])
    if count == 0:
        return Examined(DefunctProcesses.kind, ruled_out="0 defunct processes")
    parent, children = _most(recording)
    holding = unreaped(recording)
    held = holding.held if holding is not None else 0
    if holding is not None and held and holding.parent is not None:
        parent, children = holding.parent, None
    other = parent if parent is not None and parent.pid != INIT else None
    facts = DefunctProcesses(
        # Not the process: its PID may be another one's tomorrow.
        subject=(parent.unit or parent.pod if parent is not None and held else "") or "node",
        defunct=count,
        zombies_held=held if holding is not None and held and holding.exact else None,
        zombies_perhaps_held=held if holding is not None and held and not holding.exact else None,
        zombies=holding.zombies if holding is not None and held else 0,
        parent=parent,
        parent_process=other.process if other is not None else None,
        parent_unit=other.unit if other is not None else "",
        parent_pod=other.pod if other is not None else "",
        parent_cgroup=other.cgroup if other is not None else "",
        children=children,
    )
    severity: Severity = "warning" if count >= thresholds.defunct_processes else "info"
    return Examined(DefunctProcesses.kind, (Finding(facts, severity, *recording.window),))


def _most(recording: Recording) -> tuple[Parent | None, Children | None]:
    """The parent of most of the defunct processes that were read."""
    names: dict[int, Parent] = {}
    dead: dict[tuple[int, int], tuple[str, int]] = {}
    for row in sorted(recording["processes"].rows(), key=lambda row: (row["time"], row["pid"], row["start"], row["comm"])):
        if row["tid"] == 0:
            names[row["pid"]] = Parent(row["pid"], row["comm"], row["cgroup"])
            if row["state"] == "Z":
                dead[row["pid"], row["start"]] = (row["comm"], row["ppid"])
    if not dead:
        return None, None
    parents = Counter(ppid for _, ppid in dead.values())
    pid, number = max(parents.items(), key=lambda item: (item[1], item[0]))
    named = Counter(comm for comm, ppid in dead.values() if ppid == pid)
    comm = printable(max(named, key=lambda name: (named[name], name)))
    return names.get(pid, Parent(pid, "", "")), Children(comm, number, len(dead))


def _share(defunct: DefunctProcesses, zombies: ZombieMemcgs) -> float:
    """Of the zombies, those that they hold."""
    return min(1.0, defunct.held / max(1, zombies.zombies))


def _hold(defunct: Finding[DefunctProcesses], zombies: Finding[ZombieMemcgs]) -> Judged:
    """By how many of the zombies they hold: that both are there says nothing."""
    facts, share = defunct.facts, _share(defunct.facts, zombies.facts)
    if share < HARDLY:
        return None
    if held := facts.zombies_held:
        said = (
            f"{held:,} of the {zombies.facts.zombies:,} zombies are held by dead processes that {_parent(facts)} has not reaped"
        )
        return (0.97 if share >= NEARLY else 0.93 if share >= MOSTLY else 0.3), said
    said = (
        f"{facts.defunct:,} defunct processes, {facts.zombies_perhaps_held or 0:,} zombies to which "
        "nothing is charged: about one each; the kernel was not asked which process holds which"
    )
    return (0.6 if share >= MOSTLY else 0.3), said


def _parent(defunct: DefunctProcesses) -> str:
    return defunct.parent_name or "their parent"


def _culprits(defunct: Finding[DefunctProcesses], case: Case) -> Iterator[Culprit]:
    facts = defunct.facts
    if facts.parent is not None and facts.parent.pid != INIT:
        zombies = case.linked(ZombieMemcgs)
        yield Culprit(_parent(facts), 1.0 if zombies is None else _share(facts, zombies.facts))


def _advice(defunct: Finding[DefunctProcesses], case: Case) -> Iterator[Advice]:
    if case.has(ZombieMemcgs):
        yield Advice(
            "purge the zombies, or drop caches",
            "no page holds these zombies: they go when their processes are reaped",
            against=True,
        )


def _remedies(defunct: Finding[DefunctProcesses], case: Case) -> Iterator[Remedy]:
    kind = DefunctProcesses.kind
    yield Remedy("fix", kind, f"exhume fix {kind}", "sends SIGCHLD to the parent, then restarts its unit; cannot be undone")
    zombies = case.linked(ZombieMemcgs)
    if zombies is not None and _share(defunct.facts, zombies.facts) < NEARLY:
        yield from purges(zombies, case)  # for the others


def _steps(defunct: Finding[DefunctProcesses], case: Case) -> Iterator[Step]:
    parent = defunct.facts.parent_name or "which parent"
    kind = DefunctProcesses.kind
    yield Step(f"exhume fix {kind}    # {parent} does not reap its children", fix=kind)


KIND = Kind(
    facts=DefunctProcesses,
    detect=detect,
    role="condition",
    title=lambda finding: f"zombie memory cgroups of dead processes that {_parent(finding.facts)} does not reap",
    rules=(Rule(DefunctProcesses, ZombieMemcgs, _hold, _DISPROOF),),
    culprits=_culprits,
    steps=_steps,
    advice=_advice,
    remedies=_remedies,
)
