"""Taking a node of a Kubernetes cluster out of service, and putting it back: cordon, drain, taint, wait, uncordon.

The mark on a cordoned node is the application's name in the journal, so that only what was cordoned by it is uncordoned by it.
"""

import json
import time
from dataclasses import asdict

from exhume.cluster import cordon as nodes
from exhume.cluster import drain as draining
from exhume.cluster.fleet_limits import FleetLimits, refuse_more
from exhume.cluster.pods import Allowed
from exhume.errors import Refused, UsageError
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Step
from exhume.remedy.steps.kind import AFTERWARDS, State
from exhume.text import from_json, printable

ANY = "any"
"""For `uncordon`: whichever application of exhume cordoned it."""
BACK_S = 1800.0


def cordon(name: str, reason: str, limits: FleetLimits | None) -> Step:
    """Without limits, as for a quarantine, it does not matter how many are out already."""
    return Step("cordon", name, reason, "low", content=json.dumps(asdict(limits)).encode() if limits else b"")


def drain(name: str, reason: str, allowed: Allowed, deadline_s: float = draining.DEADLINE_S) -> Step:
    content = json.dumps(asdict(allowed)).encode()
    return Step("drain", name, reason, "medium", undoable=False, content=content, deadline_s=deadline_s)


def taint(name: str, reason: str, value: str = "") -> Step:
    return Step("taint", name, reason, "low", link=value)


def untaint(name: str, reason: str) -> Step:
    return Step("untaint", name, reason, "low")


def wait_ready(name: str, reason: str, not_boot_id: str, deadline_s: float = BACK_S) -> Step:
    return Step("wait-ready", name, reason, "low", link=not_boot_id, deadline_s=deadline_s)


def uncordon(name: str, reason: str, whose: str = "") -> Step:
    return Step("uncordon", name, reason, "low", link=whose)


class _OfTheCluster:
    undoable = True
    undo_rank = AFTERWARDS
    offline = True

    def mark(self, step: Step, node: Node) -> str:
        return ""

    def before(self, step: Step, node: Node) -> State:
        return {}

    def done(self, step: Step, node: Node) -> bool:
        return False

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return ""


class Cordon(_OfTheCluster):
    name = "cordon"

    def preview(self, step: Step, node: Node) -> str:
        return f"kubectl cordon {printable(step.target)}, marked as ours by the annotation {nodes.MARK}\n"

    def done(self, step: Step, node: Node) -> bool:
        """One that others cordoned is left without our mark, so that it stays cordoned."""
        with node.cluster() as client:
            return nodes.closed(nodes.read_node(client, step.target))

    def before(self, step: Step, node: Node) -> State:
        self._within_limits(step, node)
        return {}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        """Others may do the same at this moment: whoever is too many sees it afterwards, and steps back."""
        with node.cluster() as client:
            note = node.operations.call("cordon", lambda: nodes.cordon(client, step.target, _application(token)))
            try:
                self._within_limits(step, node)
            except Refused:
                nodes.uncordon(client, step.target, _application(token))
                raise
        return note

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        with node.cluster() as client:
            kept = node.operations.call("uncordon", lambda: nodes.uncordon(client, step.target, _application(token)))
        if kept.endswith("stays cordoned"):
            raise Refused(f"node {printable(step.target)}: {kept}")
        return kept

    def _within_limits(self, step: Step, node: Node) -> None:
        if step.content:
            with node.cluster() as client:
                refuse_more(nodes.find_nodes(client), step.target, _limits(step), time.time())


