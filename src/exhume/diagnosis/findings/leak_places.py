"""The places that zombies come from, with how it is known: by named zombies, else by cgroup events."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final, Literal

from exhume.diagnosis.findings.churn import Churned, Group, churned, within
from exhume.diagnosis.findings.forecast import SHORTEST_S, per_hour
from exhume.diagnosis.findings.makers import Maker, maker
from exhume.diagnosis.findings.model import Shown
from exhume.diagnosis.findings.unreaped import Unreaped, unreaped
from exhume.host.owners import owner
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.sources.zombie_groups import Shapes

KnownBy = Literal["named", "events", "restarts"]
NAMED: Final = "named"
EVENTS: Final = "events"
_KNOWN_BY: Final[dict[KnownBy, str]] = {
    "named": "named zombies",
    "events": "cgroup events",
    "restarts": "unit restarts that match in number",
}


def spelled_source(known_by: KnownBy) -> str:
    return _KNOWN_BY[known_by]


# From this share on a place's growth may be read off the count of the whole node.
_NEARLY_ALL = 0.8
# Two walks closer together than this say less of a rate than the events between them.
_APART_S = 30.0


@record(frozen=True, slots=True)
class Growth:
    count: int
    seconds: float
    source: str

    @property
    def per_hour(self) -> float:
        return per_hour(self.count, self.seconds)


@record(frozen=True, slots=True, kw_only=True)
class PlaceOwner:
    """The unit or the pod that the cgroups of a place belong to, with what else is known of one of them."""

    unit: Annotated[str, Shown("unit")] = ""
    """Empty if a pod owns them."""
    pod: Annotated[str, Shown("pod")] = ""
    """Empty if the place has cgroups of many pods."""
    example: Annotated[str, Shown("example")] = ""
    """The path of one of them."""
    container: Annotated[str, Shown("container")] = ""
    image: Annotated[str, Shown("image")] = ""
    found_by: Annotated[str, Shown("how")] = ""
    """How the owner was found."""
    started_by: Annotated[str, Shown("started by")] = ""
    """The unit that started the pod."""
    example_pod: Annotated[str, Shown("example pod")] = ""
    """One of many pods."""
    confidence: Annotated[float | None, Shown("owner confidence", source=".found_by")] = None

    @property
    def name(self) -> str:
        return self.unit or self.pod


@record(frozen=True, slots=True, kw_only=True)
class Pinned:
    """What zombies still have charged to them, which keeps them."""

    file_bytes: Annotated[int, Shown("pinned by page cache", "bytes", zero=False)] = 0
    anon_bytes: Annotated[int, Shown("pinned by shared memory or tmpfs", "bytes", zero=False)] = 0
    swap_bytes: Annotated[int, Shown("pinned by swap", "bytes", zero=False)] = 0
    kernel_bytes: Annotated[int, Shown("pinned by kernel memory", "bytes", zero=False)] = 0

    @property
    def mostly(self) -> str:
        """The kind of memory with the most bytes; empty if there is none."""
        by_kind = {
            "page cache": self.file_bytes,
            "shared memory or tmpfs": self.anon_bytes,
            "swap": self.swap_bytes,
            "kernel memory": self.kernel_bytes,
        }
        most = max(by_kind, key=lambda kind: by_kind[kind])
        return most if by_kind[most] else ""


@record(frozen=True, slots=True, kw_only=True)
class LeakPlace:
    path: str
    home: str
    zombies: int
    source: KnownBy
    method: str
    start: int
    end: int
    owner: PlaceOwner = PlaceOwner()
    pinned: Pinned = Pinned()
    unreaped: int = 0
    """How many of the zombies unreaped processes hold."""
    siblings: int = 0
    growth: Growth | None = None
    removed: int = 0
    unreleased: int = 0
    steady: bool = False
    """Those came all along, and no event was lost that could have told of a release."""
    maker: Maker | None = None
    covers: frozenset[tuple[str, str]] = frozenset()
    """(directory that is still there, path without what a machine made up) of all that was put together here."""
    others: int = 0
    """Places of the same unit that were put together with this one."""

    @property
    def unit(self) -> str:
        return self.owner.unit

    @property
    def pod(self) -> str:
        return self.owner.pod

    def same(self, other: "LeakPlace") -> bool:
        """Whether another is this one, or a part of it, told by another source."""
        if self.unit and self.unit == other.unit:
            return True
        return any(
            (shape == theirs and within(home, place)) or (shape.endswith("/*") and place == home)
            for home, shape in self.covers
            for place, theirs in other.covers
        )


def named(recording: Recording) -> tuple[list[LeakPlace], int]:
    """By the last walk, the largest first; and how many zombies it found, those that have no place included."""
    table = recording["memcg_walk"]
    if not len(table):
        return [], 0
    rows = sorted(table.rows(), key=lambda row: (row["time"], row["path"], row["home"], row["zombies"]))
    latest = rows[-1]["time"]
    last = [row for row in rows if row["time"] == latest]
    total = sum(row["zombies"] for row in last)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in last:
        if row["method"] != "count" and not row["path"].startswith("("):  # "(7 more places)"
            groups.setdefault(_unit(row) or row["path"], []).append(row)
    seen, held = churned(recording), unreaped(recording)
    before = [row for row in rows if row["time"] == rows[0]["time"]] if rows[0]["time"] < latest else []
    places = [_named(recording, seen, group, before, total, held) for group in groups.values()]
    return sorted(places, key=lambda place: (-place.zombies, place.path)), total


def _unit(row: dict[str, Any]) -> str:
    """The unit that owns them. What runs in a pod is the pod's own affair, whoever started it."""
    return "" if row["pod"] else str(row["unit"])


