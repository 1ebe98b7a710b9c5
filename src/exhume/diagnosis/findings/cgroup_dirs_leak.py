"""cgroup-dirs-leak: visible directories that nobody removed. They slow readers down as zombies do, and rmdir cures them."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final

from exhume.diagnosis.findings.churn import churned
from exhume.diagnosis.findings.core_facts import CoreSaturated, seen_there
from exhume.diagnosis.findings.cpu_full import CpuFull
from exhume.diagnosis.findings.forecast import SHORTEST_S, per_hour
from exhume.diagnosis.findings.kernel_work import CGROUPFS, FLUSH, STATISTICS, WALK
from exhume.diagnosis.findings.kind import MOSTLY, Case, Culprit, Judged, Kind, Remedy, Rule, Step
from exhume.diagnosis.findings.leak_places import made_by
from exhume.diagnosis.findings.makers import SOURCE, Maker, maker
from exhume.diagnosis.findings.memcg_walk import MemcgWalk
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Shown, unit_of
from exhume.diagnosis.findings.napi_starved import NapiStarved, held_by
from exhume.diagnosis.findings.sampled_work import sampled
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND, duration
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.text import printable

# A sample smaller than this says nothing about thousands.
FEWEST_LOOKED = 32
# Of a core's time; less is no more than anybody's look now and then.
LEAST_READ = 0.05
_LINKS = "link count of the directory"
_SAMPLES = "stack samples"
# Hierarchies of v1 without the memory controller: a walk of memory cgroups does not visit them.
_OTHER_HIERARCHIES: Final = frozenset(
    "systemd cpu cpuacct cpu,cpuacct cpuset pids devices freezer blkio net_cls net_prio net_cls,net_prio hugetlb perf_event "
    "rdma misc".split()
)


@record(frozen=True, slots=True, kw_only=True)
class CgroupReader:
    """The program that lists and reads cgroups most."""

    process: Annotated[Process, Shown("read by", source=_SAMPLES)]
    core_ratio: Annotated[float, Shown("reading share", "of a core's time, in listing and reading cgroups", _SAMPLES, digits=3)]
    """Of one core's time; of all programs together."""


@record(frozen=True, slots=True, kw_only=True)
class CgroupDirsLeak(Facts):
    kind: ClassVar[str] = "cgroup-dirs-leak"
    directory: Annotated[str, Shown("directory", source="/proc/self/mountinfo")]
    """With its mount point; the subject is the path below that."""
    directories: Annotated[int, Shown("directories", "cgroups", _LINKS)]
    leaves: Annotated[int, Shown("leaves", "cgroups without a child of their own", "link count of each")]
    looked_at: Annotated[int, Shown("looked at", "cgroups", "a sample spread over them")]
    empty: Annotated[int, Shown("empty", "cgroups", "cgroup.procs or cgroup.events of that sample")]
    """Of the sample."""
    example: str
    """The path of an empty one."""
    growth: Annotated[int | None, Shown("growth", "cgroups", ".growth_source")] = None
    growth_over_s: float = 0.0
    growth_per_hour: Annotated[float | None, Shown("rate", "cgroups an hour", _LINKS, digits=1)] = None
    made_and_left: Annotated[int, Shown("made and not removed", "cgroups", SOURCE, zero=False)] = 0
    """In the window."""
    maker: Annotated[Maker | None, Shown()] = None
    reader: Annotated[CgroupReader | None, Shown()] = None

    def summary(self) -> str:
        said = (
            f"about {self.empty_estimate:,} of the {self.directories:,} cgroup directories in {self.directory} "
            f"hold no process, e.g. {self.example.rsplit('/', 1)[-1]}"
        )
        if self.reader is None:
            return said
        process = printable(str(self.reader.process))
        return f"{said}; {process} spends {self.reader.core_ratio:.0%} of a core on reading cgroups"

    def short(self) -> tuple[str, str]:
        numbers = [f"about {self.empty_estimate:,} of {self.directories:,}"]
        if self.growth:
            numbers.append(f"{self.growth:+,} while watched")
        return f"empty cgroup directories in {self.directory}", " · ".join(numbers)

    @property
    def empty_estimate(self) -> int:
        """Of all leaves, by the sample."""
        return estimate(self.leaves, self.looked_at, self.empty)

    @property
    def growth_source(self) -> str:
        return f"{_LINKS}, over {duration(self.growth_over_s * SECOND)}"

    @property
    def unit(self) -> str:
        return (self.maker.unit if self.maker is not None else "") or unit_of(self.subject)

    @property
    def cgroup_paths(self) -> tuple[str, ...]:
        return (self.maker.cgroup,) if self.maker is not None and self.maker.cgroup else ()


