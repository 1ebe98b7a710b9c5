"""Steps that the service manager carries out: stop, start, restart, forget a failure, read its files again."""

import time
from collections.abc import Callable, Mapping
from typing import Literal

from exhume.errors import ExhumeError
from exhume.host.quantities import SECOND, duration
from exhume.remedy.manager import UnitState, as_command, checked
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Risk, Step
from exhume.remedy.steps.kind import AFTERWARDS, RELOAD, State, manager_of
from exhume.remedy.steps.processes import lives, parent_of, uncollected
from exhume.text import printable

STOP_S = 120.0
"""systemd kills what does not stop after DefaultTimeoutStopSec=90s (systemd-system.conf(5)), and says so soon after."""
START_S = 30.0
DOWN: Mapping[str, object] = {"active": "inactive", "sub": "dead", "load": "loaded"}
"""What a step that starts a unit finds after one that stopped it."""
_POLL_S, _SLOWEST_POLL_S = 0.02, 0.5


def stop_unit(unit: str, reason: str, risk: Risk = "medium", deadline_s: float = 0.0) -> Step:
    return Step("stop-unit", unit, reason, risk, deadline_s=deadline_s)


def start_unit(unit: str, reason: str, risk: Risk = "low", deadline_s: float = 0.0) -> Step:
    return Step("start-unit", unit, reason, risk, deadline_s=deadline_s)


def restart_unit(unit: str, reason: str, parent: str, risk: Risk = "medium", deadline_s: float = 0.0) -> Step:
    """So that a process of it (PID:start) ends, which has not collected its children."""
    return Step("restart-unit", unit, reason, risk, undoable=False, link=parent, deadline_s=deadline_s)


def reset_failed(unit: str, reason: str) -> Step:
    return Step("reset-failed", unit, reason, undoable=False)


def reload(reason: str) -> Step:
    return Step("reload", "systemd", reason)


class _Unit:
    """A unit that is not at rest before is brought up again by undo, one that is at rest or failed is brought down."""

    name = ""
    undoable = True
    undo_rank = AFTERWARDS
    offline = False

    def mark(self, step: Step, node: Node) -> str:
        return ""  # a unit that crash-loops has another state every second

    def before(self, step: Step, node: Node) -> State:
        state = manager_of(step, node).state(step.target)
        return {"active": state.active, "sub": state.sub, "load": state.load}

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        does = undoing(step, node, before)
        if does == "start":
            # Its starts of before count against its start limit until they are forgotten (unit_reset_failed in systemd).
            manager = manager_of(step, node)
            node.operations.call("ResetFailedUnit", lambda: manager.reset_failed(step.target))
            return start(step, node, sure=before.get("active") == "active", loops=True)
        if does == "stop":
            stop(step, node)
        return ""


def undoing(step: Step, node: Node, before: State) -> Literal["start", "stop", ""]:
    """What an undo does to the unit, as things are now."""
    was = UnitState(str(before.get("active")), str(before.get("sub")))
    now = manager_of(step, node).state(step.target)
    if was.up and not now.up:
        return "start"
    return "stop" if was.down and not now.down else ""


class StopUnit(_Unit):
    name = "stop-unit"

    def preview(self, step: Step, node: Node) -> str:
        return as_command("StopUnit", checked(step.target), "replace") + "\n"

    def done(self, step: Step, node: Node) -> bool:
        return manager_of(step, node).state(step.target).down

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        stop(step, node)
        return ""


class StartUnit(_Unit):
    name = "start-unit"

    def preview(self, step: Step, node: Node) -> str:
        unit = checked(step.target)
        failed = node.manager is not None and node.manager.state(unit).active == "failed"
        return (as_command("ResetFailedUnit", unit) + "\n" if failed else "") + as_command("StartUnit", unit, "replace") + "\n"

    def done(self, step: Step, node: Node) -> bool:
        return manager_of(step, node).state(step.target).active == "active"

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        manager = manager_of(step, node)
        if manager.state(step.target).active == "failed":
            # Its failed starts count against its start limit (unit_test_start_limit in src/core/unit.c).
            node.operations.call("ResetFailedUnit", lambda: manager.reset_failed(step.target))
        return start(step, node, sure=True)


