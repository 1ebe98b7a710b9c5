"""Carry out a plan, go on with one that was interrupted, or bring back what was: journalled, in order, from any point.

Whatever happened to a former attempt (an error, kill -9, a power cut), the journal says which step may have been under way,
and every kind of step can tell by looking whether it was. So both `resume` and `undo` end in a clean state.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from exhume.errors import EXIT_CRITICAL, EXIT_HEALTHY, ExhumeError, Refused, UsageError
from exhume.remedy import journal, plan_model
from exhume.remedy.application import Application, application
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Plan, Step
from exhume.remedy.protected_plan import refuse_protected, why_kept
from exhume.remedy.steps import kind_of, reversible
from exhume.remedy.steps.kind import ON_DISK, RELOAD, State
from exhume.remedy.steps.units import DOWN
from exhume.text import printable

What = Literal["begins", "done", "skipped", "failed", "undone", "kept"]

NOT_CONFIRMED = "it cannot be undone, and that was not confirmed"
ALREADY = "it is so already"
AGAIN = "it had been started again before systemd had read what was changed, and was stopped again"


@dataclass(frozen=True, slots=True)
class Consent:
    """What whoever asked for it agreed to."""

    undoable: bool = False
    irreversible: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened to a step."""

    place: int
    step: Step
    what: What
    note: str = ""


Tell = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    identity: str
    events: tuple[Event, ...]
    """What became of each step, in the order in which they were dealt with; steps that were not reached are not in it."""
    notes: tuple[str, ...] = ()

    def of(self, what: What) -> tuple[Event, ...]:
        return tuple(event for event in self.events if event.what == what)

    @property
    def exit_code(self) -> int:
        return EXIT_CRITICAL if self.of("failed") or self.of("kept") else EXIT_HEALTHY


def apply(plan: Plan, node: Node, consent: Consent, on_event: Tell | None = None) -> Outcome:
    """All steps in their order. The first that fails ends it: what was done stays, to be resumed or undone."""
    _examine(plan, node, consent)
    with journal.lock(node, f"fix {printable(plan.target, 80)}"):
        if unfinished := pending(node):
            raise Refused(
                f"{unfinished.identity} ({printable(unfinished.plan.target)}) is {unfinished.status}: "
                "resume or undo it before something else is done to this node"
            )
        with journal.begin(node) as (identity, book):
            told = plan_model.to_json(plan)
            book.add("plan", plan=told, by=journal.who(), irreversible=consent.irreversible)
            return _go_on(_known(identity, book), book, node, consent, on_event)


def resume(node: Node, identity: str = "", consent: Consent | None = None, on_event: Tell | None = None) -> Outcome:
    """Go on where an application was interrupted or stopped; without a name, with the last one that was."""
    with journal.lock(node, "fix --resume"):
        found = find(node, identity) if identity else pending(node)
        if found is None or found.status not in ("interrupted", "stopped"):
            state = "nothing was interrupted" if found is None else f"{found.identity} is {found.status}"
            raise UsageError(f"there is nothing to resume: {state}{_former(node)}")
        refuse_protected(found.plan, node)
        with journal.append_to(node, found.identity) as book:
            book.add("resumed", by=journal.who())
            agreed = consent or Consent(True, found.irreversible)
            return _go_on(_known(found.identity, book), book, node, agreed, on_event)


def undo(node: Node, identity: str = "", on_event: Tell | None = None) -> Outcome:
    """Bring back what was before an application; without a name, the last one that is not undone.

    Files first, then the manager reads them again, then the units: a unit that was masked cannot be started before. A step
    whose work somebody else has changed since, or whose undoing would stop a protected unit, is kept as it is, with the
    reason, and the others are undone all the same.
    """
    with journal.lock(node, "undo"):
        found = find(node, identity) if identity else last(node)
        if found is None or found.status == "undone":
            said = f"{found.identity} is undone already" if found else "there is nothing to undo on this node"
            raise UsageError(f"{said}{_former(node)}")
        with journal.append_to(node, found.identity) as book:
            book.add("undo", by=journal.who())
            outcome = _Return(_known(found.identity, book), book, node, on_event).run()
            book.add("ended")
            return outcome


def find(node: Node, identity: str) -> Application:
    found = application(identity, journal.read(node, identity))
    if found is None:
        raise UsageError(f"{identity} ended before it had changed anything")
    return found


def history(node: Node) -> list[Application]:
    """All that was done to the node, the oldest first. ExhumeError names a journal that cannot be read."""
    every, unread = readable(node)
    if unread:
        raise ExhumeError(unread[0])
    return every


def readable(node: Node) -> tuple[list[Application], list[str]]:
    """What was done as far as it can be read, and a sentence for each journal that cannot."""
    every: list[Application] = []
    unread: list[str] = []
    for identity in journal.known(node):
        try:
            found = application(identity, journal.read(node, identity))
        except ExhumeError as why:
            unread.append(str(why))
        else:
            every += [found] if found is not None else []
    return every, unread


