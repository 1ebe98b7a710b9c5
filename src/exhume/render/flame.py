"""The tree behind every flame graph: stacks merged from their outermost caller on, each branch with its samples.

A tree may count two windows: each branch then has its samples in both, and may have none in one of them. The terminal, the
SVG, the HTML report and the page all draw from this tree.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.recording.arrays import among
from exhume.recording.choice import Choice, Search
from exhume.recording.recording import Ints, Recording, Table
from exhume.recording.tally import Tally

By = Literal["process", "core", "thread", "cgroup", "none"]
BYS: tuple[By, ...] = ("process", "core", "thread", "cgroup", "none")
Idle = Literal["frame", "stack", "none"]
"""Idle samples as one frame, with their stacks like all others, or left out."""
Kind = Literal["all", "core", "process", "thread", "user", "python", "jit", "kernel", "idle"]
_ORDER = {kind: i for i, kind in enumerate(("all", "core", "process", "thread", "user", "python", "jit", "kernel", "idle"))}
# What sources/sampling/images.py calls the module of code made at run time, and how perf_map.py there names Python's functions.
_JIT = "[jit]"
_PYTHON = re.compile(r" \((?:[^()]*\.py|<[^()]*>)\)$")
# A comparison leaves branches with a smaller share of the samples out.
_LEAST_COMPARED = 0.002
# Trees of many nodes are merged down to this depth: deeper frames count in the last one.
_DEEPEST_MERGED = 1024

Profile = tuple[Tally, Recording]
"""The samples of a window, counted, and the dictionaries that they refer to."""


class Node(NamedTuple):
    """A function (or whoever ran it), and how many samples it was seen in at this place."""

    name: str
    kind: Kind
    value: int
    children: "tuple[Node, ...]" = ()
    module: str = ""
    base: int = 0
    """Samples at the same place in the window that this one is compared with."""

    @property
    def own(self) -> int:
        """Samples in which nothing that it called ran."""
        return self.value - sum(child.value for child in self.children)


class Placed(NamedTuple):
    """A node and where it is in the picture: how many samples from the left, how many frames from the root."""

    node: Node
    start: int
    depth: int


class Change(NamedTuple):
    """A branch, its share of all samples, and its share in the window it is compared with; None without one."""

    placed: Placed
    share: float
    before: float | None


class Compared(NamedTuple):
    """The stacks of an incident, beside those of a quiet window."""

    root: Node
    before: tuple[int, int] | None = None
    """The quiet window; None if there is none, or if it is not one window."""
    core: int | None = None

    def changes(self) -> Iterator[Change]:
        """Every branch that has samples, parents before their children."""
        total, base = self.root.value, self.root.base
        for placed in walk(self.root):
            if placed.node.value > 0:
                yield Change(placed, placed.node.value / total, placed.node.base / base if base else None)


Label = tuple[Kind, str, str]
"""Kind, name and module."""


def _sorted(values: Collection[int]) -> Ints:
    return np.array(sorted(values), dtype=np.int64)


def select(
    tally: Tally,
    dictionaries: Recording,
    cores: Collection[int] | None = None,
    comm: Search | None = None,
    pids: Collection[int] | None = None,
    cgroup: Search | None = None,
    tids: Collection[int] | None = None,
) -> Tally:
    """The part of a tally that those threads on those cores have; what is None is not asked."""
    keep = np.ones(len(tally.count), dtype=bool)
    if cores is not None:
        keep &= among(tally.core, _sorted(cores))
    wanted = Choice(None, comm, pids, cgroup, tids=tids).threads(dictionaries["threads"])
    if wanted is not None:
        keep &= among(tally.thread, wanted)
    return Tally(*(column[keep] for column in tally))


def build(tally: Tally, dictionaries: Recording, by: By = "process", idle: Idle = "frame", inverted: bool = False) -> Node:
    """The tree of a tally, grouped by who ran; `inverted` begins at the functions that ran and goes on to their callers."""
    return plant(tally, dictionaries, by, idle, inverted).node()


class Tree:
    """A tree as columns, depth first, parents before their children; the root is not among them."""

    def __init__(self, labels: list[Label], paths: Mapping[bytes, int], base: Mapping[bytes, int]) -> None:
        """`paths` are places of labels, four bytes each with the highest first, so that their order is that of the tree.
        `base` are those of the window to compare with."""
        self.labels = labels
        ordered = sorted({**paths, **base})
        self.total, self.base_total = sum(paths.values()), sum(base.values())
        flat = np.frombuffer(b"".join(ordered), dtype=">u4").astype(np.int64)
        lengths = np.array([len(path) // 4 for path in ordered], dtype=np.int64)
        begins = np.cumsum(lengths) - lengths
        shared = _shared(flat, begins, lengths)
        row = np.repeat(np.arange(len(ordered)), lengths)
        depth = np.arange(len(flat)) - begins[row]
        new = depth >= shared[row]
        self.depth, self.label = depth[new], flat[new]
        ends = _ends(self.depth, row[new], shared)

        def values(counts: Mapping[bytes, int]) -> Ints:
            reached = np.append(0, np.cumsum([counts.get(path, 0) for path in ordered], dtype=np.int64))
            found: Ints = reached[ends] - reached[row[new]]
            return found

        self.value = values(paths)
        self.base = values(base) if base else np.zeros_like(self.value)

    def __len__(self) -> int:
        """How many branches it has, the root not counted."""
        return len(self.depth)

    @property
    def idle(self) -> int:
        """Samples of idle cores."""
        idle = np.array([kind == "idle" for kind, _, _ in self.labels], dtype=np.bool_)
        return int(self.value[idle[self.label]].sum()) if len(self) else 0

    def wide(self, least: float) -> NDArray[np.bool_]:
        """Which branches have at least this share of the samples of either window."""
        found: NDArray[np.bool_] = self.value >= max(1, least * self.total)
        return found | (self.base >= max(1, least * self.base_total))

    def node(self, least: float = 0.0) -> Node:
        """The tree as nodes, without branches that have less than this share of all samples."""
        kept = np.flatnonzero(self.value >= least * self.total)[::-1]
        columns = (column[kept].tolist() for column in (self.depth, self.label, self.value, self.base))
        waiting: list[list[Node]] = [[] for _ in range(int(self.depth.max(initial=0)) + 2)]
        for depth, label, value, base in zip(*columns, strict=True):
            kind, name, module = self.labels[label]
            children = waiting[depth + 1]
            waiting[depth].append(Node(name, kind, value, tuple(reversed(children)), module, base))
            if children:
                waiting[depth + 1] = []
        return Node("all", "all", self.total, tuple(reversed(waiting[0])), base=self.base_total)


def _shared(flat: Ints, begins: Ints, lengths: Ints) -> Ints:
    """Of each path how many labels it begins with in common with the path before it. No path is empty."""
    shared = np.zeros(len(lengths), dtype=np.int64)
    if len(lengths) > 1:
        shorter = np.minimum(lengths[1:], lengths[:-1])
        first = np.cumsum(shorter) - shorter
        place = np.arange(int(shorter.sum())) - np.repeat(first, shorter)
        same = flat[place + np.repeat(begins[1:], shorter)] == flat[place + np.repeat(begins[:-1], shorter)]
        shared[1:] = np.minimum.reduceat(np.where(same, np.repeat(shorter, shorter), place), first)
    return shared


def _ends(depth: Ints, row: Ints, shared: Ints) -> Ints:
    """Of branches, by depth and the path that begins them, the path before which they end: the first one that shares no more
    than their depth."""
    found = np.empty(len(depth), dtype=np.int64)
    order = np.argsort(depth, kind="stable")
    edges = np.append(0, np.cumsum(np.bincount(depth)))
    for level, (first, last) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        mine = order[first:last]
        ends = np.append(np.flatnonzero(shared <= level), len(shared))
        found[mine] = ends[np.searchsorted(ends, row[mine], "right")]
    return found


def plant(
    tally: Tally, dictionaries: Recording, by: By, idle: Idle, inverted: bool = False, base: Profile | None = None
) -> Tree:
    """The tree of a window, and of the `base` it is compared with."""
    labels = _Labels()
    unknown = labels.number(("user", "[unknown]", ""))
    in_user = labels.number(("user", "[user space]", ""))
    nobody = labels.number(("thread" if by == "thread" else "process", "[unknown]", ""))
    at_idle = labels.number(("idle", "idle", ""))
    windows = [_Window(each, by, labels) for each in ((tally, dictionaries), base) if each is not None]
    places, ordered = labels.places()
    code = [place.to_bytes(4, "big") for place in places]
    counted: list[dict[bytes, int]] = []
    for window in windows:
        stacks = _stacks(window.stacks, window.frames, np.array(places, dtype=np.int64), unknown, in_user, inverted)
        paths: dict[bytes, int] = {}
        for core, thread, stack, count in window.rows:
            kind, path = stacks.get(stack, ("", code[unknown]))
            if kind == "idle" and idle == "none":
                continue
            if kind == "idle" and idle == "frame":
                path = code[at_idle]
            elif by != "none":
                path = code[window.groups.get(thread, nobody)] + path
            if by == "core":
                path = code[window.cores[core]] + path
            paths[path] = paths.get(path, 0) + count
        counted.append(paths)
    return Tree(ordered, counted[0], counted[1] if len(counted) > 1 else {})


class _Window:
    """A profile with the numbers of its labels, which are the same in every window of a tree."""

    def __init__(self, profile: Profile, by: By, labels: "_Labels") -> None:
        tally, dictionaries = profile
        self.groups = _groups(dictionaries["threads"], by, labels)
        self.rows = _merged(tally, by, self.groups)
        cores = {core for core, _, _, _ in self.rows} if by == "core" else set()
        self.cores = {core: labels.number(("core", f"core {core}", "")) for core in cores}
        self.frames = _frames(dictionaries["frames"], labels)
        self.stacks = dictionaries["stacks"]


def compare(now: Profile, then: Profile | None, before: tuple[int, int] | None, core: int | None) -> Compared | None:
    """The stacks of an incident against those of the window `before`. None if the incident has no samples."""
    if not len(now[0].count):
        return None
    root = plant(*now, "process", "frame", base=then).node(_LEAST_COMPARED)
    return Compared(root, before if root.base else None, core)


class _Growing:
    """A branch of a tree that others are added to."""

    __slots__ = ("children", "counts")

    def __init__(self) -> None:
        self.counts = [0, 0]
        self.children: dict[Label, _Growing] = {}


def merge(roots: Iterable[Node], base: Iterable[Node] = ()) -> Node:
    """Trees as one: branches with the same name at the same place are one. Those of `base` count as the window to compare
    with."""
    whole = _Growing()
    for side, trees in enumerate((roots, base)):
        for root in trees:
            waiting = [(root, whole, 0)]
            whole.counts[side] += root.value
            while waiting:
                node, into, depth = waiting.pop()
                for child in node.children if depth < _DEEPEST_MERGED else ():
                    key = child.kind, child.name, child.module
                    if (grown := into.children.get(key)) is None:
                        grown = into.children[key] = _Growing()
                    grown.counts[side] += child.value
                    waiting.append((child, grown, depth + 1))
    return _frozen(whole)


def _frozen(whole: _Growing) -> Node:
    """From the leaves up, without recursion: stacks may be deeper than Python's."""
    order = [whole]
    for growing in order:
        order.extend(growing.children.values())
    made: dict[int, tuple[Node, ...]] = {}
    for growing in reversed(order):
        made[id(growing)] = tuple(
            Node(name, kind, child.counts[0], made.pop(id(child)), module, child.counts[1])
            for (kind, name, module), child in sorted(growing.children.items(), key=lambda item: item[0])
        )
    return Node("all", "all", whole.counts[0], made[id(whole)], base=whole.counts[1])


