"""Profiles out: incidents, and on request all the time, from the recording to a receiver.

The recorder's thread only says what happened and how late it is. One thread waits for children that make profiles, another
sends what waits in the spool, so that a receiver that hangs holds up neither. What is sent is sent at least once: a profile is
removed when the receiver said yes, and a crash in between sends it again, under the same Idempotency-Key.
"""

import json
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from exhume.agent.gathering import Gathered
from exhume.agent.privileges import writable
from exhume.agent.push_build import Made, Order
from exhume.agent.push_send import Outcome, Sender, identity, kind_of, request
from exhume.agent.push_windows import Window, Windows
from exhume.agent.settings import Push, Settings
from exhume.agent.spool import Spool
from exhume.errors import ExhumeError
from exhume.host.children import Run
from exhume.host.http.retry import LONGEST_RETRY_AFTER_S, backoff_s
from exhume.host.quantities import SECOND
from exhume.python import python
from exhume.text import from_json, printable

NAMES = {"incident": "exhume.incident", "continuous": "exhume"}
NICE = 19
TIMEOUT_S = 120.0
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 300.0
TOKEN_EVERY_S = 5.0
"""While a receiver does not like the token, whether there is another is looked at so often."""
# Orders that may wait for a child; more means that the node has no time for them.
MOST_ORDERS = 4


def _wait_s(attempt: int, after_s: float | None = None) -> float:
    return backoff_s(attempt, after_s, first_s=FIRST_WAIT_S, longest_s=LONGEST_WAIT_S, longest_after_s=LONGEST_RETRY_AFTER_S)


