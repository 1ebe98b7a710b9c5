"""Made-up rows for the store: a second of a small node, and recordings of any rows at all."""

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from exhume.recording.recording import Node, Recording, labels
from exhume.recording.schema import TABLES
from exhume.recording.source_state import SourceState
from exhume.recording.writer import Writer

SECOND = 1_000_000_000
BEGIN = 5_000 * SECOND
REAL = 1_790_000_000 * SECOND
NODE = Node("n", "boot-1", "6.18", "v1", 2)
ABOUT: dict[str, str | int | bool] = {"hz": 97, "event": "cpu-clock", "kernel_only": False}
STACKS = 12
SAMPLES = 40


def second(at: int, names: bool = False, node: Node = NODE) -> Recording:
    """What is new in a second; with the dictionaries, once."""
    rows = Recording(node)
    begin = BEGIN + at * SECOND
    if names:
        dictionaries(rows)
    spread = np.arange(SAMPLES)
    rows["samples"].add_columns(
        {"time": begin + spread * 20_000_000, "core": spread % 2, "thread": spread % 3, "stack": (spread * 7 + at) % STACKS}
    )
    for core in (0, 1):
        rows["cpu"].add(begin + 500_000_000, core, *(at * state for state in range(10)))
    rows.count(begin + 100_000_000, "ticks", at, labels(cpu=0))
    if at == 0:
        rows.count(begin + 1, "constant", 7)
        rows.add_source(begin, "cpu", SourceState("on"), 5)
    rows["anchors"].add(begin + 990_000_000, 1, 2, REAL + begin + 990_000_000, 100)
    if at % 2:
        rows["events"].add(begin, "line", "eth0", "info", f"event {at}", labels(at=at))
    return rows


def dictionaries(rows: Recording) -> None:
    rows["frames"].add_columns(
        {
            "id": np.arange(30),
            "name": [f"function_{i}" for i in range(30)],
            "module": ["[kernel]"] * 30,
            "space": ["kernel"] * 30,
            "offset": np.full(30, -1),
        }
    )
    classes = ("idle", "user", "system", "softirq", "irq")
    for i in range(STACKS):
        rows["stacks"].add(i, classes[i % 5], tuple(range(i, i + 5)))
    for i in range(3):
        rows["threads"].add(i, 100 + i, 100 + i, 0, f"comm{i}", "process", "/", "", "", "")


def writer(path: Path, **keywords: Any) -> Writer:
    return Writer(str(path), NODE, ABOUT, **{"budget_bytes": 1 << 30, "segment_ns": 10 * SECOND, **keywords})


def write(path: Path, seconds: int, **keywords: Any) -> Writer:
    """A closed recording of so many seconds."""
    store = writer(path, **keywords)
    for at in range(seconds):
        store.append(second(at, names=at == 0))
        store.keep_pace()
    store.close()
    return store


def rows_of(recording: Recording, table: str) -> list[tuple[Any, ...]]:
    """Rows as tuples, sorted, so that recordings can be compared whatever the order of their rows."""
    return sorted(
        tuple(tuple(value) if isinstance(value, list | np.ndarray) else value for value in row.values())
        for row in recording[table].rows()
    )


NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_LABELS = st.dictionaries(TEXTS, TEXTS, max_size=3).map(lambda pairs: tuple(sorted(pairs.items())))
_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "time": st.integers(0, (1 << 63) - 1),
    "int": NUMBERS,
    "text": TEXTS,
    "labels": _LABELS,
    "list": st.lists(NUMBERS, max_size=4).map(tuple),
}
_IDS = st.integers(0, 5)
_SPECIAL = {
    ("samples", "thread"): _IDS,
    ("samples", "stack"): _IDS,
    ("stacks", "frames"): st.lists(_IDS, max_size=4).map(tuple),
}


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Any rows in any table, as hostile as the types allow."""
    recording = Recording(NODE)
    for name, schema in TABLES.items():
        if name == "summary":
            continue
        kinds = [
            _IDS
            if column.name == "id" and name in ("stacks", "frames", "threads")
            else _SPECIAL.get((name, column.name), _KINDS[column.kind])
            for column in schema.columns
        ]
        for row in draw(st.lists(st.tuples(*kinds), max_size=3)):
            recording[name].add(*row)
    return recording
