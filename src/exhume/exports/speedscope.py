"""Samples as speedscope reads them: a profile for each core or process, in order of time where that was kept.

The format is that of www.speedscope.app/file-format-schema.json, its profiles of the type `sampled`.
"""

import json
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np

from exhume import __version__
from exhume.exports.subject import IDLE, Frame, Names, Subject
from exhume.recording.arrays import runs, unique_inverse
from exhume.recording.recording import Ints, Recording
from exhume.recording.tally import Tally

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
By = Literal["core", "process"]


def write(
    out: Callable[[bytes], object], rows: Tally, dictionaries: Recording, subject: Subject, by: By = "core", idle: bool = True
) -> int:
    """The number of samples. Rows come in order of time, with a count of 1 each, or counted.

    By core the process is the first frame of every stack. Idle samples are one frame, or left out.
    """
    names = Names(dictionaries)
    group, labels = _groups(rows, names, by)
    path, paths = _paths(rows, names, by, idle)
    order = np.flatnonzero(path >= 0)
    order = order[np.argsort(group[order], kind="stable")]
    total = 0
    out(b'{"$schema":' + _json(SCHEMA) + b',"exporter":' + _json(f"exhume {__version__}"))
    out(b',"name":' + _json(subject.title) + b',"activeProfileIndex":0,"profiles":[')
    for place, (first, last) in enumerate(_stretches(group[order])):
        mine = order[first:last]
        counts, which = _counted(rows.count[mine], path[mine])
        total += int(counts.sum())
        out(b"," if place else b"")
        for part in _profile(labels[int(group[mine[0]])], counts, which, paths, subject):
            out(part)
    out(b'],"shared":{"frames":[' + b",".join(_frame(frame) for frame in names.frames) + b"]}}\n")
    return total


def _groups(rows: Tally, names: Names, by: By) -> tuple[Ints, list[str]]:
    """Of each row the number of its profile, and the profiles' names."""
    if by == "core":
        cores, at = unique_inverse(rows.core)
        return at, [f"core {core}" for core in cores.tolist()]
    threads, at = unique_inverse(rows.thread)
    processes = [names.thread(one).process for one in threads.tolist()]
    labels = sorted(set(processes))
    number = {label: place for place, label in enumerate(labels)}
    return np.array([number[process] for process in processes], dtype=np.int64)[at], labels


def _paths(rows: Tally, names: Names, by: By, idle: bool) -> tuple[Ints, list[bytes]]:
    """Of each row the number of its stack as it is written, -1 if it is left out; and the stacks."""
    stacks, stack_at = unique_inverse(rows.stack)
    threads, thread_at = unique_inverse(rows.thread)
    pairs, at = unique_inverse(stack_at * max(1, len(threads)) + thread_at)
    known: dict[tuple[int, ...], int] = {}
    paths: list[bytes] = []
    found = np.empty(len(pairs), dtype=np.int64)
    shown: dict[int, tuple[int, ...]] = {}
    for place, pair in enumerate(pairs.tolist()):
        number, thread = divmod(pair, len(threads))
        stack = int(stacks[number])
        resting = names.kind(stack) == "idle"
        if resting and not idle:
            found[place] = -1
            continue
        frames = shown.get(stack)
        if frames is None:
            frames = shown[stack] = (names.number(IDLE),) if resting else names.stack(stack)
        if by == "core" and not resting:
            frames = (names.number(Frame(names.thread(int(threads[thread])).process, "", False)), *frames)
        at_path = known.get(frames)
        if at_path is None:
            at_path = known[frames] = len(paths)
            paths.append(b"[" + ",".join(map(str, frames)).encode() + b"]")
        found[place] = at_path
    return found[at], paths


def _counted(counts: Ints, path: Ints) -> tuple[Ints, Ints]:
    """Neighbours with the same stack become one."""
    first = np.concatenate((np.zeros(1, dtype=np.int64), np.flatnonzero(path[1:] != path[:-1]) + 1))
    return np.add.reduceat(counts, first), path[first]


def _profile(name: str, counts: Ints, path: Ints, paths: list[bytes], subject: Subject) -> Iterator[bytes]:
    period = subject.period_ns
    weights = counts * (period or 1)
    unit = "nanoseconds" if period else "none"
    head = {"type": "sampled", "name": name, "unit": unit, "startValue": 0, "endValue": int(weights.sum())}
    yield _json(head)[:-1] + b',"samples":['
    yield b",".join([paths[one] for one in path.tolist()])
    yield b'],"weights":[' + ",".join(map(str, weights.tolist())).encode() + b"]}"


def _frame(frame: Frame) -> bytes:
    return _json({"name": frame.name, "file": frame.module} if frame.module else {"name": frame.name})


def _stretches(group: Ints) -> list[tuple[int, int]]:
    return list(runs(group)) if len(group) else []


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
