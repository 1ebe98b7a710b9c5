"""Writes a node's conditions and events, as `conditions` has them. What it may not do it says, and goes on."""

import time
from collections.abc import Callable, Iterable

from exhume.cluster import conditions
from exhume.cluster.client import STRATEGIC, Client
from exhume.cluster.conditions import HEARTBEAT_S, Condition, Seen
from exhume.cluster.document import Document, checked_name
from exhume.cluster.replies import Forbidden
from exhume.cluster.rights import AGENT
from exhume.errors import ExhumeError

# Events that could not be written yet; what is older is given up.
_MOST_EVENTS = 20


class Reporter:
    """Not for several threads. `now` is wall-clock time."""

    def __init__(self, client: Client, node: str, now: Callable[[], float] = time.time) -> None:
        self._client, self._node, self._now = client, checked_name(node), now
        self.conditions: tuple[Condition, ...] = ()
        self._written: tuple[Condition, ...] = ()
        self._written_s = 0.0
        self._events: list[Document] = []

    def report(self, found: Iterable[Seen]) -> list[str]:
        """One look at the node. Returns what could not be done, as sentences; it is tried again at the next look."""
        troubles: list[str] = []
        now_s = self._now()
        if not self.conditions:
            try:
                before = self._client.get(f"/api/v1/nodes/{self._node}")
            except Forbidden as error:
                troubles.append(_off(error))
                before = None
            except ExhumeError as error:
                return [str(error)]
            self.conditions = conditions.begin(now_s, before)
        after = conditions.step(self.conditions, found, now_s)
        changed = conditions.changed(self.conditions, after)
        self._events = [*self._events, *(conditions.event(one, self._node, now_s) for one in changed)][-_MOST_EVENTS:]
        self.conditions = after
        for attempt in (self._write_conditions, self._write_events):
            try:
                attempt(now_s)
            except Forbidden as error:
                troubles.append(_off(error))
            except ExhumeError as error:
                troubles.append(str(error))
        return troubles

    def close(self) -> None:
        self._client.close()

    def _write_conditions(self, now_s: float) -> None:
        told = [(one.name, one.bad) for one in self.conditions]
        if told == [(one.name, one.bad) for one in self._written] and 0 <= now_s - self._written_s < HEARTBEAT_S:
            return
        self._client.patch(f"/api/v1/nodes/{self._node}/status", conditions.patch(self.conditions, now_s), STRATEGIC)
        self._written, self._written_s = self.conditions, now_s

    def _write_events(self, _: float) -> None:
        while self._events:
            try:
                self._client.create("/api/v1/namespaces/default/events", self._events[0])
            except Forbidden:
                self._events.clear()
                raise
            self._events.pop(0)


def _off(error: Forbidden) -> str:
    without = next((one.without for one in AGENT if (one.verb, one.resource) == (error.verb, error.resource)), "")
    return f"{without}: {error}" if without else str(error)
