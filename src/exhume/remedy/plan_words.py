"""What is told of a step beside its reason: what must be so right before it, and how it is undone. For people and for JSON."""

from exhume.errors import ExhumeError
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Plan, Step, to_json
from exhume.remedy.steps import preview, reversible
from exhume.text import printable

_PRECONDITIONS = {
    "write-file": "the file is as it was when the plan was made",
    "make-link": "what is there is as it was when the plan was made",
    "remove-link": "the link leads where it did when the plan was made",
    "stop-unit": "systemd runs; a unit that is down already is passed over",
    "start-unit": "systemd runs; a unit that is up already is passed over",
    "restart-unit": "systemd runs; passed over if the process has no child left to collect, or has ended",
    "reset-failed": "systemd runs, and the unit has failed",
    "reload": "systemd runs",
    "purge": "this is the node whose kernel runs",
    "remove-empty-cgroups": "each is empty, was so a second ago, and belongs to no unit or pod that is there",
    "reboot": "passed over if the node has been rebooted since the plan was made",
    "reboot-sentinel": "passed over if the node has been rebooted since the plan was made, or if it is there already",
    "signal-parent": "it is still the same process; passed over if it has no child left to collect",
    "cordon": "as few nodes are out already as the limits allow; one that is cordoned already is passed over",
    "drain": "no pod on it stands in the way",
    "taint": "one that has the taint already is passed over",
    "untaint": "one without the taint is passed over",
    "uncordon": "it was cordoned by exhume, and by nobody else since",
}
_UNDO = {
    "write-file": "what was there is put back, byte for byte, with its owner, mode and times; a new file and directory go",
    "make-link": "what was there is put back, a file byte for byte; a new link goes",
    "remove-link": "the link is made again",
    "stop-unit": "it is started, if it was up",
    "start-unit": "it is stopped, if it was down",
    "reload": "systemd reads its files again when they are back",
    "reboot-sentinel": "the file goes, as long as nobody has acted on it",
    "cordon": "it is uncordoned, unless somebody else has cordoned it since",
    "taint": "the taint is taken away",
    "untaint": "the taint is put back",
}


def precondition(step: Step) -> str:
    return _PRECONDITIONS.get(step.kind, "")


def undo(step: Step) -> str:
    return _UNDO.get(step.kind, "") if reversible(step) else ""


def change(step: Step, node: Node) -> str:
    """The diff or the call; where the node cannot be looked at, why."""
    try:
        return preview(step, node)
    except (ExhumeError, OSError) as error:
        return f"cannot be shown: {error}\n"


def document(plan: Plan, node: Node) -> dict[str, object]:
    """The plan as JSON, each step with its words. What reads a plan back passes over them."""
    told = to_json(plan)
    steps = told["steps"]
    assert isinstance(steps, list)
    words = [
        {"change": change(step, node), "precondition": precondition(step), "undo": undo(step) or None} for step in plan.steps
    ]
    told["steps"] = [{**one, **more} for one, more in zip(steps, words, strict=True)]
    return told


def shown_target(step: Step) -> str:
    return printable(f"{step.target}{step.paths[0] if len(step.paths) == 1 else ''}" if step.paths else step.target, 100)
