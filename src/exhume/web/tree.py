"""A flame graph's tree as columns, of one time or of two at once.

Two times become one tree by counting both in one number: the lower half counts the one, the upper half the other. So frames
that only one of them has are there as well, and every branch has both counts, for the work of one tree.
"""

from typing import NamedTuple, cast

import numpy as np

from exhume.recording.recording import Ints, Recording
from exhume.recording.tally import Tally
from exhume.render.flame import By, plant

LEAST = 1 / 20_000
"""Branches with a smaller share of the samples of both times are left out: narrower than any pixel."""
_HALF = 31
_MASK = (1 << _HALF) - 1


class Columns(NamedTuple):
    """Branches depth first, parents before their children; the root is not among them."""

    labels: list[tuple[str, str, str]]
    """Kind, name and module."""
    depth: Ints
    label: Ints
    value: Ints
    base: Ints
    total: int
    base_total: int
    idle: int
    left_out: int


def columns(tally: Tally, dictionaries: Recording, by: str, idle: bool, reverse: bool) -> Columns:
    """Of a tally whose counts hold two: see `together`."""
    if by == "cgroup":
        dictionaries, by = _by_cgroup(dictionaries), "process"
    tree = plant(tally, dictionaries, cast(By, by), "frame" if idle else "none", reverse)
    labels, depth, label, counts = tree._labels, tree._depth, tree._label, tree._value
    value, base = counts & _MASK, counts >> _HALF
    total, base_total = tree.total & _MASK, tree.total >> _HALF
    keep = (value >= max(1, LEAST * total)) | (base >= max(1, LEAST * base_total))
    resting = np.array([kind == "idle" for kind, _, _ in labels], dtype=np.bool_)
    asleep = int(value[resting[label]].sum()) if len(label) else 0
    named = cast("list[tuple[str, str, str]]", labels)
    left_out = int(np.count_nonzero(~keep))
    return Columns(named, depth[keep], label[keep], value[keep], base[keep], total, base_total, asleep, left_out)


def together(now: tuple[Tally, Recording], then: tuple[Tally, Recording] | None) -> tuple[Tally, Recording]:
    """One tally of two times, each row with the count of one of them, and one set of dictionaries."""
    tally, dictionaries = now
    if then is None:
        return tally, dictionaries
    after = {name: _after(dictionaries, name) for name in ("threads", "stacks", "frames")}
    both = Recording(dictionaries.node)
    for name in after:
        both[name].extend(dictionaries[name])
    _append(both, then[1], after)
    other = then[0]._replace(
        thread=then[0].thread + after["threads"], stack=then[0].stack + after["stacks"], count=then[0].count << _HALF
    )
    return Tally(*(np.concatenate(pair) for pair in zip(tally, other, strict=True))), both


def _after(dictionaries: Recording, table: str) -> int:
    ids = dictionaries[table].ints("id")
    return int(ids.max()) + 1 if len(ids) else 0


def _append(into: Recording, other: Recording, after: dict[str, int]) -> None:
    """The dictionaries of another time, their ids beyond those that are there."""
    for name in after:
        table = other[name]
        found = {column.name: table.column(column.name) for column in table.schema.columns}
        moved: dict[str, object] = {key: column for key, column in found.items() if isinstance(column, list)}
        moved |= {key: table.ints(key) for key in found if key not in moved}
        moved["id"] = table.ints("id") + after[name]
        if name == "stacks":
            moved["frames"] = [np.asarray(frames, dtype=np.int64) + after["frames"] for frames in table.lists("frames")]
        into[name].add_columns(moved)  # type: ignore[arg-type]


def _by_cgroup(dictionaries: Recording) -> Recording:
    """The same, each process called by its cgroup."""
    renamed = Recording(dictionaries.node)
    for name in ("stacks", "frames"):
        renamed.tables[name] = dictionaries.tables[name]
    table = dictionaries["threads"]
    texts = {column.name: table.texts(column.name) for column in table.schema.columns if column.kind == "text"}
    numbers = {column.name: table.ints(column.name) for column in table.schema.columns if column.kind == "int"}
    texts["process"] = [path or "[cgroup not known]" for path in texts["cgroup"]]
    renamed["threads"].add_columns({**texts, **numbers})
    return renamed
