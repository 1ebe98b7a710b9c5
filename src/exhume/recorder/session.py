"""What `record --on` and the agent do beside recording: find incidents, pin their minutes, ask for verdicts.

The trigger decides when the last minute is judged (trigger.py), a child works out why (verdicts.py). Nothing here may stop the
recorder: a detector that fails is reported, and the recording goes on.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, Protocol

from exhume.recorder.policy import Policy
from exhume.recorder.trigger import WINDOW_NS, Incident, Trigger
from exhume.recorder.verdicts import R, Verdicts
from exhume.recording.recording import Node, Recording
from exhume.text import printable

# A message that was not heard for so long is news again.
OVER_S = 3600.0
# Messages within that time: one that comes in other words each time must not fill the journal.
MOST_MESSAGES = 200

Detect = Callable[[Recording, int], list[Incident]]
"""The incidents of a recording that did not end before the time given."""


class Store(Protocol):
    def pin(self, start: int, end: int, reason: str) -> None: ...


class Session(Generic[R]):
    """Shown each batch, in the recorder's thread."""

    def __init__(
        self,
        node: Node,
        store: Store,
        detect: Detect,
        verdicts: Verdicts[R],
        report: Callable[[str], None],
        policy: Policy,
        around_ns: int,
        on_incident: Callable[[Incident], None] = lambda _: None,
    ) -> None:
        """`report` is told what cannot be done, `on_incident` of each that is new."""
        self.around_ns = around_ns
        """How much is pinned before and after an incident."""
        self.incidents = 0
        """How many there were."""
        self.diagnoses = True
        """Whether verdicts are asked for."""
        self._store, self._detect, self._report, self._on_incident = store, detect, report, on_incident
        self._verdicts = verdicts
        self._trigger = Trigger(node, self._judge, policy)
        self._pins = Pins()
        self._since: int | None = None
        """What the kernel's log still had from before we began is not of the last minute: each start would tell of it anew."""

    def see(self, rows: Recording) -> None:
        """One batch of rows, which are in the store."""
        if self._since is None and rows.window[1]:
            self._since = rows.window[0]
        try:
            new, found = self._trigger.add(rows)
            self.incidents += len(new)
            for incident in new:
                self._on_incident(incident)
            if self.diagnoses:
                self._verdicts.ask(new, found)
        except Exception as error:
            self._report(f"could not judge ({type(error).__name__}: {printable(str(error))}); the recording goes on")

    def end(self) -> None:
        """Pin the end of what still goes on. The store is still open."""
        self._pin([])

    def finish(self) -> None:
        """A verdict that is being worked on is waited for, within reason."""
        self._verdicts.finish()

    def _judge(self, recording: Recording) -> list[Incident]:
        found = self._detect(recording, self._since or 0)
        self._pin(found)
        return found

    def _pin(self, found: list[Incident]) -> None:
        for pin in self._pins.look(found, self.around_ns):
            self._store.pin(*pin)


class Pin(NamedTuple):
    start: int
    end: int
    reason: str


class Pins:
    """Which minutes of an incident are pinned: those around its beginning, and those around its end when that has come.

    A finding that goes on all day is found at every look. To pin all of it would fill the disk with more of the same, and the
    incidents before it would go; meanwhile its latest minutes are kept by their age.
    """

    def __init__(self) -> None:
        self._going: dict[tuple[str, str], Incident] = {}
        """Those of the last look: each begins where it was seen first and ends where it was seen last."""

    def look(self, found: Iterable[Incident], around_ns: int) -> list[Pin]:
        """What to pin now that this was found; what was found before and is not now has ended."""
        pins: list[Pin] = []
        before, self._going = self._going, {}
        for one in found:
            key = one.kind, one.subject
            known = self._going.get(key) or before.get(key)
            if known is not None and one.start <= known.end + WINDOW_NS:
                until = known.start + around_ns
                if one.start <= until:
                    pins.append(Pin(one.start - around_ns, min(one.end, until) + around_ns, _reason(one)))
                one = one._replace(start=min(one.start, known.start), end=max(one.end, known.end))
            else:
                pins.append(Pin(one.start - around_ns, one.end + around_ns, _reason(one)))
            self._going[key] = one
        for key, one in before.items():
            now = self._going.get(key)
            if (now is None or now.start > one.end) and one.end > one.start + around_ns:
                pins.append(Pin(one.end - around_ns, one.end + around_ns, _reason(one)))
        return pins


def _reason(incident: Incident) -> str:
    return f"{incident.kind}: {incident.summary}"


class OncePerEpisode:
    """Reports a message once while it lasts, and again when it comes back after an hour. Called in several threads."""

    def __init__(self, report: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._report, self._clock = report, clock
        self._heard: dict[str, float] = {}
        """When each was heard last, the one that was not heard for longest first."""
        self._lock = threading.Lock()

    def __call__(self, message: str) -> None:
        with self._lock:
            now = self._clock()
            while self._heard and now - next(iter(self._heard.values())) >= OVER_S:
                del self._heard[next(iter(self._heard))]
            known = self._heard.pop(message, None) is not None
            if not known and len(self._heard) >= MOST_MESSAGES:
                return
            self._heard[message] = now
        if not known:
            self._report(message)
