"""What a Ray job says it died of, from its log: the error that ended it, and the nodes that it names.

Ray's own errors (ray/exceptions.py) come at the end of a traceback of the driver, `ray.exceptions.ActorDiedError: ...`; the
raylet tells of a dead worker in one line, with `Node ID: ...` and `Worker IP address: ...`; later lines of an error have `ip:`.
"""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from exhume.fleet.model import Job

# Those that a node that does not answer brings about, the ones that say most first.
RAY_ERRORS: Final = (
    "ObjectFetchTimedOutError",
    "NodeDiedError",
    "ActorDiedError",
    "ActorUnavailableError",
    "OwnerDiedError",
    "ObjectLostError",
    "ObjectReconstructionFailedError",
    "ReferenceCountingAssertionError",
    "WorkerCrashedError",
    "LocalRayletDiedError",
    "RayletDiedError",
    "OutOfMemoryError",
    "GetTimeoutError",
    "RayActorError",
    "RaySystemError",
    "RpcError",
)
LONGEST: Final = 400
# A job may log for weeks: what it died of is at the end.
_TAIL: Final = 1 << 20
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")
_KNOWN = re.compile(r"\b(?:ray\.exceptions\.)?(" + "|".join(RAY_ERRORS) + r")\b:?[ \t]*([^\r\n]*)")
# The line after a traceback's frames: a class, by its full name or not, and what it says.
_RAISED = re.compile(r"^((?:[A-Za-z_]\w{0,80}\.){0,8}[A-Z]\w{0,80})(?::[ \t]*([^\r\n]*))?[ \t]*$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
# A node's id is 28 bytes (src/ray/common/constants.h: kUniqueIDSize).
_NODE = re.compile(r"\b[Nn]ode(?: ID|_id|Id)?[:=]? ?([0-9a-f]{56})\b")
_ADDRESS = re.compile(r"(?:\bWorker IP address|^\s*ip|[(,] ?ip)\s?[:=] ?([0-9]{1,3}(?:\.[0-9]{1,3}){3})\b", re.MULTILINE)
_TIME = re.compile(r"^\[?(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d),(\d{3})\b", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Died:
    error: str
    """Class, colon, what it says; empty where the log has no error that ended it."""
    nodes: tuple[str, ...]
    """Ids of Ray nodes that it names, in order."""
    addresses: tuple[str, ...]


def died(log: str) -> Died:
    text = _COLOURS.sub("", log[-_TAIL:])
    return Died(_error(text), _distinct(_NODE, text), _distinct(_ADDRESS, text))


def from_log(job: str, log: str) -> list[Job]:
    """A row for each address that the log of a job names; its times are taken for UTC, as Ray writes the clock of the node.

    A log that ends without an error says nothing about the outcome.
    """
    found = died(log)
    times = [when for each in (_TIME.search(log), _last(_TIME, log)) if each and (when := _seconds(each)) is not None]
    first, last = (times[0], times[-1]) if times else (None, None)
    outcome = "failed" if found.error else ""
    return [Job(job, address, first, last, outcome, 0.0, found.error) for address in found.addresses]


def _error(text: str) -> str:
    """Of the last traceback the last error; one of Ray's own anywhere in it says more than what was made of it."""
    place = text.rfind(_TRACEBACK)
    if place < 0:
        # A message that was cut off at its beginning, as that of the job table is, has no such line any more.
        known = _last(_KNOWN, text)
        return _written(known[1], known[2]) if known else ""
    ending = text[place:]
    known = _last(_KNOWN, ending)
    if known:
        return _written(known[1], known[2])
    raised = _last(_RAISED, ending[len(_TRACEBACK) :])
    return _written(raised[1].rpartition(".")[2], raised[2] or "") if raised else ""


def _written(name: str, says: str) -> str:
    return f"{name}: {says.strip()}"[:LONGEST] if says.strip() else name


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007
        pass
    return found


def _distinct(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found[1] for found in pattern.finditer(text)))[:1000]


def _seconds(found: re.Match[str]) -> float | None:
    try:
        return datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp() + int(found[2]) / 1000
    except ValueError:
        return None
