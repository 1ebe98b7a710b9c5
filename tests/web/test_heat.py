"""The cells of a heat map are the same in whatever stretches they are counted, and days of them take little memory."""

import tracemalloc
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.quantities import SECOND
from exhume.recording.summary import OFFSETS
from exhume.render.heat import Cells, seconds_of
from exhume.web import heat
from exhume.web.numbers import heat_map
from exhume.web.outline import Outline

BEGIN = 1_000 * SECOND


@given(st.integers(1, 90), st.integers(0, SECOND - 1), st.integers(1, 40), st.integers(1, 30), st.integers(0, 1 << 32))
def test_cells_are_the_same_however_they_are_counted(seconds: int, shift: int, most: int, piece: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    wanted = seconds_of(BEGIN + shift, BEGIN + shift + seconds * SECOND, 77 * SECOND + int(random.integers(0, SECOND)))
    parts, there = random.integers(0, 3, (wanted.number + 1, OFFSETS)), random.random(wanted.number + 1) < 0.5
    cells, one_by_one = Cells(wanted, most), Cells(wanted, most)
    for first in range(0, wanted.number + 1, piece):
        cells.add(first, parts[first : first + piece], there[first : first + piece])
    one_by_one.count(np.repeat(np.arange(parts.size), parts.reshape(-1)))
    late, width = wanted.late, cells.width
    flat = parts.reshape(-1)[late : late + wanted.number * OFFSETS].reshape(-1, OFFSETS)
    seen = np.repeat(there, OFFSETS)[late : late + wanted.number * OFFSETS].reshape(-1, OFFSETS).max(axis=1)
    for column in range(len(cells.counts)):
        rows = slice(column * width, (column + 1) * width)
        assert cells.counts[column].tolist() == one_by_one.counts[column].tolist() == flat[rows].sum(axis=0).tolist()
        assert cells.known[column] == seen[rows].any()


def test_a_heat_map_of_days_takes_little_memory() -> None:
    seconds = 5 * 86_400
    outline = Outline(BEGIN, seconds, 4, 10.0)
    builder = SimpleNamespace(outline=outline, begun=lambda: None, ready=1.0)
    view: Any = SimpleNamespace(builder=builder, store=SimpleNamespace(live=False))
    folder: Any = SimpleNamespace(window=(BEGIN, BEGIN + seconds * SECOND))
    cells = Cells(seconds_of(BEGIN, BEGIN + seconds * SECOND, 0))
    tracemalloc.start()
    try:
        heat._all_cores(view, folder, cells)
        heat_map(cells, 0, 1.0)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 30 << 20  # and not 400 MB
