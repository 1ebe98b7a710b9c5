"""Jobs on made nodes: most succeed, some fail by themselves, and some die of a reset on one of their nodes."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from exhume.lab.fleet_facts import DAY_MINUTES, Made
from exhume.lab.fleet_minutes import BEGIN_S

if TYPE_CHECKING:
    import pyarrow as pa

# Jobs that a node takes part in a day; what fails by itself, is stopped by somebody, dies of a reset under it.
_A_DAY, _FAILS, _STOPPED, _DIES = 1.5, 0.04, 0.02, 0.6
_SIZES, _SIZE_SHARES = (1, 2, 4, 8), (0.5, 0.25, 0.15, 0.1)
_GPUS = 8.0
_OF_STARVING = ("ObjectFetchTimedOutError", "ActorDiedError", "the node failed its health check")
_OF_ITSELF = ("CUDA out of memory", "ValueError: loss is nan", "FileNotFoundError", "ActorDiedError")


def jobs(made: Made, resets: NDArray[np.int64]) -> "pa.Table":
    """`resets` are rows of a node's index and a minute, in that order."""
    import pyarrow as pa

    draws = np.random.default_rng([made.settings.seed, 11])
    nodes, minutes = len(made.names), made.settings.days * DAY_MINUTES
    mean = sum(size * share for size, share in zip(_SIZES, _SIZE_SHARES, strict=True))
    count = max(1, int(nodes * made.settings.days * _A_DAY / mean))
    sizes = np.minimum(draws.choice(_SIZES, count, p=_SIZE_SHARES), nodes)
    began = draws.integers(0, minutes, count)
    ends = began + np.clip(draws.lognormal(5.3, 0.8, count), 10, 3 * DAY_MINUTES).astype(np.int64)
    job = np.repeat(np.arange(count), sizes)
    offset = np.arange(len(job)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    node = (np.repeat(draws.integers(0, nodes, count), sizes) + offset * 37) % nodes
    fate = draws.random(count)
    outcome = np.where(fate < _FAILS, "failed", np.where(fate < _FAILS + _STOPPED, "stopped", "succeeded")).astype(object)
    error = np.where(outcome == "failed", draws.choice(np.array(_OF_ITSELF, dtype=object), count), "")
    ends = np.where(outcome == "succeeded", ends, began + ((ends - began) * draws.uniform(0.05, 1, count)).astype(np.int64))
    killed = _killed(draws, resets, job, node, began, ends, minutes, count)
    died = killed < ends
    ends = np.where(died, killed + draws.integers(0, 3, count), ends)
    outcome = np.where(died, "failed", outcome)
    error = np.where(died, draws.choice(np.array(_OF_STARVING, dtype=object), count), error)
    moment = pa.timestamp("us")
    running = ends >= minutes
    at = (BEGIN_S + 60 * ends) * 1_000_000
    return pa.table(
        {
            "job": pa.array([f"train-{i:06d}" for i in job.tolist()]),
            "node": pa.array([made.names[i] for i in node.tolist()]),
            "started": pa.array(((BEGIN_S + 60 * began) * 1_000_000)[job], type=moment),
            "ended": pa.array(at[job], type=moment, mask=running[job]),
            "outcome": pa.array(outcome[job].tolist(), type=pa.string(), mask=running[job]),
            "gpus": pa.array(np.full(len(job), _GPUS)),
            "error": pa.array(error[job].tolist(), type=pa.string(), mask=((error == "") | running)[job]),
        }
    )


def _killed(
    draws: np.random.Generator,
    resets: NDArray[np.int64],
    job: NDArray[np.int64],
    node: NDArray[np.int64],
    began: NDArray[np.int64],
    ends: NDArray[np.int64],
    minutes: int,
    count: int,
) -> NDArray[np.int64]:
    """The minute at which a reset kills each job: of the first on each of its nodes, if it does not live through it."""
    never = np.iinfo(np.int64).max
    killed = np.full(count, never)
    if len(resets):
        keys = resets[:, 0] * minutes + resets[:, 1]
        place = np.searchsorted(keys, node * minutes + began[job])
        found = keys[np.minimum(place, len(keys) - 1)]
        hit = (place < len(keys)) & (found // minutes == node) & (found % minutes < ends[job])
        hit &= draws.random(len(job)) < _DIES
        np.minimum.at(killed, job[hit], found[hit] % minutes)
    return killed