def as_json(root: Node) -> Iterator[str]:
    """`{"name", "kind", "module", "samples", "children"}`, nested; a node without a module or children leaves them out.

    In pieces: a stack may be deeper than Python's encoder goes."""
    waiting: list[Node | str] = [root]
    while waiting:
        piece = waiting.pop()
        if isinstance(piece, str):
            yield piece
            continue
        module = f', "module": {json.dumps(piece.module)}' if piece.module else ""
        yield f'{{"name": {json.dumps(piece.name)}, "kind": "{piece.kind}"{module}, "samples": {piece.value}'
        if not piece.children:
            yield "}"
            continue
        yield ', "children": ['
        waiting.append("]}")
        for i, child in enumerate(reversed(piece.children)):
            if i:
                waiting.append(", ")
            waiting.append(child)


def walk(root: Node) -> Iterator[Placed]:
    """Every node with its place, parents before their children. No recursion: stacks may be deeper than Python's."""
    waiting = [Placed(root, 0, 0)]
    while waiting:
        placed = waiting.pop()
        yield placed
        start = placed.start
        below = []
        for child in placed.node.children:
            below.append(Placed(child, start, placed.depth + 1))
            start += child.value
        waiting.extend(reversed(below))


class _Labels:
    """Numbers for what is merged: the same name, module and kind is the same number."""

    def __init__(self) -> None:
        self.known: dict[Label, int] = {}

    def number(self, label: Label) -> int:
        return self.known.setdefault(label, len(self.known))

    def places(self) -> tuple[list[int], list[Label]]:
        """Of each number its place among siblings, and the labels in that order: cores by number, else by kind and name."""
        ordered = sorted(self.known, key=_place)
        places = [0] * len(ordered)
        for place, label in enumerate(ordered):
            places[self.known[label]] = place
        return places, ordered