class RestartUnit(_Unit):
    name = "restart-unit"
    undoable = False

    def preview(self, step: Step, node: Node) -> str:
        return as_command("RestartUnit", checked(step.target), "replace") + "\n"

    def done(self, step: Step, node: Node) -> bool:
        """They may have been collected since: the parent was told, or ended."""
        return bool(step.link) and not uncollected(node.root, *parent_of(step.link))

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        """By one call, so that systemd also starts again what it stops with it (UNIT_ATOM_PROPAGATE_RESTART)."""
        if self.done(step, node):
            return "its children are collected"
        manager = manager_of(step, node)
        node.operations.call("RestartUnit", lambda: manager.restart(step.target))

        def again(state: UnitState) -> bool:
            gone = not step.link or not lives(node.root, *parent_of(step.link))
            return gone and state.active in ("active", "failed")

        state = _wait(step, node, (step.deadline_s or STOP_S) + START_S, again)
        if state.active != "active" or not again(state):
            raise ExhumeError(f"{printable(step.target)} was restarted, and is {state.active} ({state.sub}), not started anew")
        return ""


class ResetFailed(_Unit):
    name = "reset-failed"
    undoable = False  # nothing makes a unit failed again but failing

    def preview(self, step: Step, node: Node) -> str:
        return as_command("ResetFailedUnit", checked(step.target)) + "\n"

    def done(self, step: Step, node: Node) -> bool:
        return manager_of(step, node).state(step.target).active != "failed"

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        manager = manager_of(step, node)
        node.operations.call("ResetFailedUnit", lambda: manager.reset_failed(step.target))
        return ""


class Reload(_Unit):
    """Undone by another one, when the files are back and before units are started again."""

    name = "reload"
    undo_rank = RELOAD

    def preview(self, step: Step, node: Node) -> str:
        return as_command("Reload") + "\n"

    def done(self, step: Step, node: Node) -> bool:
        return False

    def before(self, step: Step, node: Node) -> State:
        manager_of(step, node)
        return {}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        manager = manager_of(step, node)
        node.operations.call("Reload", manager.reload)
        return ""

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        if node.manager is None:
            return "no systemd runs in this root: it reads the files when it starts"
        return self.apply(step, node, before, token)


def stop(step: Step, node: Node) -> None:
    """Ask systemd, and wait until the unit is down; what does not stop by itself systemd kills after TimeoutStopSec=."""
    manager = manager_of(step, node)
    node.operations.call("StopUnit", lambda: manager.stop(step.target))
    state = _wait(step, node, step.deadline_s or STOP_S, lambda state: state.down)
    if not state.down:
        waited = duration((step.deadline_s or STOP_S) * SECOND)
        raise ExhumeError(
            f"{printable(step.target)} is still {state.active} ({state.sub}) after {waited}: "
            "systemd goes on stopping it by its own TimeoutStopSec=; resume when it is down"
        )


def start(step: Step, node: Node, sure: bool, loops: bool = False) -> str:
    """Ask systemd to start it, and if it is to be sure wait until it runs; one that loops again is as good as it was."""
    manager = manager_of(step, node)
    node.operations.call("StartUnit", lambda: manager.start(step.target))
    if not sure:
        return ""
    state = _wait(step, node, step.deadline_s or START_S, lambda state: state.active in ("active", "failed") or _again(state))
    if loops and _again(state):
        return f"{printable(step.target)} restarts again and again"
    if state.active != "active":
        raise ExhumeError(f"{printable(step.target)} was started, and is {state.active} ({state.sub}), not active")
    return ""


def _again(state: UnitState) -> bool:
    return "auto-restart" in state.sub


def _wait(step: Step, node: Node, deadline_s: float, come: Callable[[UnitState], bool]) -> UnitState:
    """The unit's state when that has come, or when the time is up; asked less often the longer it takes."""
    manager = manager_of(step, node)
    end = time.monotonic() + deadline_s
    pause_s = _POLL_S
    while not come(state := manager.state(step.target)) and time.monotonic() < end:
        time.sleep(min(pause_s, max(0.0, end - time.monotonic())))
        pause_s = min(2 * pause_s, _SLOWEST_POLL_S)
    return state