class Drain(_OfTheCluster):
    name = "drain"
    undoable = False

    def preview(self, step: Step, node: Node) -> str:
        with node.cluster() as client:
            pods = draining.pods_of(client, step.target, _allowed(step))
        words = {"evict": "evict ", "wait": "await ", "leave": "leave ", "blocks": "BLOCKS"}
        return "".join(f"{words[pod.fate]}  {pod}  {pod.why}\n" for pod in sorted(pods, key=lambda one: (one.fate, str(one))))

    def done(self, step: Step, node: Node) -> bool:
        with node.cluster() as client:
            return all(pod.fate == "leave" for pod in draining.pods_of(client, step.target, _allowed(step)))

    def before(self, step: Step, node: Node) -> State:
        with node.cluster() as client:
            pods = draining.pods_of(client, step.target, _allowed(step))
        draining.refuse_blocked(step.target, pods)
        return {"pods": [str(pod) for pod in pods if pod.fate == "evict"]}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        pace = draining.Pace(step.deadline_s or draining.DEADLINE_S, tell=node.progress)
        with node.cluster() as client:
            done = node.operations.call("drain", lambda: draining.drain(client, step.target, _allowed(step), pace))
        waited = f", {len(done.ended)} ended by themselves" if done.ended else ""
        return f"{len(done.evicted)} evicted{waited}, {len(done.left)} left in place"

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return "pods that were evicted run elsewhere, or not at all"


class Taint(_OfTheCluster):
    name = "taint"

    def preview(self, step: Step, node: Node) -> str:
        return f"kubectl taint node {printable(step.target)} {nodes.TAINT}={printable(step.link)}:NoSchedule\n"

    def done(self, step: Step, node: Node) -> bool:
        with node.cluster() as client:
            return nodes.tainted(nodes.read_node(client, step.target))

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        with node.cluster() as client:
            node.operations.call("taint", lambda: nodes.taint(client, step.target, step.link))
        return ""

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        with node.cluster() as client:
            node.operations.call("untaint", lambda: nodes.untaint(client, step.target))
        return ""


class Untaint(_OfTheCluster):
    name = "untaint"

    def preview(self, step: Step, node: Node) -> str:
        return f"kubectl taint node {printable(step.target)} {nodes.TAINT}-\n"

    def done(self, step: Step, node: Node) -> bool:
        with node.cluster() as client:
            return not nodes.tainted(nodes.read_node(client, step.target))

    def before(self, step: Step, node: Node) -> State:
        with node.cluster() as client:
            return {"value": nodes.taint_value(nodes.read_node(client, step.target))}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        with node.cluster() as client:
            node.operations.call("untaint", lambda: nodes.untaint(client, step.target))
        return ""

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        with node.cluster() as client:
            node.operations.call("taint", lambda: nodes.taint(client, step.target, str(before.get("value", ""))))
        return ""


class WaitReady(_OfTheCluster):
    name = "wait-ready"

    def preview(self, step: Step, node: Node) -> str:
        return f"until node {printable(step.target)} is Ready in another boot than {printable(step.link) or 'none'}\n"

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        pace = draining.Pace(step.deadline_s or BACK_S, tell=node.progress)
        with node.cluster() as client:
            draining.wait_ready(client, step.target, step.link, pace)
        return ""


class Uncordon(_OfTheCluster):
    """What somebody else cordoned stays so, and that is no failure: it is said."""

    name = "uncordon"

    def preview(self, step: Step, node: Node) -> str:
        whose = "any of ours" if step.link == ANY else "this plan"
        return f"kubectl uncordon {printable(step.target)}, if {whose} cordoned it\n"

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        whose = "" if step.link == ANY else _application(token)
        with node.cluster() as client:
            return node.operations.call("uncordon", lambda: nodes.uncordon(client, step.target, whose))

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return "it was in service before as well"


def _application(token: str) -> str:
    """The application's name, without the place of the step: what one step cordons another uncordons."""
    return token.rpartition("-")[0] or token


def _limits(step: Step) -> FleetLimits:
    told = _options(step)
    at_once, failed, back_s = told.get("max_at_once"), told.get("pause_when_failed"), told.get("back_s")
    if not isinstance(at_once, int) or not isinstance(failed, int) or not isinstance(back_s, int | float):
        raise UsageError("a cordon's limits must have max_at_once, pause_when_failed and back_s")
    return FleetLimits(at_once, failed, float(back_s))


def _allowed(step: Step) -> Allowed:
    """Only what is said to be agreed to is."""
    told = _options(step)
    return Allowed(*(told.get(name) is True for name in ("unmanaged", "empty_dir", "when_idle")))


def _options(step: Step) -> dict[str, object]:
    try:
        told = from_json(step.content or b"{}")
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise UsageError(f"the options of a step of the kind {step.kind} must be a JSON object")
    return told