def _place(label: Label) -> tuple[int, int, str, str]:
    kind, name, module = label
    return _ORDER[kind], int(name[5:]) if kind == "core" else 0, name, module


def _merged(tally: Tally, by: By, groups: dict[int, int]) -> list[tuple[int, int, int, int]]:
    """Rows (core, thread, stack, count) that will differ in the picture: one thread stands for all of its group."""
    if not len(tally.count):
        return []
    core = tally.core if by == "core" else np.zeros_like(tally.core)
    thread = np.zeros_like(tally.thread) if by == "none" else _representative(tally.thread, groups)
    order = np.lexsort((tally.stack, thread, core))
    core, thread, stack = core[order], thread[order], tally.stack[order]
    new = np.flatnonzero((np.diff(core) != 0) | (np.diff(thread) != 0) | (np.diff(stack) != 0)) + 1
    first = np.concatenate((np.zeros(1, dtype=np.int64), new))
    count = np.add.reduceat(tally.count[order], first)
    return list(zip(core[first].tolist(), thread[first].tolist(), stack[first].tolist(), count.tolist(), strict=True))


def _representative(thread: Ints, groups: dict[int, int]) -> Ints:
    """For each thread the smallest id of a thread with the same label."""
    if not groups:
        return thread
    smallest: dict[int, int] = {}
    for one in sorted(groups):
        smallest.setdefault(groups[one], one)
    ids = np.array(sorted(groups), dtype=np.int64)
    stands = np.array([smallest[groups[one]] for one in ids.tolist()], dtype=np.int64)
    at = np.minimum(np.searchsorted(ids, thread), len(ids) - 1)
    return np.where(ids[at] == thread, stands[at], thread)


