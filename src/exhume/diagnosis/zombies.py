"""The zombies of a recording as a report: where they lived, whose they are, what pins them, what they cost."""

from dataclasses import dataclass
from typing import Any

from exhume.diagnosis.findings.forecast import PAIN
from exhume.diagnosis.findings.leak_probability import leak
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.owners import owner
from exhume.recording.recording import Recording
from exhume.sources.cgroup_events import churn, lives
from exhume.sources.zombie_groups import Shapes
from exhume.sources.zombie_holders import Holder

SCHEMA = "exhume.zombies/1"

# What one zombie costs the kernel in structs, measured as the growth of SUnreclaim and Percpu with 20,000 of them on Linux
# 6.18: mem_cgroup and its per-node parts, css, cgroup, kernfs and id nodes; and on each CPU its statistics.
SLAB_BYTES = 18 << 10
PERCPU_BYTES = 2 << 10
MILESTONES = (1_000, 10_000, PAIN)


@dataclass(frozen=True, slots=True)
class Group:
    path: str
    example: str
    home: str
    zombies: int
    file: int
    anon: int
    kernel: int
    swap: int
    empty: int
    unreaped: int
    """How many of them a process holds that has ended and was not reaped."""
    parent_pid: int
    parent_comm: str
    parent_cgroup: str
    """The parent that has not reaped most of those processes."""
    unit: str
    pod: str
    container: str
    image: str
    confidence: float
    how: str
    leak_probability: float
    because: str
    per_second: float

    @property
    def holder(self) -> Holder | None:
        """What holds most of them; None where that was not seen."""
        if self.unreaped * 2 >= self.zombies:
            return Holder.UNREAPED_PROCESS
        return max(self.pinned, key=lambda kind: self.pinned[kind]) if any(self.pinned.values()) else None

    @property
    def pinned(self) -> dict[Holder, int]:
        """Bytes of each kind."""
        return {
            Holder.PAGE_CACHE: self.file,
            Holder.SHARED_MEMORY: self.anon,
            Holder.SWAP: self.swap,
            Holder.KERNEL_OBJECTS: self.kernel,
        }


@dataclass(frozen=True, slots=True)
class ZombieReport:
    method: str
    live: int
    zombies: int
    cost_bytes: int
    groups: tuple[Group, ...]
    moved: bool
    followed_s: float
    """How long it was followed, 0 if it was only counted once."""
    grew: int
    """Zombies that came meanwhile, net."""
    note: str

    @property
    def per_second(self) -> float:
        return self.grew / self.followed_s if self.followed_s else 0.0

    def until(self) -> list[tuple[int, float]]:
        """(milestone, seconds until it is reached at this rate) of those ahead."""
        if self.per_second <= 0:
            return []
        return [(mark, (mark - self.zombies) / self.per_second) for mark in MILESTONES if mark > self.zombies]


def zombie_report(recording: Recording, thresholds: Thresholds) -> ZombieReport:
    table = recording["memcg_walk"]
    counts, live = recording.counter("memcg_walk_zombies"), recording.counter("memcg_walk_live")
    moved = recording.counter("memcg_walk_moved")
    zombies = counts.last if counts is not None else 0
    latest = counts.times[-1] if counts is not None else 0
    rows = [row for row in table.rows() if row["time"] == latest]
    followed_s = float(counts.times[-1] - counts.times[0]) / 1e9 if counts is not None else 0.0
    seen = _churn(recording)
    shapes = Shapes()
    groups = []
    for row in rows:
        removed, unreleased, per_second = seen.get(shapes[row["path"]] or row["path"], (0, 0, 0.0))
        judged = leak(row["zombies"], row["siblings"], thresholds.zombies_baseline, removed, unreleased)
        groups.append(
            Group(
                row["path"],
                row["example"],
                row["home"],
                row["zombies"],
                row["file"],
                row["anon"],
                row["kernel"],
                row["swap"],
                row["empty"],
                row["unreaped"],
                row["parent_pid"],
                row["parent_comm"],
                row["parent_cgroup"],
                row["unit"],
                row["pod"],
                row["container"],
                row["image"],
                row["confidence"] / 100,
                row["how"],
                judged.probability,
                judged.because,
                per_second,
            )
        )
    groups.sort(key=lambda group: -group.zombies)
    return ZombieReport(
        method=_method(recording, {row["method"] for row in rows}),
        live=live.last if live is not None else 0,
        zombies=zombies,
        cost_bytes=zombies * (SLAB_BYTES + PERCPU_BYTES * max(1, recording.node.cpus)),
        groups=tuple(groups),
        moved=bool(moved.last) if moved is not None else False,
        followed_s=followed_s,
        grew=int(counts.last - counts.values[0]) if counts is not None else 0,
        note=recording.why_off("zombies"),
    )


def _method(recording: Recording, methods: set[str]) -> str:
    """The best of those that were used; a count fills up what events have not shown."""
    for method in ("bpf-walk", "cgroup-stat", "events"):
        if method in methods:
            return method
    return "bpf-walk" if recording.counter("memcg_walk_longest_ns") is not None else "count"


def _churn(recording: Recording) -> dict[str, tuple[int, int, float]]:
    """Collapsed path to (removed, not released, zombies a second), from the events that were seen."""
    events = recording["cgroup_events"]
    if not len(events):
        return {}
    shapes = Shapes()
    times = events.ints("time")
    start, end = int(times.min()), max(int(times.max()), recording.window[1])
    found = churn(lives(events), start, end, place=lambda path: shapes[path])
    return {one.place: (one.removed, one.zombies, one.zombies_per_s) for one in found}


def as_json(report: ZombieReport) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "method": report.method,
        "live": report.live,
        "zombies": report.zombies,
        "cost_bytes": report.cost_bytes,
        "groups": [
            {
                "path": group.path,
                "example": group.example,
                "home": group.home,
                "zombies": group.zombies,
                "pinned_bytes": {"file": group.file, "anon": group.anon, "swap": group.swap, "kernel": group.kernel},
                "empty": group.empty,
                "unreaped": {
                    "zombies": group.unreaped,
                    "parent": {
                        "pid": group.parent_pid,
                        "comm": group.parent_comm or None,
                        "unit": owner(group.parent_cgroup).unit or None,
                        "cgroup": group.parent_cgroup or None,
                    }
                    if group.parent_pid
                    else None,
                },
                "owner": {
                    "unit": group.unit or None,
                    "pod": group.pod or None,
                    "container": group.container or None,
                    "image": group.image or None,
                    "confidence": group.confidence,
                    "how": group.how or None,
                },
                "leak_probability": round(group.leak_probability, 3),
                "because": group.because,
                "per_second": round(group.per_second, 3),
            }
            for group in report.groups
        ],
        "moved": report.moved,
        "followed_s": round(report.followed_s, 3),
        "per_second": round(report.per_second, 3),
        "until": [{"zombies": mark, "seconds": round(seconds)} for mark, seconds in report.until()],
        "note": report.note,
    }