def _named(
    recording: Recording,
    seen: Churned,
    rows: list[dict[str, Any]],
    before: list[dict[str, Any]],
    total: int,
    held: Unreaped | None,
) -> LeakPlace:
    rows = sorted(rows, key=lambda row: (-row["zombies"], row["path"], row["home"]))
    first, zombies = rows[0], sum(row["zombies"] for row in rows)
    there = at_places(seen, [(row["home"], row["path"]) for row in rows])
    unreleased = seen.unreleased(there)
    shapes = Shapes()
    return LeakPlace(
        path=first["path"],
        home=_common([row["home"] for row in rows]),
        zombies=zombies,
        source=EVENTS if first["method"] == "events" else NAMED,
        method=first["method"],
        start=before[0]["time"] if before else first["time"],
        end=first["time"],
        owner=_owner(first),
        pinned=Pinned(
            file_bytes=sum(row["file"] for row in rows),
            anon_bytes=sum(row["anon"] for row in rows),
            swap_bytes=sum(row["swap"] for row in rows),
            kernel_bytes=sum(row["kernel"] for row in rows),
        ),
        unreaped=sum(held.of(row) for row in rows) if held is not None else 0,
        siblings=max(row["siblings"] for row in rows),
        growth=_growth(recording, seen, rows, before, len(unreleased) if there else None, zombies / max(1, total)),
        removed=len(seen.settled(there)),
        unreleased=len(unreleased),
        steady=seen.steady(unreleased) and not seen.lost,
        maker=maker(recording, made_by(there)),
        covers=frozenset((row["home"], shapes[row["path"]]) for row in rows),
        others=len(rows) - 1,
    )


def _owner(row: dict[str, Any]) -> PlaceOwner:
    many_pods = "<uid>" in row["path"]
    unit, pod = _unit(row), "" if many_pods else row["pod"]
    return PlaceOwner(
        unit=unit,
        pod=pod,
        example=row["example"],
        container=row["container"],
        image=row["image"],
        found_by=row["how"],
        started_by=row["unit"] if row["pod"] else "",
        example_pod=row["pod"] if many_pods else "",
        confidence=row["confidence"] / 100 if unit or pod else None,
    )