def _groups(threads: Table, by: By, labels: _Labels) -> dict[int, int]:
    if by == "none":
        return {}
    if by == "thread":
        named = zip(threads.ints("id").tolist(), threads.texts("comm"), threads.ints("tid").tolist(), strict=True)
        return {one: labels.number(("thread", f"{comm or '[unknown]'} {tid}", "")) for one, comm, tid in named}
    if by == "cgroup":
        paths = zip(threads.ints("id").tolist(), threads.texts("cgroup"), strict=True)
        return {one: labels.number(("process", path or "[cgroup not known]", "")) for one, path in paths}
    names = zip(threads.ints("id").tolist(), threads.texts("process"), threads.texts("comm"), strict=True)
    return {one: labels.number(("process", process or comm or "[unknown]", "")) for one, process, comm in names}


def _frames(frames: Table, labels: _Labels) -> tuple[Ints, Ints]:
    """The ids of frames, sorted, and the number of the label of each."""
    columns = (frames.texts("name"), frames.texts("module"), frames.texts("space"), frames.ints("offset").tolist())
    numbers = np.array([labels.number(frame_label(*row)) for row in zip(*columns, strict=True)], dtype=np.int64)
    ids = frames.ints("id")
    order = np.argsort(ids, kind="stable")
    return ids[order], numbers[order]


def _stacks(
    stacks: Table, frames: tuple[Ints, Ints], places: Ints, unknown: int, in_user: int, inverted: bool
) -> dict[int, tuple[str, bytes]]:
    """Of every stack its class, and the places of its frames as a path."""
    lists = stacks.lists("frames")
    lengths = [len(one) for one in lists]
    wanted = np.fromiter(chain.from_iterable(lists), np.int64, sum(lengths))
    numbers = _looked_up(wanted[::-1] if inverted else wanted, *frames, unknown)
    raw = places[numbers].astype(">u4").tobytes()
    nothing, user = (int(places[label]).to_bytes(4, "big") for label in (unknown, in_user))
    found, at = {}, 0
    for one, kind, length in zip(stacks.ints("id").tolist(), stacks.texts("class"), lengths, strict=True):
        end = at + 4 * length
        path = raw[len(raw) - end : len(raw) - at] if inverted else raw[at:end]
        found[one] = (kind, path or (user if kind == "user" else nothing))  # with --kernel-only user space has no frames
        at = end
    return found


def _looked_up(wanted: Ints, ids: Ints, values: Ints, otherwise: int) -> Ints:
    if not len(ids):
        return np.full(len(wanted), otherwise, dtype=np.int64)
    at = np.minimum(np.searchsorted(ids, wanted), len(ids) - 1)
    return np.where(ids[at] == wanted, values[at], otherwise)


def frame_label(name: str, module: str, space: str, offset: int) -> Label:
    """What a frame is called and what it counts as; one without a name is called by its place."""
    if not name:
        # An address outside of every module is what unwinding without frame pointers makes up: one frame for all of them.
        place = module.rsplit("/", 1)[-1] + (f"+0x{offset:x}" if offset >= 0 else "")
        name = f"[unknown] ({place})" if module else "[unknown]"
    if space == "kernel":
        return "kernel", name, module
    if module == _JIT:
        return "python" if _PYTHON.search(name) else "jit", name, module
    return "user", name, module
