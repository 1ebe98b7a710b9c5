"""Which jobs the starvation killed: outcomes beside what happened on their nodes just before they ended.

A job that fails within minutes of a stall or a reset on one of its nodes may have died of it, or it is chance: on a node that
stalls every ten minutes most endings are near a stall. So for each job the chance is worked out from how often its own nodes
suffer, measured anew on the jobs that succeeded, and only what failures have beyond it is put down to the starvation.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SCHEMA: Final = "exhume.jobs/1"
# Rare ones first: a stall says little of a node that stalls every ten minutes, and a reset says much.
KINDS: Final = ("reset", "stall")
# Ray gives a worker up after 30 s without a heartbeat and tells after retries; TCP after more: what killed a job came before.
BEFORE_MIN: Final = 5
_RESAMPLED: Final = 2000
_SEED: Final = 1
# With fewer jobs that succeeded and were near a stall, the chance is taken as it was worked out.
_ENOUGH: Final = 20

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Jobs:
    """One row a job, whatever its number of nodes; those that run still, or that somebody stopped, are not in it."""

    names: tuple[str, ...]
    failed: Bools
    near: Bools
    """By kind of event (KINDS), whether there was one on one of its nodes in the minutes before its end."""
    chance: Floats
    """How likely that is for any moment, by how often its nodes have such events."""
    sick: Bools
    """Whether one of its nodes was sick meanwhile."""
    gpu_hours: Floats
    errors: tuple[str, ...]
    left_out: int = 0
    """Jobs on nodes of which nothing is known at that time."""


@dataclass(frozen=True, slots=True)
class Estimate:
    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Explained:
    jobs: int
    failed: int
    near: int
    """Failures with a stall or a reset just before."""
    by_chance: float
    """As many of them as chance alone would bring."""
    killed: Estimate
    gpu_hours: Estimate
    """Of work that was lost by them."""
    success: float
    success_after: Estimate
    """The rate of success if nothing starved."""
    healthy: tuple[int, int]
    """Jobs on healthy nodes, and how many of them succeeded."""
    sick: tuple[int, int]
    errors: tuple[tuple[str, int, int], ...]
    """What failures near a stall say they died of: text, how many near, how many of all."""
    left_out: int


def explain(jobs: Jobs) -> Explained:
    chance = np.minimum(1.0, jobs.chance * _factors(jobs))
    # What is near the rarer kind is not asked for the other one: each job counts once.
    first = np.cumprod(np.hstack((np.ones((len(jobs.failed), 1)), 1.0 - jobs.near[:, :-1])), axis=1)
    excess = jobs.failed * (first * (jobs.near - chance)).sum(axis=1)
    lost = excess * jobs.gpu_hours
    draws = np.random.default_rng(_SEED)
    count = len(jobs.failed)
    samples = np.zeros((_RESAMPLED, 3))
    for i in range(_RESAMPLED if count else 0):
        taken = draws.integers(0, count, count)
        samples[i] = excess[taken].sum(), lost[taken].sum(), jobs.failed[taken].sum()
    samples[:, :2] = np.maximum(samples[:, :2], 0.0)
    near: Bools = np.asarray(jobs.near.any(axis=1))
    failed = int(jobs.failed.sum())
    killed = max(0.0, float(excess.sum()))
    after = (count - samples[:, 2] + samples[:, 0]) / count if count else np.ones(1)
    success = 1 - failed / count if count else 1.0
    return Explained(
        count,
        failed,
        int((jobs.failed & near).sum()),
        float((jobs.failed & near).sum() - excess.sum()),
        _estimate(killed, samples[:, 0]),
        _estimate(max(0.0, float(lost.sum())), samples[:, 1]),
        success,
        _estimate(min(1.0, success + killed / count) if count else 1.0, np.minimum(1.0, after)),
        (int((~jobs.sick).sum()), int((~jobs.sick & ~jobs.failed).sum())),
        (int(jobs.sick.sum()), int((jobs.sick & ~jobs.failed).sum())),
        _errors(jobs, near),
        jobs.left_out,
    )


def _factors(jobs: Jobs) -> Floats:
    """Events come in bursts, so that fewer moments are near one than if they came one by one: measured on what went well."""
    well = ~jobs.failed
    seen, expected = jobs.near[well].sum(axis=0), jobs.chance[well].sum(axis=0)
    enough = (seen >= _ENOUGH) & (expected > 0)
    return np.where(enough, seen / np.where(expected > 0, expected, 1.0), 1.0)


def _estimate(value: float, samples: Floats) -> Estimate:
    low, high = np.quantile(samples, (0.025, 0.975)) if len(samples) else (value, value)
    return Estimate(value, float(min(low, value)), float(max(high, value)))


def _errors(jobs: Jobs, near: Bools) -> tuple[tuple[str, int, int], ...]:
    counted: dict[str, list[int]] = {}
    for text, failed, close in zip(jobs.errors, jobs.failed.tolist(), near.tolist(), strict=True):
        if failed:
            known = counted.setdefault(_kind(text), [0, 0])
            known[0] += close
            known[1] += 1
    found = [(text, close, every) for text, (close, every) in counted.items()]
    return tuple(sorted(found, key=lambda each: (-each[1], -each[2], each[0]))[:10])


def _kind(text: str) -> str:
    """An error's class, without what differs from job to job: up to the first colon, without numbers."""
    head = text.strip().partition(":")[0][:80]
    return "".join(c for c in head if not c.isdigit()).strip() or "(nothing said)"


def as_json(told: Explained) -> dict[str, Any]:
    def estimate(each: Estimate, digits: int) -> dict[str, float]:
        return {"value": round(each.value, digits), "low": round(each.low, digits), "high": round(each.high, digits)}

    return {
        "schema": SCHEMA,
        "jobs": told.jobs,
        "failed": told.failed,
        "near": told.near,
        "by_chance": round(told.by_chance, 1),
        "killed": estimate(told.killed, 1),
        "gpu_hours": estimate(told.gpu_hours, 1),
        "success": round(told.success, 4),
        "success_after": estimate(told.success_after, 4),
        "on_healthy_nodes": {"jobs": told.healthy[0], "succeeded": told.healthy[1]},
        "on_sick_nodes": {"jobs": told.sick[0], "succeeded": told.sick[1]},
        "errors": [{"error": text, "near": near, "all": every} for text, near, every in told.errors],
        "left_out": told.left_out,
    }
