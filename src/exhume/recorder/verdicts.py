"""Verdicts while the recorder runs: the last minute, stack samples and all, is diagnosed by a child at low priority.

The recorder itself judges without samples, which only tells that something is wrong. Why is worked out from what it has
written, by a process of its own, so that nothing holds the recorder up: one at a time, some seconds apart, and for the same
incident once a minute. A verdict that names no cause, or that did not come, is tried again when there is more to see; one on
what goes on is renewed now and then.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Generic, NamedTuple, Protocol, TypeVar

from exhume.errors import UsageError
from exhume.host.children import Run
from exhume.host.quantities import SECOND, compact
from exhume.python import python
from exhume.recorder.policy import DEFAULT, Policy
from exhume.recorder.trigger import Incident
from exhume.text import from_json, printable


class Verdict(Protocol):
    @property
    def cause(self) -> str | None: ...
    @property
    def subject(self) -> str: ...


class Report(Protocol):
    """As much of a report as is needed here. The room of reports comes later: the reader is a parameter."""

    @property
    def health(self) -> str: ...
    @property
    def end(self) -> str: ...
    @property
    def verdict(self) -> Verdict: ...


R = TypeVar("R", bound=Report)

# By which an incident may be younger than the last row that was written, or seem to be by another reading of the clock.
LATE_S = 5.0
NICE = 10
_SEVERITIES = ("info", "warning", "critical")


class Case(NamedTuple):
    """One thing to diagnose: the worst of the incidents that were new."""

    incident: Incident
    attempt: int = 1
    renewed: bool = False
    """There was a verdict before, or there should have been, and it still goes on."""


class Agenda:
    """What is to be diagnosed next, and when. Times are seconds of any clock that only goes forward."""

    def __init__(self, policy: Policy = DEFAULT) -> None:
        self._policy = policy
        self._asked: dict[tuple[str, str], float] = {}
        self._told: dict[tuple[object, ...], float] = {}
        self._waiting: list[Incident] = []
        self._again: tuple[float, Case] | None = None
        self._free = 0.0
        self._taken = -policy.verdict_renew_s
        self._last: tuple[object, ...] = ()
        """What was told last."""

    def ask(self, incidents: Iterable[Incident], now: float) -> None:
        self._asked = {key: at for key, at in self._asked.items() if now - at < self._policy.verdict_same_s}
        for incident in incidents:
            key = incident.kind, incident.subject
            if key not in self._asked:
                self._asked[key] = now
                self._waiting.append(incident)

    def renew(self, going: Iterable[Incident], now: float) -> None:
        """What goes on, the worst of it, if nothing was diagnosed for long."""
        if self._waiting or self._again is not None or now - self._taken < self._policy.verdict_renew_s:
            return
        if going := list(going):
            self._again = now, Case(_worst(going), renewed=True)

    def due(self) -> float | None:
        """When there is something to do; None if there is nothing."""
        if self._waiting:
            return self._free
        return max(self._free, self._again[0]) if self._again is not None else None

    def take(self, now: float) -> Case | None:
        """What to do now. One diagnosis answers all that wait: it is of the whole node."""
        due = self.due()
        if due is None or due > now:
            return None
        self._free, self._taken = now + self._policy.verdict_apart_s, now
        if self._waiting:
            worst = _worst(self._waiting)
            self._waiting, self._again = [], None
            return Case(worst)
        assert self._again is not None
        (_, case), self._again = self._again, None
        return case

    def done(self, case: Case, report: Report, now: float) -> bool:
        """Whether to tell this verdict; one without a cause is worked on again."""
        verdict = report.verdict
        if verdict.cause is None:
            self.failed(case, now)
        if not _tells(report):
            return False
        self._told = {key: at for key, at in self._told.items() if now - at < self._policy.verdict_same_s}
        key = report.health, verdict.cause, verdict.subject
        if key in self._told or (case.renewed and key == self._last):
            return False
        self._told[key], self._last = now, key
        return True

    def failed(self, case: Case, now: float) -> None:
        """It said nothing: it is tried again, soon if it is new, else when it is renewed."""
        if case.attempt < self._policy.verdict_tries and not case.renewed:
            self._again = now + self._policy.verdict_retry_s, case._replace(attempt=case.attempt + 1)


def diagnose_command(directory: str, policy: Policy, config: str | None) -> list[str]:
    """What prints the report on the last minute of a recording. Readers that come once a minute are in it for sure; zombies by
    name may be older, and are looked for in what was recorded before."""
    command = python(
        "-m", "exhume", "diagnose", directory, f"--from=-{compact(round(policy.verdict_window_s) * SECOND)}", "--json"
    )
    return command + (["--config", config] if config else [])


def _worst(incidents: Iterable[Incident]) -> Incident:
    return max(incidents, key=lambda each: _SEVERITIES.index(each.severity))


def _ends_before(report: Report, incident: Incident) -> str | None:
    """When a report ends that is of a time before the incident: its minute is the last that could be written."""
    if not report.end or datetime.fromisoformat(report.end).timestamp() >= incident.real_ns / 1e9 - LATE_S:
        return None
    return report.end


def _tells(report: Report) -> bool:
    return report.health not in ("healthy", "unknown")


class Verdicts(Generic[R]):
    """A thread that waits for children and tells what they found. What it is given to call is called in that thread."""

    def __init__(
        self,
        command: Sequence[str],
        read: Callable[[object], R],
        tell: Callable[[Case, R], None],
        trouble: Callable[[str], None] = lambda _: None,
        given: Callable[[Case, R], None] = lambda *_: None,
        policy: Policy = DEFAULT,
    ) -> None:
        """`read` makes a report of the printed JSON. `tell` gets each verdict that is news, `given` all of them."""
        self._command, self._read = command, read
        self._tell, self._trouble, self._given = tell, trouble, given
        self._policy = policy
        self._agenda = Agenda(policy)
        self._child: Run | None = None
        self._ends = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="verdicts", daemon=True)
        self._thread.start()

    def ask(self, incidents: list[Incident], going: Sequence[Incident] = ()) -> None:
        """Returns at once. `going` are those that are not new: a verdict on them is renewed every ten minutes."""
        if incidents or going:
            with self._changed:
                self._agenda.ask(incidents, time.monotonic())
                self._agenda.renew(going, time.monotonic())
                self._changed.notify()

    def finish(self, patience_s: float = 10.0) -> None:
        """One that is under way may come to its end; no other is begun."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        self._thread.join(patience_s)
        if self._thread.is_alive() and (child := self._child) is not None:
            child.end()
            self._thread.join(patience_s)

    def _run(self) -> None:
        while (case := self._next()) is not None:
            report = self._diagnose(case)
            with self._changed:
                if report is None:
                    self._agenda.failed(case, time.monotonic())
                    continue
                worth = self._agenda.done(case, report, time.monotonic())
            if _tells(report):
                self._given(case, report)
            if worth:
                self._tell(case, report)

    def _next(self) -> Case | None:
        with self._changed:
            while not self._ends:
                if (case := self._agenda.take(time.monotonic())) is not None:
                    return case
                due = self._agenda.due()
                self._changed.wait(None if due is None else max(0.01, due - time.monotonic()))
        return None

    def _diagnose(self, case: Case) -> R | None:
        try:
            report = self._child_says()
            if (end := _ends_before(report, case.incident)) is not None:
                raise ValueError(f"the recording ends at {end}, before what was found now")
            return report
        except (OSError, ValueError) as error:
            if not self._ends:
                self._trouble(f"no verdict: {printable(str(error), 200)}")
            return None

    def _child_says(self) -> R:
        self._child = Run(self._command, self._policy.verdict_timeout_s, NICE)
        result = self._child.wait()
        try:
            return self._read(from_json(result.output))
        except (ValueError, UsageError):
            raise ValueError(result.complaint or f"exit code {result.code}") from None