def _growth(
    recording: Recording,
    seen: Churned,
    rows: list[dict[str, Any]],
    before: list[dict[str, Any]],
    unreleased: int | None,
    share: float,
) -> Growth | None:
    by_walks = None
    if before:
        shapes = Shapes()
        keys = {(row["home"], shapes[row["path"]]) for row in rows}
        then = sum(row["zombies"] for row in before if (row["home"], shapes[row["path"]]) in keys)
        apart = (rows[0]["time"] - before[0]["time"]) / 1e9
        by_walks = Growth(sum(row["zombies"] for row in rows) - then, apart, "two walks")
        if apart >= _APART_S:
            return by_walks
    if unreleased is not None:
        return Growth(unreleased, seen.seconds, "cgroup_rmdir without cgroup_release")
    return by_walks or (_of_all(recording) if share >= _NEARLY_ALL else None)


def _of_all(recording: Recording) -> Growth | None:
    counts = zombie_counts(recording)
    if len(counts) < 2 or (counts[-1][0] - counts[0][0]) / 1e9 < SHORTEST_S:
        return None
    (start, then, _), (end, now, _) = counts[0], counts[-1]
    return Growth(now - then, (end - start) / 1e9, "the count of the node, of which nearly all are here")


def zombie_counts(recording: Recording) -> list[tuple[int, int, int]]:
    """(time, zombies, live groups) of the whole node, in order."""
    return recording.derived("memcg", _counted)


def _counted(recording: Recording) -> list[tuple[int, int, int]]:
    table = recording["memcg"]
    rows = zip(*(table.ints(name).tolist() for name in ("time", "dying", "live")), table.texts("path"), strict=True)
    return sorted((time, dying, live) for time, dying, live, path in rows if path == "/" and dying >= 0)


def at_places(seen: Churned, places: Iterable[tuple[str, str]]) -> list[Group]:
    """The groups that came or went at places given as (directory that is still there, path)."""
    shapes = Shapes()
    wanted: dict[str, list[str]] = {}
    for home, path in places:
        # cgroup.stat knows no more than the directory; what went there may have had any name.
        wanted.setdefault("" if path.endswith("/*") else shapes[path], []).append(home)
    parents = {*wanted.get("", ())}
    return [
        group
        for group in seen.groups
        if group.parent in parents
        or ((homes := wanted.get(group.shape)) is not None and any(within(home, group.life.path) for home in homes))
    ]


def made_by(groups: Iterable[Group]) -> list[tuple[str, int]]:
    return [(group.comm, group.pid) for group in groups if group.comm]


def by_events(recording: Recording) -> list[LeakPlace]:
    """Places where groups were removed and not released while we looked, the most first."""
    seen = churned(recording)
    places: dict[tuple[str, str], list[Group]] = {}
    for group in seen.groups:
        if group.life.removed >= 0:
            places.setdefault((group.parent, group.shape), []).append(group)
    found = []
    for (home, shape), groups in places.items():
        unreleased = seen.unreleased(groups)
        if not unreleased:
            continue
        example = unreleased[-1].life.path
        owned = owner(example)
        path = home.rstrip("/") + "/" + shape.rsplit("/", 1)[-1] if len(groups) > 1 else example
        found.append(
            LeakPlace(
                path=path,
                home=home,
                zombies=len(unreleased),
                source=EVENTS,
                method="events",
                start=seen.start,
                end=seen.end,
                owner=PlaceOwner(
                    unit=owned.unit if not owned.pod else "",
                    pod=owned.pod,
                    example=example,
                    found_by="its path" if owned.unit or owned.pod else "",
                ),
                growth=Growth(len(unreleased), seen.seconds, "cgroup_rmdir without cgroup_release"),
                removed=len(seen.settled(groups)),
                unreleased=len(unreleased),
                steady=seen.steady(unreleased) and not seen.lost,
                maker=maker(recording, made_by(groups)),
                covers=frozenset({(home, shape)}),
            )
        )
    return sorted(found, key=lambda place: (-place.zombies, place.path))


def _common(paths: Sequence[str]) -> str:
    """The deepest directory that all of them are in."""
    parts = [path.strip("/").split("/") for path in paths]
    same = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        same.append(names[0])
    return "/" + "/".join(name for name in same if name)
