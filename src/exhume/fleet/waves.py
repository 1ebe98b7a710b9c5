"""A remedy rolled out in waves: a canary, then so many at a time, each proven before the next, stopped by the first that fails.

What was done is written down before and after each node, synced, so that whoever comes back after a crash goes on where it
stopped. How a node is reached is the caller's: any command, or a Job of the cluster.
"""

import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Literal

from exhume import budget
from exhume.errors import ExhumeError, Refused, UsageError
from exhume.text import from_json, printable

Outcome = Literal["fixed", "failed", "not proven"]
SCHEMA = "exhume.waves/1"
# A node's name goes to other programs as an argument: what begins with a dash would be an option to them (RFC 1123 names, with
# the colon of an address and the underscore that people use all the same).
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}")


@dataclass(frozen=True, slots=True)
class Result:
    node: str
    outcome: Outcome
    said: str
    """One sentence: what proved it, or what went wrong."""


@dataclass(frozen=True, slots=True)
class Plan:
    target: str
    how: str
    """What is run for each node, as it was typed."""
    waves: tuple[tuple[str, ...], ...]
    at_most: int

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(node for wave in self.waves for node in wave)


def plan(target: str, how: str, nodes: Iterable[str], canary: int = 1, at_most: int = 1) -> Plan:
    """The first ones are alone: nobody else is touched before they are proven. Then waves that double, up to `at_most`."""
    if canary < 1 or at_most < 1:
        raise UsageError("a canary and a wave have at least one node")
    left = list(dict.fromkeys(nodes))
    for node in left:
        if not _NAME.fullmatch(node):
            raise Refused(f"{printable(node)!r} is not a name that can safely be given to another program as an argument")
    waves = [tuple(left[:canary])] if left else []
    left, size = left[canary:], min(canary * 2, at_most)
    while left:
        waves.append(tuple(left[:size]))
        left, size = left[size:], min(size * 2, at_most)
    return Plan(target, how, tuple(waves), at_most)


class Journal:
    """JSON lines, one synced before and one after each node. The last line may be torn: its writer died."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        self.results: dict[str, Result] = {}
        self.begun: set[str] = set()
        """Of those it is not known how they ended."""
        self.plan: Plan | None = None
        for line in _lines(path):
            self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        if line.get("what") == "plan" and line.get("schema") == SCHEMA:
            self.plan = Plan(line["target"], line["how"], tuple(map(tuple, line["waves"])), line["at_most"])
        elif line.get("what") == "begins":
            self.begun.add(line["node"])
        elif line.get("what") == "ended":
            self.begun.discard(line["node"])
            self.results[line["node"]] = Result(line["node"], line["outcome"], line["said"])

    def begin(self, plan: Plan) -> None:
        self.plan = plan
        told = {"target": plan.target, "how": plan.how, "waves": plan.waves, "at_most": plan.at_most}
        self._add({"what": "plan", "schema": SCHEMA, **told})

    def begins(self, node: str) -> None:
        self.begun.add(node)
        self._add({"what": "begins", "node": node})

    def ended(self, result: Result) -> None:
        self.begun.discard(result.node)
        self.results[result.node] = result
        self._add({"what": "ended", "node": result.node, "outcome": result.outcome, "said": result.said})

    def _add(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=True).encode() + b"\n"
        try:
            with self._lock:
                fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                try:
                    size = os.fstat(fd).st_size
                    if size and os.pread(fd, 1, size - 1) != b"\n":  # a torn line is not to spoil this one
                        text = b"\n" + text
                    os.write(fd, text)
                    os.fsync(fd)
                finally:
                    os.close(fd)
        except OSError as error:
            raise ExhumeError(f"{self.path} cannot be written: {error.strerror}; nothing more is done without it") from None


def _lines(path: str) -> list[dict[str, Any]]:
    try:
        raw = budget.read(path, 64 << 20)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ExhumeError(f"{path} cannot be read: {error.strerror}") from None
    found = []
    for text in raw.split(b"\n"):
        try:
            line = from_json(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            found.append(line)
    return found


def carry_out(
    plan: Plan,
    journal: Journal,
    fix: Callable[[str], Result],
    told: Callable[[Result], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Whether every node of the plan is fixed. The first that is not ends it: those under way are waited for, no other begins.

    Nodes that the journal has as fixed are passed over; one that was begun and of which no end is known is done again, which a
    remedy that is applied twice can bear.
    """
    for wave in plan.waves:
        left = [node for node in wave if (known := journal.results.get(node)) is None or known.outcome != "fixed"]
        if not _wave(left, plan.at_most, journal, fix, told, stop):
            return False
    return True


def _wave(
    nodes: Sequence[str],
    at_most: int,
    journal: Journal,
    fix: Callable[[str], Result],
    told: Callable[[Result], None],
    stop: Callable[[], bool],
) -> bool:
    good, waiting = True, list(nodes)
    under_way: set[Future[Result]] = set()
    with ThreadPoolExecutor(max_workers=max(1, min(at_most, len(nodes) or 1)), thread_name_prefix="wave") as pool:
        while under_way or (waiting and good and not stop()):
            while waiting and good and not stop() and len(under_way) < at_most:
                node = waiting.pop(0)
                journal.begins(node)
                under_way.add(pool.submit(fix, node))
            done, under_way = wait(under_way, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                result = future.result()
                journal.ended(result)
                told(result)
                good = good and result.outcome == "fixed"
    return good and not waiting
