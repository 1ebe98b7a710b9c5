"""What is to be done to a node, as data: a plan of steps that can be printed, sent, journalled and read back."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from exhume.errors import UsageError

SCHEMA = "exhume.plan/1"
MOST_STEPS = 1000

Risk = Literal["low", "medium", "high"]
_RISKS: dict[str, Risk] = {"low": "low", "medium": "medium", "high": "high"}


@dataclass(frozen=True, slots=True)
class Step:
    """One change. What the kinds make of the fields is in `steps/`; use their constructors."""

    kind: str
    target: str
    """A path as the node sees it (bytes that are no UTF-8 by surrogateescape), or a unit."""
    reason: str
    risk: Risk = "low"
    undoable: bool = True
    """Whether undo brings back what was. Steps that it does not are confirmed apart."""
    expects: str = ""
    """What must be there right before, as `steps.expected` wrote it down when the plan was made; empty: whatever is there."""
    content: bytes = b""
    mode: int | None = None
    """None: that of the file that is there, or 0644."""
    link: str = ""
    """Where a link leads, as it is written in it."""
    over_file: bool = False
    """Whether a link may take the place of a file: a mask where the unit file itself is in /etc, which systemctl refuses."""
    paths: tuple[str, ...] = ()
    deadline_s: float = 0.0
    """How long to wait for it to come true; 0: what its kind takes for enough."""


@dataclass(frozen=True, slots=True)
class Limits:
    """For a fleet: how a plan that is meant for many nodes goes from one to the next."""

    max_at_once: int = 1
    """So many nodes at a time."""
    pause_when_failed: int = 1
    """It stops for a person when so many of the last did not come back."""


@dataclass(frozen=True, slots=True)
class Relief:
    """What helps and is left to people: a protected unit's own settings, what only they can decide. Never carried out."""

    target: str
    why: str
    text: str


@dataclass(frozen=True, slots=True)
class Plan:
    target: str
    """What the plan is about: a unit, a node, a finding."""
    why: str
    steps: tuple[Step, ...]
    limits: Limits = Limits()
    relief: tuple[Relief, ...] = ()
    settled: tuple[str, ...] = ()
    """What was looked at and needs nothing any more, a sentence each: masked already, gone since the report."""


def step_to_json(step: Step) -> dict[str, object]:
    """Fields that say nothing are left out."""
    told: dict[str, object] = {
        "kind": step.kind,
        "target": step.target,
        "reason": step.reason,
        "risk": step.risk,
        "undoable": step.undoable,
    }
    if step.expects:
        told["expects"] = step.expects
    if step.content:
        told["content"] = base64.b64encode(step.content).decode()
    if step.mode is not None:
        told["mode"] = step.mode
    if step.link:
        told["link"] = step.link
    if step.over_file:
        told["over_file"] = True
    if step.paths:
        told["paths"] = list(step.paths)
    if step.deadline_s:
        told["deadline_s"] = step.deadline_s
    return told


def step_from_json(told: object) -> Step:
    """UsageError names the field that is wrong."""
    fields = _mapping(told, "a step")
    risk = _RISKS.get(_text(fields, "risk", "low"))
    if risk is None:
        raise UsageError("a step's risk must be low, medium or high")
    mode = fields.get("mode")
    if mode is not None and (not isinstance(mode, int) or isinstance(mode, bool) or not 0 <= mode <= 0o777):
        raise UsageError("a step's mode must be a number from 0 to 511: no set-id bits")
    paths = fields.get("paths", [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise UsageError("a step's paths must be a list of strings")
    deadline_s = fields.get("deadline_s", 0.0)
    if not isinstance(deadline_s, int | float) or isinstance(deadline_s, bool) or not 0 <= deadline_s <= 86400:
        raise UsageError("a step's deadline_s must be a number of seconds, a day at most")
    return Step(
        kind=_text(fields, "kind"),
        target=_text(fields, "target"),
        reason=_text(fields, "reason"),
        risk=risk,
        undoable=_flag(fields, "undoable", True),
        expects=_text(fields, "expects", ""),
        content=from_base64(fields.get("content", ""), "a step's content"),
        mode=mode,
        link=_text(fields, "link", ""),
        over_file=_flag(fields, "over_file", False),
        paths=tuple(paths),
        deadline_s=float(deadline_s),
    )


def to_json(plan: Plan) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "target": plan.target,
        "why": plan.why,
        "steps": [step_to_json(step) for step in plan.steps],
        "limits": {"max_at_once": plan.limits.max_at_once, "pause_when_failed": plan.limits.pause_when_failed},
        "relief": [{"target": one.target, "why": one.why, "text": one.text} for one in plan.relief],
        "settled": list(plan.settled),
    }


def from_json(told: object) -> Plan:
    fields = _mapping(told, "a plan")
    if fields.get("schema") != SCHEMA:
        raise UsageError(f"a plan must have the schema {SCHEMA}")
    steps = fields.get("steps")
    if not isinstance(steps, list) or len(steps) > MOST_STEPS:
        raise UsageError(f"a plan's steps must be a list of at most {MOST_STEPS}")
    relief = fields.get("relief", [])
    if not isinstance(relief, list) or len(relief) > MOST_STEPS:
        raise UsageError(f"a plan's relief must be a list of at most {MOST_STEPS}")
    settled = fields.get("settled", [])
    if not isinstance(settled, list) or not all(isinstance(one, str) for one in settled):
        raise UsageError("what a plan calls settled must be a list of strings")
    return Plan(
        _text(fields, "target"),
        _text(fields, "why"),
        tuple(step_from_json(step) for step in steps),
        _limits(fields.get("limits", {})),
        tuple(_relief(one) for one in relief),
        tuple(settled),
    )


def _limits(told: object) -> Limits:
    fields = _mapping(told, "a plan's limits")
    return Limits(_nodes(fields, "max_at_once"), _nodes(fields, "pause_when_failed"))


def _nodes(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name, 1)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1_000_000:
        raise UsageError(f"{name} must be a number of nodes, at least 1")
    return value


def _relief(told: object) -> Relief:
    fields = _mapping(told, "a relief")
    return Relief(_text(fields, "target"), _text(fields, "why"), _text(fields, "text"))


def from_base64(told: object, what: str) -> bytes:
    try:
        if isinstance(told, str):
            return base64.b64decode(told, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise UsageError(f"{what} must be in base64")


def _mapping(told: object, what: str) -> Mapping[str, object]:
    if not isinstance(told, dict):
        raise UsageError(f"{what} must be an object")
    return told


def _text(fields: Mapping[str, object], name: str, default: str | None = None) -> str:
    value = fields.get(name, default)
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a string")
    return value


def _flag(fields: Mapping[str, object], name: str, default: bool) -> bool:
    value = fields.get(name, default)
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false")
    return value