def estimate(leaves: int, looked_at: int, empty: int) -> int:
    """How many leaves are empty, by those of a sample that are."""
    return round(leaves * (empty / max(1, looked_at)))


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    table = recording["cgroup_dirs"]
    if not len(table):
        if not recording.on("cgroup-dirs"):
            return Examined(CgroupDirsLeak.kind, unseen=recording.why_off("cgroup-dirs"))
        return Examined(CgroupDirsLeak.kind, ruled_out="no cgroup has children")
    latest = int(table.ints("time").max())
    reader = _reader(recording)
    every = sorted(table.rows(), key=lambda row: (row["time"], row["path"], row["mount"], row["children"]))
    rows = [row for row in every if row["time"] == latest]
    findings: list[Finding[CgroupDirsLeak]] = []
    for row in rows:
        if row["looked"] < FEWEST_LOOKED:
            continue
        share = row["empty"] / row["looked"]
        about = estimate(row["leaves"], row["looked"], row["empty"])
        if about < thresholds.empty_dirs_floor or share < thresholds.empty_dirs_ratio:
            continue
        growth, seconds = _growth(every, row)
        left, program = _made(recording, row["path"])
        facts = CgroupDirsLeak(
            subject=row["path"],
            directory=row["mount"].rstrip("/") + row["path"],
            directories=row["children"],
            leaves=row["leaves"],
            looked_at=row["looked"],
            empty=row["empty"],
            example=row["example"],
            growth=growth,
            growth_over_s=seconds,
            growth_per_hour=per_hour(growth, seconds) if growth is not None and seconds >= SHORTEST_S else None,
            made_and_left=left,
            maker=program,
            reader=reader,
        )
        findings.append(Finding(facts, "warning", latest, latest))
    if findings:
        findings.sort(key=lambda finding: (-finding.facts.directories, finding.subject))
        return Examined(CgroupDirsLeak.kind, tuple(findings))
    empty = max(round(row["leaves"] * row["empty"] / max(1, row["looked"])) for row in rows)
    if empty >= thresholds.empty_dirs_floor:
        return Examined(CgroupDirsLeak.kind, ruled_out="most directories of every crowded cgroup hold a process")
    if not empty:
        return Examined(CgroupDirsLeak.kind, ruled_out="no cgroup has an empty child among those looked at")
    return Examined(CgroupDirsLeak.kind, ruled_out=f"no cgroup has more than about {empty:,} empty children")


def _growth(every: list[dict[str, Any]], last: dict[str, Any]) -> tuple[int | None, float]:
    """How many more there are than at the first count, and the seconds between; None if there is one count only."""
    first = next(row for row in every if (row["path"], row["mount"]) == (last["path"], last["mount"]))
    seconds = (last["time"] - first["time"]) / 1e9
    return (last["children"] - first["children"], seconds) if seconds > 0 else (None, 0.0)


def _reader(recording: Recording) -> CgroupReader | None:
    """The program that lists and reads cgroups most: what the directories cost."""
    seen = sampled(recording)
    if seen is None:
        return None
    mask = seen.doing(CGROUPFS, STATISTICS, FLUSH, WALK)
    share, who = seen.steps(mask).mean() * recording.node.cpus, seen.most_by(mask)
    if who is None or share < LEAST_READ:
        return None
    return CgroupReader(process=who.process, core_ratio=share)


