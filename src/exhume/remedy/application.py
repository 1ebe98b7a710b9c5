"""One application of a plan, as its journal tells it: what was begun, what was done, what was undone. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from exhume.errors import ExhumeError, UsageError
from exhume.remedy.journal import Entry
from exhume.remedy.plan_model import Plan, from_json
from exhume.text import printable

Became = Literal["open", "begun", "done", "skipped", "failed", "undone", "kept"]
Status = Literal["interrupted", "applied", "stopped", "undoing", "undone", "partly undone"]

_STEP_RECORDS: dict[str, Became] = {
    "intent": "begun",
    "done": "done",
    "skipped": "skipped",
    "failed": "failed",
    "undone": "undone",
    "kept": "kept",
}


@dataclass(frozen=True, slots=True)
class StepRecord:
    became: Became = "open"
    before: dict[str, object] | None = None
    """What was there; None if the step was never begun."""
    note: str = ""
    """Why it was skipped, failed or kept; what it had to say when it was done."""


@dataclass(frozen=True, slots=True)
class Application:
    identity: str
    plan: Plan
    time_ns: int
    by: dict[str, object]
    irreversible: bool
    """Whether steps that cannot be undone were confirmed."""
    steps: tuple[StepRecord, ...]
    status: Status
    notes: tuple[tuple[str, object], ...] = field(default=())
    """What was added later: the proof that it worked."""

    @property
    def begun(self) -> tuple[int, ...]:
        """Steps that may have changed something, in the order of the plan."""
        return tuple(place for place, step in enumerate(self.steps) if step.before is not None)

    @property
    def finished(self) -> bool:
        """Nothing hangs in the balance: what stopped before it changed anything is over too."""
        return self.status in ("applied", "undone", "partly undone") or (self.status == "stopped" and not self.begun)


def application(identity: str, entries: Sequence[Entry]) -> Application | None:
    """None for a journal whose plan was never written down: nothing was changed then."""
    if not entries:
        return None
    first = entries[0]
    by, time_ns = first.get("by"), first.get("time_ns")
    if first.get("record") != "plan" or not isinstance(by, dict) or not isinstance(time_ns, int):
        raise ExhumeError(
            f"the journal of {identity} does not begin with a plan that is known to this version{_written_by(by)}"
        )
    try:
        plan = from_json(first.get("plan"))
    except UsageError as why:
        told = f"the journal of {identity} holds a plan that is not known to this version: {why}{_written_by(by)}"
        raise ExhumeError(told) from None
    steps = [StepRecord() for _ in plan.steps]
    status: Status = "interrupted"
    notes: list[tuple[str, object]] = []
    for entry in entries[1:]:
        record = entry["record"]
        if record in _STEP_RECORDS:
            place = entry.get("step")
            if not isinstance(place, int) or not 0 <= place < len(steps):
                raise ExhumeError(f"the journal of {identity} tells of a step that its plan does not have")
            steps[place] = _after(steps[place], _STEP_RECORDS[str(record)], entry)
        elif record == "resumed":
            status = "interrupted"
        elif record == "undo":
            status = "undoing"
        elif record == "ended":
            status = _ended(status, steps)
        elif record == "note":
            notes.append((str(entry.get("name")), entry.get("value")))
    return Application(identity, plan, time_ns, by, first.get("irreversible") is True, tuple(steps), status, tuple(notes))


def _written_by(by: object) -> str:
    """Which version can read it, if the journal says so."""
    version = by.get("version") if isinstance(by, dict) else None
    return f"; exhume {printable(version, 40)} wrote it, and can undo it" if isinstance(version, str) else ""


def _after(step: StepRecord, became: Became, entry: Entry) -> StepRecord:
    before = entry.get("before") if became == "begun" else step.before
    return StepRecord(became, before if isinstance(before, dict) else None, str(entry.get("note", "")))


def _ended(status: Status, steps: Sequence[StepRecord]) -> Status:
    became = {step.became for step in steps}
    if status == "undoing":
        return "partly undone" if "kept" in became else "undone"
    return "stopped" if "failed" in became else "applied"
