"""A perf.data, imported: its samples in words, for comparing."""

import difflib
from contextlib import closing
from typing import Any, NamedTuple

from exhume.imports.incoming import Ids, Input, Wanted, memory
from exhume.imports.perf_data import PerfData
from tests.imports.perf_script import Aliases, Said

Row = dict[str, Any]


class Seen(NamedTuple):
    comm: str
    pid: int
    tid: int
    cpu: int
    time: int
    frames: list[str]
    """Innermost first, as perf has them; "" without a name."""
    modules: list[str]
    cgroup: str


def looked(source: str | bytes, wanted: Wanted | None = None) -> PerfData:
    """Opened, and not read."""
    with closing(_input(source)) as opened:
        return PerfData(opened, wanted or Wanted())


def _input(source: str | bytes) -> Input:
    return memory(source) if isinstance(source, bytes) else Input(source)


def seen(source: str | bytes, symbols: bool = False, event: str = "") -> tuple[list[Seen], PerfData]:
    """A file or what would be in one, read; in order of time."""
    frames: dict[int, Row] = {}
    stacks: dict[int, Row] = {}
    threads: dict[int, Row] = {}
    rows: list[Row] = []
    with closing(_input(source)) as file:
        opened = PerfData(file, Wanted(event, symbols))
        for batch in opened.batches(Ids()):
            frames |= {row["id"]: row for row in batch["frames"].rows()}
            stacks |= {row["id"]: row for row in batch["stacks"].rows()}
            threads |= {row["id"]: row for row in batch["threads"].rows()}
            rows += list(batch["samples"].rows())
    found = []
    for row in rows:
        thread = threads[row["thread"]]
        mine = [frames[number] for number in reversed(stacks[row["stack"]]["frames"])]
        names, modules = [frame["name"] for frame in mine], [frame["module"] for frame in mine]
        who = (thread["comm"], thread["pid"], thread["tid"])
        found.append(Seen(*who, row["core"], row["time"], names, modules, thread["cgroup"]))
    return sorted(found, key=lambda one: (one.time, one.cpu, one.tid)), opened


def agreement(theirs: list[Said], ours: list[Seen], comms: tuple[str, ...]) -> tuple[int, int]:
    """Frames of these threads that perf can name, and how many of them have the same name here.

    Left out is the padding before a function (`__pfx_`), which perf takes for the caller where a call that does not return is
    the last of its function.
    """
    aliases = Aliases()
    named = same = 0
    for said, one in zip(theirs, ours, strict=True):
        if said.comm not in comms:
            continue
        wanted = [(name, path) for name, path in said.frames if name and not name.startswith("__pfx_")]
        got = [name for name in one.frames if name]
        named += len(wanted)
        if [name for name, _ in wanted] == got:
            same += len(got)
            continue
        matcher = difflib.SequenceMatcher(None, [name for name, _ in wanted], got, autojunk=False)
        for kind, first, last, begin, end in matcher.get_opcodes():
            if kind == "equal":
                same += last - first
            elif kind == "replace":
                pairs = zip(wanted[first:last], got[begin:end], strict=False)
                same += sum(aliases.same(name, other, path) for (name, path), other in pairs)
    return named, same