class Pusher:
    """`look` and `incident` are called in the recorder's thread and return at once."""

    def __init__(
        self,
        settings: Settings,
        boot: str,
        gathered: Gathered,
        say: Callable[[str], None],
        sender: Sender | None = None,
    ) -> None:
        """`boot` is the boot id: the recording's clock begins anew with each."""
        self.push: Push = settings.push
        """May change at any time."""
        self._recording, self._host = settings.dir, settings.host
        self._gathered, self._say = gathered, say
        self._spool = Spool(writable(settings.dir)[1], settings.push.spool_mib << 20)
        self._windows = Windows()
        self._now = 0
        self._boot = boot
        self._unsaved = False
        """An incident waits that the spool has no note of."""
        self._orders: queue.Queue[Window | str | None] = queue.Queue(MOST_ORDERS)
        """Windows to make profiles of; texts are notes to keep."""
        self._sender = sender or Sender()
        self._child: Run | None = None
        self._threads: list[threading.Thread] = []
        self._ends = threading.Event()
        self._more = threading.Event()
        self._no_longer = threading.Event()
        """Whoever waits before another attempt need not."""
        self._told: set[str] = set()
        self._turn = 0
        self._over: set[str] = set()
        """Profiles that are done with and could not be removed: they are not sent again."""
        self._looked = False
        """Whether an agent before this one left profiles was looked at, or does not matter."""

    # In the recorder's thread

    def incident(self, start: int) -> None:
        if self.push.url and self.push.incidents:
            self._windows.incident(start, self._now)
            self._unsaved = True

    def change(self, push: Push) -> None:
        self.push = push
        self._spool.budget_bytes = push.spool_mib << 20
        self._more.set()
        self._no_longer.set()

    def look(self, now: int, may_build: bool = True) -> None:
        """`now`: up to when there is a recording. Without `may_build` the agent has no time to make profiles."""
        self._now = now = max(now, self._now)
        if not self.push.url and not self._looked and self._left():
            self._started()
        self._looked = True
        if not self.push.url or not self._started():
            return
        for window in self._windows.due(now, self.push.every_s * SECOND):
            if may_build:
                self._order(window)
            else:
                self._once("no profiles are made while the agent has to save time")
        if self._unsaved and (waits := self._windows.pending) is not None:
            self._unsaved = False
            self._order(json.dumps({"boot": self._boot, "begin": waits[0], "due": waits[1]}))

    def _order(self, wanted: Window | str) -> None:
        try:
            self._orders.put_nowait(wanted)
        except queue.Full:
            self._once("profiles cannot be made as fast as they are wanted; some are left out")

    def close(self, patience_s: float = 5.0) -> None:
        """What was not sent stays in the spool."""
        self._ends.set()
        self._more.set()
        self._no_longer.set()
        with suppress(queue.Full):
            self._orders.put_nowait(None)
        if (child := self._child) is not None:
            child.end()
        self._sender.close()
        for thread in self._threads:
            thread.join(patience_s)

    def _left(self) -> bool:
        try:
            return bool(self._spool.waiting() or self._spool.noted())
        except OSError:
            return False

    def _started(self) -> bool:
        if not self._threads and not self._ends.is_set():
            try:
                self._spool.prepare()
            except ExhumeError as error:
                self._once(str(error))
                return False
            if self.push.url:
                self._take_up(self._spool.noted())
            for name, target in (("profiles", self._make_all), ("push", self._send_all)):
                self._threads.append(threading.Thread(target=target, name=name, daemon=True))
                self._threads[-1].start()
        return bool(self._threads)

    def _take_up(self, note: str) -> None:
        """An incident whose profile was not made when the last agent ended: its recording is pinned and still there."""
        with suppress(ValueError, KeyError, TypeError):
            noted = from_json(note)
            if noted["boot"] == self._boot:
                self._windows.incident_again(int(noted["begin"]), int(noted["due"]))

    # In the thread that makes profiles

    def _make_all(self) -> None:
        while not self._ends.is_set() and (wanted := self._orders.get()) is not None:
            if not self.push.url:
                continue
            try:
                if isinstance(wanted, str):
                    self._spool.note(wanted)
                    continue
                self._make(wanted)
                if wanted.what == "incident":
                    self._spool.note("")
            except (OSError, ValueError, TypeError) as error:
                if not self._ends.is_set():
                    self._once(f"no profile: {printable(str(error), 300)}")
            try:
                self._make_room()
            except OSError as error:
                self._once(f"profiles that wait cannot be dropped: {error.strerror or error}")
            self._more.set()

    def _make_room(self) -> None:
        if dropped := self._spool.trim():
            self._count("dropped", dropped)
            self._once("the oldest profiles that waited to be pushed were dropped: agent.push.spool_mib is full")
        self._gathered.set("exhume_profiles_waiting", float(len(self._spool.waiting())))

    def _make(self, window: Window) -> Made:
        push = self.push
        labels = tuple((key, value) for key, _, value in (label.partition("=") for label in push.labels))
        asked = Order(
            self._recording,
            self._spool.path,
            self._spool.budget_bytes,
            kind_of(push),
            NAMES[window.what],
            window.start,
            window.end,
            self._host,
            push.namespaces,
            labels,
        )
        self._child = Run(python("-m", "exhume.agent.push_build", asked.text()), TIMEOUT_S, NICE)
        result = self._child.wait()
        if result.code:
            raise ValueError(result.complaint or f"it ended with {result.code}")
        made: dict[str, Any] = from_json(result.output)
        return Made(**made)

    # In the thread that sends them

    def _send_all(self) -> None:
        attempt = 0
        while not self._ends.is_set():
            try:
                waiting = self._spool.waiting()
            except OSError as error:
                self._once(f"profiles wait to be pushed: {error.strerror or error}")
                self._wait(_wait_s(attempt), None)
                attempt += 1
                continue
            self._over &= {*waiting}
            names = [name for name in waiting if name not in self._over]
            if not self.push.url:
                self._drop(names)
                names = []
            else:
                self._gathered.set("exhume_profiles_waiting", float(len(names)))
            if not names:
                self._more.wait()
                self._more.clear()
                continue
            name = names[self._turn % len(names)]
            used = identity(self.push.token_file)
            outcome = self._send(name)
            if outcome is None or outcome.state != "again":
                attempt = 0
                continue
            if outcome.answered and outcome.after_s is None:
                self._turn += 1  # it may be this one that the receiver stumbles over: another has its turn
            self._once(f"profiles wait to be pushed: {outcome.detail}")
            self._wait(_wait_s(attempt, outcome.after_s), used if outcome.untrusted else None)
            attempt += 1

    def _drop(self, names: list[str]) -> None:
        """They are pushed nowhere: nobody would look at them again, and none of them waits."""
        for name in names:
            self._remove(name)
        with suppress(OSError):
            self._spool.note("")
        self._gathered.values["exhume_profiles_waiting"] = {}
        if names:
            self._count("dropped", len(names))
            self._once("profiles that waited to be pushed were dropped: agent.push.url is not set")

    def _wait(self, seconds: float, used: tuple[int, ...] | None) -> None:
        """Before another attempt; not while the settings change, nor once the token is not that which was `used`."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and (used is None or identity(self.push.token_file) == used):
            if self._no_longer.wait(left if used is None else min(left, TOKEN_EVERY_S)):
                break
        if not self._ends.is_set():
            self._no_longer.clear()

    def _send(self, name: str) -> Outcome | None:
        """None: there was nothing to send."""
        push = self.push
        try:
            parcel = self._spool.take(name)
        except FileNotFoundError:  # dropped meanwhile, to make room, and counted then
            return None
        except OSError as error:
            self._turn += 1
            return Outcome("again", f"{name} cannot be read: {error.strerror or error}")
        if parcel is None or parcel.kind != kind_of(push):
            self._remove(name)
            self._count("dropped", 1)
            self._once("a profile that waited was not whole, or made for another kind of receiver, and was dropped")
            return None
        outcome = self._sender.send(request(push, parcel, name.removesuffix(".push")), push.token_file, push.token_over_http)
        if outcome.state == "again":
            return outcome
        self._remove(name)
        self._count(outcome.state, 1)
        if outcome.state == "failed":
            self._once(f"a profile was refused and is given up: {outcome.detail}")
        else:
            self._told.clear()  # what was wrong is over, and worth a word if it comes again
        return outcome

    def _remove(self, name: str) -> None:
        try:
            self._spool.remove(name)
        except OSError as error:
            self._over.add(name)
            self._once(f"profiles that are done with stay in {printable(self._spool.path)}: {error.strerror or error}")

    def _count(self, outcome: str, many: int) -> None:
        self._gathered.values["exhume_profiles_pushed_total"][outcome,] += many

    def _once(self, trouble: str) -> None:
        if trouble not in self._told and len(self._told) < 100:
            self._told.add(trouble)
            self._say(trouble)
