"""Loops by cgroups that come and go: one at a time, in one place, in a rhythm. Containers are such cgroups, with an id."""

from collections import Counter

from exhume.diagnosis.findings.churn import Churned, Group, churned, within
from exhume.diagnosis.findings.leak_places import made_by
from exhume.diagnosis.findings.loops import CgroupChurn, Loop, Pauses, Way
from exhume.diagnosis.findings.makers import is_hand, maker
from exhume.diagnosis.findings.rhythm import Rhythm, rhythm
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.owners import Owner, owner
from exhume.recording.events import oom_kills
from exhume.recording.recording import Recording
from exhume.sources.zombie_groups import Shapes
from exhume.text import printable

# Of those that were removed, so many must have stayed as zombies for the loop to be a leak as well.
_LEAKS = 0.5


def by_churn(recording: Recording, thresholds: Thresholds) -> list[Loop]:
    seen = churned(recording)
    places: dict[tuple[str, str, int], list[Group]] = {}
    for group in seen.groups:
        if group.life.made >= 0:
            # What one program makes for itself is apart from what others make there.
            own = 0 if is_hand(group.comm, group.pid) else group.pid
            places.setdefault((group.parent, group.shape, own), []).append(group)
    found = []
    for (parent, shape, _), groups in places.items():
        if len(groups) < thresholds.crash_restarts:
            continue
        beat = rhythm(((group.life.made, group.life.removed) for group in groups), thresholds.crash_restarts)
        if beat is not None:
            found.append(_loop(recording, thresholds, seen, parent, shape, groups, beat))
    return [loop for loop in found if loop is not None]


def _loop(
    recording: Recording, thresholds: Thresholds, seen: Churned, parent: str, shape: str, groups: list[Group], beat: Rhythm
) -> Loop | None:
    name = shape.rsplit("/", 1)[-1]
    if name.startswith("session-") and name.endswith(".scope"):
        return None  # pam_systemd's: who logs in, and every cron job
    example = groups[-1].life.path
    same = len({group.life.path for group in groups}) == 1
    place = example if same else parent.rstrip("/") + "/" + name
    owned = owner(example)
    made = maker(recording, made_by(groups))
    unit = _unit(recording, place, owned) or (made.unit if made is not None and not made.hand else "")
    removed, unreleased = len(seen.settled(groups)), len(seen.unreleased(groups))
    # Events that were lost may have been releases.
    leaks = unreleased >= max(1, _LEAKS * removed) and not seen.lost
    # A new pod is another job, not a restart: the kubelet starts a container again in the pod that it has. A clock is no
    # supervisor.
    again = not (owned.pod and not owned.container) and (not beat.timed or bool(owned.pod))
    again = again and not (name == unit and _never_restarted(recording, unit))
    killed = _killed(recording, groups)
    # How they end nobody saw. But a container that is replaced so soon, so often and so regularly does not do any work.
    soon = beat.period_ns <= thresholds.crash_hasty_s * 1_000_000_000
    hasty = bool(owned.container) and soon and beat.starts >= thresholds.crash_hasty
    # Who doubles his pauses has seen failures.
    crashes = again and (leaks or beat.backs_off or killed >= max(1, _LEAKS * removed) or hasty)
    by: Way = "containers" if owned.container else "cgroup-churn"
    return Loop(
        unit or place,
        by,
        beat.starts,
        crashes,
        beat.first,
        beat.last,
        CgroupChurn(beat.starts, beat.period_ns, bool(owned.container), killed, removed, unreleased),
        period_ns=beat.period_ns,
        cgroup=place,
        unit=unit,
        process=_process(recording, groups),
        supervisor=made.process if made is not None and not made.hand else None,
        removed=removed,
        unreleased=unreleased,
        pauses=Pauses.DOUBLING if beat.backs_off else Pauses.STEADY,
        life_ns=beat.life_ns,
        bad_ends=killed or None,
        bad_ends_source="kernel log, oom-kill" if killed else "",
    )


def _killed(recording: Recording, groups: list[Group]) -> int:
    """How many of them the kernel killed in for memory: its line names the victim's cgroup (mm/oom_kill.c, from 5.0)."""
    paths = {group.life.path for group in groups}
    return len(paths & {kill.cgroup for kill in oom_kills(recording)})


def _unit(recording: Recording, place: str, owned: Owner) -> str:
    """By its path, else by what is known of the zombies of the same place: runtimes keep on disk who asked for a container."""
    if owned.unit or owned.pod:
        return "" if owned.pod else owned.unit
    shapes = Shapes()
    table = recording["memcg_walk"]
    rows = zip(table.texts("home"), table.texts("path"), table.texts("unit"), table.texts("pod"), strict=True)
    known = Counter(
        unit for home, path, unit, pod in rows if unit and not pod and within(home, place) and shapes[path] == shapes[place]
    )
    return max(known.items(), key=lambda item: (item[1], item[0]), default=("", 0))[0]


def _never_restarted(recording: Recording, unit: str) -> bool:
    """Whether systemd knows the unit and has not started it again by itself: then a timer, a socket or somebody else does."""
    table = recording["units"]
    counts = [count for name, count in zip(table.texts("unit"), table.ints("restarts").tolist(), strict=True) if name == unit]
    return max(counts, default=1) <= 0


def _process(recording: Recording, groups: list[Group]) -> Process | None:
    """The program that was seen in most of them."""
    paths = {group.life.path for group in groups}
    seen: set[tuple[str, str]] = set()
    for table, name in (("threads", "process"), ("processes", "comm")):
        rows = zip(recording[table].texts("cgroup"), recording[table].texts(name), strict=True)
        seen |= {(cgroup, comm) for cgroup, comm in rows if comm and cgroup in paths}
    known = Counter(comm for _, comm in seen if not is_hand(comm))
    return Process(printable(max(known, key=lambda comm: (known[comm], comm)))) if known else None
