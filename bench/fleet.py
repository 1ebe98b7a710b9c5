"""exhume fleet cohorts: how often what was planted is found, how often something is claimed where nothing is, its cost."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from bench.measure import ENVIRONMENT, Row, cost
from exhume.lab.fleet_facts import Cause

FLEETS = 100
SMALLEST, LARGEST = 50, 5000
DAYS = 14
NODES = 10_000


@dataclass(frozen=True, slots=True)
class Tried:
    cause: Cause
    nodes: int
    on_top: bool
    """What was planted, or one of the two, is the first; of none: nothing is claimed."""
    whole: bool
    """All that was planted is found and nothing else is claimed."""


def _tried(seed: int, cause: Cause, neutral: bool) -> Tried:
    """Half of the fleets are judged with zombies counted, half by stalls alone, where young nodes look healthy. `neutral` takes
    away every name that says what a fact is."""
    from exhume.fleet.cohorts import cohorts
    from exhume.fleet.model import Fleet
    from exhume.lab.fleet_facts import Settings, make
    from exhume.lab.fleet_summary import as_fleet

    draws = np.random.default_rng(seed)
    nodes = round(float(np.exp(draws.uniform(np.log(SMALLEST), np.log(LARGEST)))))
    made = make(Settings(nodes, DAYS, seed, cause))
    fleet = as_fleet(made, by_zombies=bool(draws.integers(2)))
    names = {name: name for name in made.facts}
    if neutral:
        from dataclasses import replace

        names = {name: f"fact-{i}" for name, i in zip(names, draws.permutation(len(names)).tolist(), strict=True)}
        fleet = Fleet(
            "", tuple(replace(n, facts={names[k]: v for k, v in n.facts.items()}) for n in fleet.nodes), boots=fleet.boots
        )
    found = [{each.fact: (each.operator, each.value) for each in cohort.conditions} for cohort in cohorts(fleet).cohorts]
    planted = [{names[name]: ("is", value) for name, value in each.items()} for each in made.planted]
    on_top = found[0] in planted if found and planted else not found and not planted
    return Tried(cause, nodes, on_top, len(found) == len(planted) and all(each in found for each in planted))


def _all(causes: Sequence[Cause], neutral: bool = False, seed: int = 0) -> list[Tried]:
    work = [(seed + i, causes[i % len(causes)], neutral) for i in range(FLEETS)]
    # One thread of arithmetic a process, or they are in each other's way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), get_context("spawn")) as pool:
        return list(pool.map(_tried, *zip(*work, strict=True)))


def _missed(what: str, tried: Sequence[Tried], bar: float | None) -> Row:
    wrong = [each for each in tried if not each.on_top]
    for each in wrong:
        print(f"  {what}: {each.cause}, {each.nodes} nodes", file=sys.stderr)
    return Row(what, len(wrong), None, "", bar)


def fleet_truth() -> Iterator[Row]:
    """Of 100 made fleets of 50 to 5,000 nodes, those whose planted cause is not on top."""
    causes: tuple[Cause, ...] = ("agent", "kernel", "driver", "two")
    tried = _all(causes)
    yield _missed(f"of {FLEETS} fleets ({', '.join(causes)}): planted cause not on top", tried, 5)
    for cause in causes:
        some = [each for each in tried if each.cause == cause]
        yield Row(f"  {cause}: of {len(some)}, not exactly what was planted", sum(not each.whole for each in some), None, "")
    yield _missed("  the same without telling names: not on top", _all(causes, neutral=True), None)
    pairs = _all(("pair",))
    yield _missed(f"of {FLEETS} fleets with a cause of two facts together: not on top", pairs, None)
    large = [each for each in pairs if each.nodes >= 500]
    yield Row(f"  of the {len(large)} with 500 nodes or more", sum(not each.on_top for each in large), None, "")


def fleet_null() -> Iterator[Row]:
    """Of 100 made fleets whose sick nodes have nothing in common, those of which a cause is claimed."""
    yield _missed(f"of {FLEETS} fleets without a cause: one is claimed", _all(("none",), seed=10_000), 5)


def fleet_cohorts() -> Iterator[Row]:
    """exhume fleet cohorts over 10,000 nodes x 14 days of minutes (200 million rows)."""
    exhume = [sys.executable, "-m", "exhume"]
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        kept = os.environ.get("EXHUME_BENCH_FLEET")
        path = Path(kept or scratch) / "fleet"
        if not path.exists():
            made = cost([*exhume, "lab", "fleet", "--nodes", str(NODES), "--days", str(DAYS), "-o", str(path)])
            yield Row(f"exhume lab fleet, {NODES:,} nodes x {DAYS} days: wall", made.wall_s, None, "s")
            yield Row("  peak memory", made.peak_mb, None, "MB")
        yield Row("  on disk", sum(each.stat().st_size for each in path.rglob("*") if each.is_file()) / 1e6, None, "MB")
        command = [*exhume, "fleet", "cohorts", str(path), "--json"]
        told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, env=ENVIRONMENT, check=False).stdout)
        print(f"  {told['cohorts'][0]['because']}", file=sys.stderr)
        costs = [cost(command) for _ in range(3)]
        yield Row("exhume fleet cohorts: wall, median of 3", statistics.median(each.wall_s for each in costs), None, "s", 20.0)
        yield Row("  CPU", statistics.median(each.cpu_s for each in costs), None, "s")
        yield Row("  peak memory", max(each.peak_mb for each in costs), None, "MB", 2000.0)