def pending(node: Node) -> Application | None:
    """The application that was interrupted, in doing or in undoing. There is one at most. Stopped ones count too."""
    return next((one for one in reversed(history(node)) if not one.finished), None)


def applied(node: Node, target: str) -> Plan | None:
    """The last plan about a target that was carried out and stands."""
    every = (one for one in reversed(history(node)) if one.plan.target == target and one.status == "applied")
    return next((one.plan for one in every if one.begun), None)


def add_note(node: Node, identity: str, name: str, value: object) -> None:
    """Write something about an application into its journal: the proof that it worked."""
    with journal.lock(node, "note"), journal.append_to(node, find(node, identity).identity) as book:
        book.add("note", name=name, value=value)


def _examine(plan: Plan, node: Node, consent: Consent) -> None:
    """What can be known to be wrong is said before anything is changed."""
    if not consent.undoable:
        raise Refused("nothing was changed: it was not confirmed")
    plan_model.from_json(plan_model.to_json(plan))  # a journal that cannot be read back would stop everything after it
    for step in plan.steps:
        if node.manager is None and not kind_of(step).offline:
            raise Refused(f"{step.kind} {printable(step.target)} needs a running systemd, and none runs in {node.root.path}")
    refuse_protected(plan, node)
    for step in plan.steps:
        if kind_of(step).undo_rank == ON_DISK and node.files.read_only(step.target):
            raise Refused(f"nothing was changed: {printable(step.target)} is on a file system that is mounted read-only")


def _go_on(one: Application, book: journal.Journal, node: Node, consent: Consent, on_event: Tell | None) -> Outcome:
    return _Course(one, book, node, consent, on_event).run()


class _Course:
    """A plan under way, from its beginning or from wherever a former attempt got to."""

    def __init__(self, one: Application, book: journal.Journal, node: Node, consent: Consent, on_event: Tell | None) -> None:
        self._one, self._book, self._node, self._consent, self._on_event = one, book, node, consent, on_event
        self._steps = one.plan.steps
        self._before = {place: record.before for place, record in enumerate(one.steps) if record.before is not None}
        self._events: list[Event] = []

    def run(self) -> Outcome:
        for place, step in enumerate(self._steps):
            if self._one.steps[place].became in ("done", "skipped"):
                continue
            try:
                event = self._do(place, step)
            except (ExhumeError, OSError) as error:
                event = Event(place, step, "failed", _sentence(error))
            self._tell(event)
            if event.what == "failed":
                break
        self._book.add("ended")
        return Outcome(self._one.identity, tuple(self._events))

    def _do(self, place: int, step: Step) -> Event:
        kind = kind_of(step)
        if place not in self._before:
            if not self._agreed(step):
                return Event(place, step, "skipped", NOT_CONFIRMED)
            if kind.done(step, self._node):
                return Event(place, step, "skipped", ALREADY)
            if step.expects and kind.mark(step, self._node) != step.expects:
                raise Refused(f"{printable(step.target)} has changed since the plan was made; make a new plan")
            before = kind.before(step, self._node)
            if step.kind == "stop-unit":
                self._foresee(place, "stop-unit")
            elif kind.undo_rank == ON_DISK:
                self._foresee(place, "stop-unit", "start-unit")
            self._intend(place, before)  # the last: whoever finds this knows that the others are written down
        self._tell(Event(place, step, "begins"))
        note = kind.apply(step, self._node, self._before[place], f"{self._one.identity}-{place}")
        if step.kind == "reload":
            self._stop_again(place)
        return Event(place, step, "done", note)

    def _foresee(self, place: int, *kinds: str) -> None:
        """One stop can be another's too (a service goes with the socket that it requires): all are written down before.

        A file counts for systemd from any reload or boot on, also where the plan ends right after it. So what the plan would
        start with it is written down before the file is: undo stops it, and starts it again as it was.
        """
        for later, step in enumerate(self._steps[place + 1 :], place + 1):
            if step.kind not in kinds or later in self._before or not self._agreed(step):
                continue
            kind = kind_of(step)
            if step.kind == "start-unit" and self._stops(later):
                self._intend(later, dict(DOWN))
            elif not kind.done(step, self._node):
                self._intend(later, kind.before(step, self._node))

    def _stops(self, place: int) -> bool:
        """Whether a step that is written down stops the same unit before."""
        earlier = [self._steps[other] for other in self._before if other < place]
        return any(step.kind == "stop-unit" and step.target == self._steps[place].target for step in earlier)

    def _intend(self, place: int, before: State) -> None:
        self._book.add("intent", step=place, before=before)
        self._before[place] = before

    def _stop_again(self, place: int) -> None:
        """What was stopped, and masked or given nothing to run. Until systemd had read that, anything could start it again."""
        earlier = self._steps[:place]
        last = {step.target: other for other, step in enumerate(earlier) if step.kind in ("stop-unit", "start-unit")}
        for unit, other in last.items():
            step = self._steps[other]
            changed = any(one.target.endswith(f"/{unit}") or f"/{unit}.d/" in one.target for one in earlier)
            if step.kind == "stop-unit" and changed and not kind_of(step).done(step, self._node):
                event = self._do(other, step)
                if event.what == "done":
                    self._tell(Event(other, step, "done", AGAIN))

    def _agreed(self, step: Step) -> bool:
        return self._consent.irreversible or reversible(step)

    def _tell(self, event: Event) -> None:
        if event.what != "begins":
            self._book.add(event.what, step=event.place, note=event.note)
            self._events.append(event)
        if self._on_event is not None:
            self._on_event(event)


