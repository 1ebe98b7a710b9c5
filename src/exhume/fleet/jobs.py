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
_RESAMPLED: Final = 1000
# Failures times draws that are worked on at once.
_BLOCK: Final = 1 << 20
MOST_CHANCE: Final = 0.9
"""Of being near an event at any moment; beyond it nothing can be told by it."""
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
    untold: int
    """Failures on nodes where nearly every moment is near an event: when they failed says nothing."""


def explain(jobs: Jobs) -> Explained:
    count, failed = len(jobs.failed), int(jobs.failed.sum())
    # Jobs that failed are weighed one by one; of those that went well only how many were near an event matters.
    near, chance, hours = jobs.near[jobs.failed], jobs.chance[jobs.failed], jobs.gpu_hours[jobs.failed]
    seen, expected = jobs.near[~jobs.failed].sum(axis=0), jobs.chance[~jobs.failed].sum(axis=0)
    measured = (seen >= _ENOUGH) & (expected > 0)
    excess = _excess(near, chance * _factors(seen, expected, measured))
    killed, lost = float(excess.sum()), float((excess * hours).sum())
    draws = np.random.default_rng(_SEED)
    samples = np.zeros((_RESAMPLED, 3))
    block = max(1, _BLOCK // max(1, failed))
    for first in range(0, _RESAMPLED if failed else 0, block):
        # Weights of jobs are drawn (Rubin, 1981, "The Bayesian bootstrap"): unlike drawing whole jobs again, that leaves the
        # interval of a small number of failures where it should be. What the chance is measured by varies likewise.
        rows = min(block, _RESAMPLED - first)
        weights = draws.standard_exponential((rows, failed))
        weights *= count / (weights.sum(axis=1) + draws.standard_gamma(count - failed, rows))[:, None]
        factors = _factors(draws.standard_gamma(np.maximum(seen, 1), (rows, len(KINDS))), expected, measured)
        found = weights * _excess(near, chance * factors[:, None, :])
        samples[first : first + rows] = np.stack([found.sum(axis=1), found @ hours, weights.sum(axis=1)], axis=1)
    samples[:, :2] = np.maximum(samples[:, :2], 0.0)
    any_near: Bools = np.asarray(jobs.near.any(axis=1))
    close = int((jobs.failed & any_near).sum())
    return Explained(
        count,
        failed,
        close,
        min(float(close), max(0.0, close - killed)),
        _estimate(max(0.0, killed), samples[:, 0]),
        _estimate(max(0.0, lost), samples[:, 1]),
        1 - failed / count if count else 1.0,
        _estimate(float(_after(count, failed, max(0.0, killed))), _after(count, samples[:, 2], samples[:, 0])),
        (int((~jobs.sick).sum()), int((~jobs.sick & ~jobs.failed).sum())),
        (int(jobs.sick.sum()), int((jobs.sick & ~jobs.failed).sum())),
        _errors(jobs, any_near),
        jobs.left_out,
        int((chance.min(axis=1, initial=1.0) > MOST_CHANCE).sum()),
    )


def _excess(near: Bools, chance: Floats) -> Floats:
    """For each failure, how much of it is put down to an event: on average 1 for what died of one, and 0 for what did not.

    A failure that did not die of it is near an event as often as chance has it, c, and one that did is always; so near minus
    c, over 1 - c, has these averages. What is near the rarer kind is not asked for the other one; that those which are not
    stand for all is what the weight is for.
    """
    found, left, weight = np.zeros(chance.shape[:-1]), np.ones(chance.shape[:-1], dtype=np.bool_), np.ones(chance.shape[:-1])
    for kind in range(chance.shape[-1]):
        told = left & (chance[..., kind] <= MOST_CHANCE)
        rest = np.where(told, 1.0 - np.minimum(chance[..., kind], MOST_CHANCE), 1.0)
        found += np.where(told, weight * (near[..., kind] - chance[..., kind]) / rest, 0.0)
        left = left & ~(told & near[..., kind])
        weight = weight / rest
    return found


def _factors(seen: Floats | NDArray[np.int64], expected: Floats, measured: Bools) -> Floats:
    """Events come in bursts, so that fewer moments are near one than if they came one by one: measured on what went well."""
    return np.where(measured, seen / np.where(expected > 0, expected, 1.0), 1.0)


def _after(count: int, failed: Floats | float, killed: Floats | float) -> Floats:
    """The rate of success of those that starvation did not kill: what it killed would have failed by itself as often."""
    others = np.maximum(count - np.asarray(killed, dtype=np.float64), 1e-9)
    return np.minimum(1.0, (count - np.asarray(failed, dtype=np.float64)) / others) if count else np.ones_like(others)


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
        "untold": told.untold,
    }
