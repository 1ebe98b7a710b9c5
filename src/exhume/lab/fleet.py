"""A made fleet on disk, in the form that exhume fleet reads, and the truth about it in a file that it does not read."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from exhume.fleet.model import Fact
from exhume.lab.fleet_facts import Made, Settings, make
from exhume.lab.fleet_jobs import jobs
from exhume.lab.fleet_minutes import BLOCK, blocks

TRUTH = "truth.json"
_COUNTS = ("live", "saturated_ms", "stalls", "stall_ms", "resets", "restarts", "throttled_ms", "reclaimed")


def write(directory: Path, settings: Settings, progress: Callable[[float], None] = lambda _: None) -> Made:
    """Deterministic by the settings. The directory is made, and must be empty."""
    import pyarrow.parquet as pq

    made = make(settings)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "minutes").mkdir()
    pq.write_table(_inventory(made), directory / "nodes.parquet", compression="zstd")
    resets = []
    every = -(-settings.nodes // BLOCK)
    for number, block in enumerate(blocks(made)):
        pq.write_table(
            block.table,
            directory / "minutes" / f"{number:05d}.parquet",
            compression="zstd",
            use_dictionary=["node", "booted", *_COUNTS],
            # Times and zombies go up by nearly the same step: differences are a few bits, a dictionary would be all values.
            column_encoding={"time": "DELTA_BINARY_PACKED", "dying": "DELTA_BINARY_PACKED"},
            row_group_size=1 << 20,
        )
        resets.append(block.resets)
        progress((number + 1) / every)
    pq.write_table(jobs(made, np.concatenate(resets)), directory / "jobs.parquet", compression="zstd")
    (directory / TRUTH).write_text(json.dumps(truth(made), indent=1) + "\n")
    return made


def _inventory(made: Made) -> Any:
    import pyarrow as pa

    columns = {"node": pa.array(made.names)}
    for name, column in made.facts.items():
        columns[name] = pa.array(column.tolist())
    return pa.table(columns)


def truth(made: Made) -> dict[str, Any]:
    """What was planted, and which nodes do not fit it."""
    causes: list[dict[str, Fact]] = made.planted
    return {
        "schema": "exhume.fleet-truth/1",
        "cause": made.settings.cause,
        "nodes": made.settings.nodes,
        "days": made.settings.days,
        "seed": made.settings.seed,
        "causes": causes,
        "leaking": [made.names[i] for i in np.flatnonzero(made.leak_per_day > 0)],
        "starved": [made.names[i] for i in np.flatnonzero(made.starved)],
        **made.strays,
    }