class _Return:
    """An application on its way back, from wherever it or a former undo got to."""

    def __init__(self, one: Application, book: journal.Journal, node: Node, on_event: Tell | None) -> None:
        self._one, self._book, self._node, self._on_event = one, book, node, on_event
        self._steps = one.plan.steps
        self._events: list[Event] = []
        self._notes: list[str] = []

    def run(self) -> Outcome:
        files = [place for place in self._one.begun if self._rank(place) == ON_DISK]
        reloads = self._reloads(bool(files))
        others = [place for place in self._one.begun if self._rank(place) not in (ON_DISK, RELOAD)]
        self._undo(files)
        if files and not reloads and self._node.manager is not None:  # the plan was made for an image, which has booted since
            self._node.operations.call("Reload", self._node.manager.reload)
        self._undo(reloads)
        self._undo(others)
        return Outcome(self._one.identity, tuple(self._events), tuple(self._notes))

    def _rank(self, place: int) -> int:
        return kind_of(self._steps[place]).undo_rank

    def _reloads(self, files: bool) -> list[int]:
        """Where files are undone also one that was not begun: systemd may have read what was half made, by a boot or
        somebody's daemon-reload."""
        every = [place for place in range(len(self._steps)) if self._rank(place) == RELOAD]
        return [place for place in every if place in self._one.begun] or (every[:1] if files else [])

    def _undo(self, places: list[int]) -> None:
        for place in sorted(places, key=lambda place: _undo_order(self._steps[place], place)):
            step, record = self._steps[place], self._one.steps[place]
            if not kind_of(step).undoable or self._forgotten(step):
                self._notes.append(f"{step.kind} {printable(step.target)} was done and cannot be undone")
            elif record.became != "undone" or self._rank(place) == RELOAD:
                self._tell(self._undo_one(place, step, record.before or {}))

    def _forgotten(self, step: Step) -> bool:
        """A transient unit has no file: systemd forgets what it was when it stops. That was confirmed as what it is."""
        if step.undoable or step.kind != "stop-unit" or self._node.manager is None:
            return False
        try:
            return self._node.manager.state(step.target).load == "not-found"
        except ExhumeError:
            return False

    def _undo_one(self, place: int, step: Step, before: State) -> Event:
        try:
            if why := why_kept(step, self._node, before):
                raise Refused(why)
            note = kind_of(step).undo(step, self._node, before, f"{self._one.identity}-{place}")
        except (ExhumeError, OSError) as error:
            return Event(place, step, "kept", _sentence(error))
        return Event(place, step, "undone", note)

    def _tell(self, event: Event) -> None:
        self._book.add(event.what, step=event.place, note=event.note)
        self._events.append(event)
        if self._on_event is not None:
            self._on_event(event)


def _undo_order(step: Step, place: int) -> tuple[bool, bool, int]:
    """The last first; but what was started is stopped before anything is started, or it would stop that again with it, and
    a socket is started before its service (socket_start in systemd: "Socket service already active, refusing")."""
    socket = step.kind == "stop-unit" and step.target.endswith(".socket")
    return step.kind != "start-unit", not socket, -place


def last(node: Node) -> Application | None:
    """The last that is unfinished, or that there is something to undo of: more than having had systemd read its files."""
    for one in reversed(history(node)):
        kinds = [kind_of(one.plan.steps[place]) for place in one.begun]
        changed = any(kind.undoable and kind.undo_rank != RELOAD for kind in kinds)
        if not one.finished or (changed and one.status != "undone"):
            return one
    return None


def _known(identity: str, book: journal.Journal) -> Application:
    found = application(identity, book.entries)
    if found is None:
        raise ExhumeError(f"the journal of {identity} is empty")
    return found


def _former(node: Node) -> str:
    said = journal.former(node)
    return f"; {said}" if said else ""


def _sentence(error: ExhumeError | OSError) -> str:
    return str(error) if isinstance(error, ExhumeError) else f"the kernel refused: {error.strerror or error}"