def _made(recording: Recording, path: str) -> tuple[int, Maker | None]:
    """How many were made there in the window and not removed, and the program that made them."""
    left = [group for group in churned(recording).groups if group.parent == path and group.life.removed < 0 <= group.life.made]
    return len(left), maker(recording, made_by(left)) if left else None


def _saturate(dirs: Finding[CgroupDirsLeak], core: Finding[CoreSaturated]) -> Judged:
    if not core.facts.looked:
        return 0.3, "both are there at once; no stack was taken to show that this core walks them"
    walked, listed = core.facts.walk_ratio, core.facts.work.cgroupfs_ratio
    if listed >= MOSTLY:
        sure, seen = seen_there(core, listed)
        return min(0.9, sure), f"cgroup directories are listed and read {seen}, and these are most of them"
    if walked + listed < MOSTLY:
        return None
    sure, seen = seen_there(core, walked + listed)
    return min(0.8, sure), f"cgroups are walked {seen}, and these directories are among them"


def _are_walked(dirs: Finding[CgroupDirsLeak], walk: Finding[MemcgWalk]) -> Judged:
    if _OTHER_HIERARCHIES.intersection(dirs.facts.directory.split("/")[:5]):
        return None
    return 0.7, f"a walk visits every group, and {dirs.facts.directories:,} of them are these directories"


def _starve(dirs: Finding[CgroupDirsLeak], napi: Finding[NapiStarved]) -> Judged:
    work = napi.facts.work
    listed = held_by(napi, work.cgroupfs_ratio, "cgroup directories were listed, these among them,", 0.85)
    return listed or held_by(napi, work.memcg_walk_ratio, "cgroups were walked, these directories among them,", 0.8)


def _fill(dirs: Finding[CgroupDirsLeak], full: Finding[CpuFull]) -> Judged:
    reader, busiest = dirs.facts.reader, full.facts.busiest
    if reader is None or busiest is None or reader.process.comm != busiest.process.comm or reader.core_ratio < MOSTLY:
        return None
    share = f"{reader.core_ratio:.0%} of a core"
    return 0.6, f"{reader.process.comm}, which uses most of the machine, spends {share} on reading them"


def _culprits(dirs: Finding[CgroupDirsLeak], case: Case) -> Iterator[Culprit]:
    maker = dirs.facts.maker
    yield Culprit(maker.unit or str(maker) if maker is not None and not maker.hand else dirs.subject, 1.0)


def _steps(dirs: Finding[CgroupDirsLeak], case: Case) -> Iterator[Step]:
    fix = f"exhume fix {CgroupDirsLeak.kind} removes those below {dirs.facts.directory} that nobody has"
    yield Step(f"stop what makes them, then: {fix}", fix=CgroupDirsLeak.kind)


def _remedies(dirs: Finding[CgroupDirsLeak], case: Case) -> Iterator[Remedy]:
    effect = "removes those that have neither a process nor an owner, bottom up; cannot be undone"
    yield Remedy("fix", CgroupDirsLeak.kind, f"exhume fix {CgroupDirsLeak.kind}", effect)


KIND = Kind(
    facts=CgroupDirsLeak,
    detect=detect,
    role="condition",
    title=lambda finding: f"the cgroup directories that pile up in {finding.subject}",
    rules=(
        Rule(CgroupDirsLeak, MemcgWalk, _are_walked, "a walk that is as long after they were removed"),
        Rule(CgroupDirsLeak, CpuFull, _fill, "a machine that is as full after they were removed"),
        Rule(CgroupDirsLeak, CoreSaturated, _saturate, "a core that is as full after they were removed"),
        Rule(CgroupDirsLeak, NapiStarved, _starve, "stalls that go on after they were removed"),
    ),
    culprits=_culprits,
    steps=_steps,
    remedies=_remedies,
)
