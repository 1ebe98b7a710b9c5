"""The minutes of made nodes, a block of nodes at a time: what a recorder would have summarised, sparse enough to pack well."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from exhume.lab.fleet_facts import DAY_MINUTES, Made
from exhume.lab.fleet_summary import LIVE, STARVING

if TYPE_CHECKING:
    import pyarrow as pa

Ints = NDArray[np.int32]

BLOCK = 100
"""Nodes of a file."""
BEGIN_S = 1_740_787_200  # 2025-03-01T00:00:00Z
_MICRO = 1_000_000
# Of a hundred nodes, those whose minutes are missing for some hours.
_GAPS = 0.02
_BOOT_MINUTES = 3
# Chances a minute: a core full of kernel time, a late poll, a reset, on nodes that starve; and of the same, short, on others.
_SATURATED, _STALLED, _RESET = 0.2, 0.05, 1 / 400
_NOISE_SATURATED, _NOISE_STALLED, _NOISE_RESET = 0.002, 0.0005, 1 / (60 * DAY_MINUTES)


@dataclass(frozen=True, slots=True)
class Block:
    table: "pa.Table"
    resets: NDArray[np.int64]
    """Node's index and minute, a row each, sorted: what jobs die of."""


def blocks(made: Made) -> Iterator[Block]:
    for first in range(0, len(made.names), BLOCK):
        draws = np.random.default_rng([made.settings.seed, 7, first])
        yield _block(made, first, min(first + BLOCK, len(made.names)), draws)


def _uptime(made: Made, first: int, last: int) -> Ints:
    minutes = made.settings.days * DAY_MINUTES
    clock = np.arange(minutes, dtype=np.int32)
    up = np.empty((last - first, minutes), dtype=np.int32)
    for row, boots in enumerate(made.boots[first:last]):
        up[row] = clock - boots[0]
        for boot in boots[1:]:
            up[row, boot:] = clock[boot:] - boot
    return up


def _sparse(draws: np.random.Generator, where: NDArray[np.bool_], chance: float, low: int, high: int, step: int) -> Ints:
    """Zeros, and in some of the minutes where it may be a value of some step."""
    values = np.zeros(where.shape, dtype=np.int32)
    places = np.flatnonzero(where)
    chosen = places[draws.random(len(places), dtype=np.float32) < chance] if chance > 0.1 else _few(draws, places, chance)
    values.ravel()[chosen] = draws.integers(low // step, high // step + 1, len(chosen)).astype(np.int32) * step
    return values


def _few(draws: np.random.Generator, places: NDArray[np.int64], chance: float) -> NDArray[np.int64]:
    return (
        places[np.unique(draws.integers(0, max(1, len(places)), draws.poisson(chance * len(places))))]
        if len(places)
        else places
    )


def _block(made: Made, first: int, last: int, draws: np.random.Generator) -> Block:
    import pyarrow as pa

    count = last - first
    up = _uptime(made, first, last)
    minutes = up.shape[1]
    leak = made.leak_per_day[first:last].astype(np.float32)[:, None] / DAY_MINUTES
    # A few zombies come and go on every node; page cache lets go of them.
    dying = (up * leak).astype(np.int32) + (up >> 8) % 7
    live = np.repeat(draws.integers(LIVE - 10, LIVE + 11, (count, -(-minutes // 60)), dtype=np.int32), 60, axis=1)[:, :minutes]
    starving = dying >= STARVING
    late = starving | made.starved[first:last, None]
    any_minute = np.ones(up.shape, dtype=np.bool_)
    saturated = _sparse(draws, starving, _SATURATED, 1000, 9000, 500) + _sparse(
        draws, any_minute, _NOISE_SATURATED, 300, 900, 100
    )
    stall = _sparse(draws, late, _STALLED, 1000, 7000, 250) + _sparse(draws, any_minute, _NOISE_STALLED, 50, 150, 50)
    resets = _sparse(draws, late, _RESET, 1, 1, 1) + _sparse(draws, any_minute, _NOISE_RESET, 1, 1, 1)
    reclaimed = _sparse(draws, any_minute, 0.01, 2000, 64_000, 2000)
    throttled = _sparse(draws, any_minute, 0.02, 100, 4000, 100) + _sparse(draws, reclaimed > 0, 0.3, 1000, 8000, 500)
    restarts = np.broadcast_to(np.where(made.leak_per_day[first:last] > 0, 6, 0).astype(np.int32)[:, None], up.shape)
    there = (up >= _BOOT_MINUTES) & ~_gaps(draws, up.shape)
    clock = (BEGIN_S + 60 * np.arange(minutes, dtype=np.int64)) * _MICRO
    booted = clock[None, :] - up.astype(np.int64) * (60 * _MICRO)
    rows = np.flatnonzero(there)
    node = pa.DictionaryArray.from_arrays(pa.array((rows // minutes).astype(np.int32)), pa.array(made.names[first:last]))
    moment = pa.timestamp("us")
    table = pa.table(
        {
            "node": node,
            "time": pa.array(clock[rows % minutes], type=moment),
            "booted": pa.array(booted.ravel()[rows], type=moment),
            **{
                name: pa.array(values.ravel()[rows])
                for name, values in (
                    ("live", live),
                    ("dying", dying),
                    ("saturated_ms", saturated),
                    ("stalls", (stall + 499) // 500),
                    ("stall_ms", stall),
                    ("resets", resets),
                    ("restarts", restarts),
                    ("throttled_ms", throttled),
                    ("reclaimed", reclaimed.astype(np.int64)),
                )
            },
        }
    )
    who, when = np.nonzero((resets > 0) & there)
    return Block(table, np.stack([who + first, when], axis=1).astype(np.int64))


def _gaps(draws: np.random.Generator, shape: tuple[int, int]) -> NDArray[np.bool_]:
    gone = np.zeros(shape, dtype=np.bool_)
    for row in np.flatnonzero(draws.random(shape[0]) < _GAPS).tolist():
        begin = int(draws.integers(0, shape[1]))
        gone[row, begin : begin + int(draws.integers(30, 600))] = True
    return gone
