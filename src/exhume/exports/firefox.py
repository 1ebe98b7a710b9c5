"""Samples for profiler.firefox.com: every thread on one time axis, its stacks by what they were.

The processed profile format, version 48: docs-developer/CHANGELOG-formats.md and src/types/profile.ts of
github.com/firefox-devtools/profiler. The page brings older versions up to its own.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from exhume.exports.subject import Frame, Names, Subject, Thread
from exhume.recording.arrays import runs, unique_inverse
from exhume.recording.plain import Columns
from exhume.recording.recording import Ints, Recording

VERSION = 48
GECKO_VERSION = 30
MOST = 2_000_000
"""Samples that the page can be expected to open."""
CATEGORIES: tuple[tuple[str, str], ...] = (("Other", "grey"), ("Idle", "transparent"), ("User", "yellow"), ("Kernel", "orange"))
_IDLE, _USER, _KERNEL = 1, 2, 3
_LIBRARY = 1  # a resource's type (resourceTypes in src/profile-logic/data-structures)


def write(out: Callable[[bytes], object], samples: Columns, dictionaries: Recording, subject: Subject) -> int:
    """The number of samples, which come in order of time. Idle cores are threads of process 0, one a core."""
    names = Names(dictionaries)
    group, threads = _threads(samples["thread"], samples["core"], names)
    order = np.argsort(group, kind="stable")
    out(b'{"meta":' + _json(_meta(subject)) + b',"libs":[],"pages":[],"threads":[')
    total = 0
    mains: set[int] = set()
    for place, (first, last) in enumerate(runs(group[order]) if len(order) else ()):
        mine = order[first:last]
        total += len(mine)
        out(b"," if place else b"")
        who = threads[int(group[mine[0]])]
        # A process that changes its name is several threads here. The page shows one main thread a process, the last it is
        # given, and hides the others (computeGlobalTracks in src/profile-logic/tracks): only the first is called that.
        main = who.pid == who.tid and who.pid not in mains
        mains |= {who.pid} if main else set()
        for part in _thread(who, main, samples["time"][mine], samples["stack"][mine], names, subject):
            out(part)
    out(b"]}\n")
    return total


def _meta(subject: Subject) -> dict[str, Any]:
    return {
        "version": GECKO_VERSION,
        "preprocessedProfileVersion": VERSION,
        "interval": subject.period_ns / 1e6 or 1,
        "startTime": subject.start_real / 1e6,
        "processType": 0,
        "product": subject.node.hostname,
        "oscpu": f"Linux {subject.node.kernel}",
        "logicalCPUs": subject.node.cpus,
        "stackwalk": 1,
        "debug": False,
        "importedFrom": "exhume",
        "symbolicated": True,
        "symbolicationNotSupported": True,
        "sourceCodeIsNotOnSearchfox": True,
        "usesOnlyOneStackType": True,
        "categories": [{"name": name, "color": color, "subcategories": ["Other"]} for name, color in CATEGORIES],
        "markerSchema": [],
        "extensions": {"id": [], "name": [], "baseURL": [], "length": 0},
    }


def _threads(thread: Ints, core: Ints, names: Names) -> tuple[Ints, list[Thread]]:
    """Of each sample the number of its thread; threads are the same by pid, tid and name. Process 0 is told apart by core."""
    ids, at = unique_inverse(thread)
    known: dict[Thread, int] = {}
    number = np.empty(len(ids), dtype=np.int64)
    resting = np.zeros(len(ids), dtype=np.bool_)
    for place, one in enumerate(ids.tolist()):
        who = names.thread(one)._replace(cgroup="")
        resting[place] = who.pid == 0
        number[place] = known.setdefault(who, len(known))
    found = number[at]
    of_cores = np.flatnonzero(resting[at])
    for one in sorted(set(core[of_cores].tolist())):
        mine = of_cores[core[of_cores] == one]
        found[mine] = known.setdefault(Thread(0, one, f"swapper/{one}", "idle cores", ""), len(known))
    return found, list(known)


def _thread(who: Thread, main: bool, time: Ints, stack: Ints, names: Names, subject: Subject) -> Iterator[bytes]:
    tables = _Tables(names)
    stacks, at = unique_inverse(stack)
    place = np.array([tables.stack(one) for one in stacks.tolist()], dtype=np.int64)[at]
    head = {
        "processType": "default",
        "processName": who.process,
        "name": who.comm,
        "isMainThread": main,
        "pid": str(who.pid),
        "tid": who.tid,
        "processStartupTime": 0,
        "processShutdownTime": None,
        "registerTime": 0,
        "unregisterTime": None,
        "pausedRanges": [],
        "markers": {"data": [], "name": [], "startTime": [], "endTime": [], "phase": [], "category": [], "length": 0},
    }
    yield _json(head)[:-1] + b',"samples":{"weight":null,"weightType":"samples","length":' + str(len(time)).encode()
    yield b',"stack":[' + ",".join(map(str, place.tolist())).encode() + b"]"
    # Milliseconds to the microsecond: a JSON number has no more use for the page.
    micros = ((time - subject.start) // 1000).tolist()
    yield b',"time":[' + ",".join([f"{one / 1000:.3f}" for one in micros]).encode() + b"]}"
    for name, table in tables.written().items():
        yield b"," + _json(name) + b":" + _json(table)
    yield b"}"


class _Tables:
    """The tables of one thread: strings, functions, frames, and the tree of stacks."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._strings: dict[str, int] = {}
        self._resources: dict[str, int] = {}
        self._frames: dict[tuple[int, int], int] = {}
        self._functions: dict[int, int] = {}
        self._stacks: dict[tuple[int, int], int] = {}

    def stack(self, one: int) -> int:
        resting = self._names.kind(one) == "idle"
        above = -1
        for number in self._names.stack(one):
            category = _IDLE if resting else _KERNEL if self._names.frames[number].kernel else _USER
            self._functions.setdefault(number, len(self._functions))
            frame = self._frames.setdefault((number, category), len(self._frames))
            above = self._stacks.setdefault((above, frame), len(self._stacks))
        return above

    def _string(self, value: str) -> int:
        return self._strings.setdefault(value, len(self._strings))

    def _resource(self, frame: Frame) -> int:
        return self._resources.setdefault(frame.module, len(self._resources)) if frame.module else -1

    def written(self) -> dict[str, Any]:
        functions = [self._names.frames[number] for number in self._functions]
        categories = [category for _, category in self._frames]
        frames, stacks = len(categories), len(self._stacks)
        categories_of_stacks = [categories[frame] for _, frame in self._stacks]
        nothing: list[None] = [None] * frames
        return {
            "funcTable": {
                "name": [self._string(frame.name) for frame in functions],
                "isJS": [False] * len(functions),
                "relevantForJS": [False] * len(functions),
                "resource": [self._resource(frame) for frame in functions],
                "fileName": [None] * len(functions),
                "lineNumber": [None] * len(functions),
                "columnNumber": [None] * len(functions),
                "length": len(functions),
            },
            "frameTable": {
                "address": [-1] * frames,
                "inlineDepth": [0] * frames,
                "category": categories,
                "subcategory": [0] * frames,
                "func": [self._functions[number] for number, _ in self._frames],
                "nativeSymbol": nothing,
                "innerWindowID": [0] * frames,
                "implementation": nothing,
                "line": nothing,
                "column": nothing,
                "length": frames,
            },
            "stackTable": {
                "frame": [frame for _, frame in self._stacks],
                "prefix": [None if above < 0 else above for above, _ in self._stacks],
                "category": categories_of_stacks,
                "subcategory": [0] * stacks,
                "length": stacks,
            },
            "resourceTable": {
                "lib": [None] * len(self._resources),
                "name": [self._string(module) for module in self._resources],
                "host": [None] * len(self._resources),
                "type": [_LIBRARY] * len(self._resources),
                "length": len(self._resources),
            },
            "nativeSymbols": {"libIndex": [], "address": [], "name": [], "functionSize": [], "length": 0},
            "stringArray": list(self._strings),
        }


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
