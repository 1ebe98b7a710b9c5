"""The kinds of steps, one file a subject; this is where each is found by its name."""

from dataclasses import replace

from exhume.errors import ExhumeError
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Plan, Step
from exhume.remedy.steps.cgroups import RemoveEmptyCgroups
from exhume.remedy.steps.cluster import Cordon, Drain, Taint, Uncordon, Untaint, WaitReady
from exhume.remedy.steps.files import MakeLink, RemoveLink, WriteFile
from exhume.remedy.steps.kind import Kind
from exhume.remedy.steps.processes import SignalParent
from exhume.remedy.steps.purge import Purge
from exhume.remedy.steps.reboot import Reboot, RebootSentinel
from exhume.remedy.steps.units import Reload, ResetFailed, RestartUnit, StartUnit, StopUnit
from exhume.text import printable

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        *(WriteFile(), MakeLink(), RemoveLink()),
        *(StopUnit(), StartUnit(), RestartUnit(), ResetFailed(), Reload()),
        *(RemoveEmptyCgroups(), Purge(), Reboot(), RebootSentinel(), SignalParent()),
        *(Cordon(), Drain(), Taint(), Untaint(), WaitReady(), Uncordon()),
    )
}


def kind_of(step: Step) -> Kind:
    try:
        return KINDS[step.kind]
    except KeyError:
        raise ExhumeError(f"a step of the kind {printable(step.kind)} is not known to this version") from None


def expected(plan: Plan, node: Node) -> Plan:
    """The plan with what is there now written into it, so that it is only carried out on what its reader was shown."""
    return replace(plan, steps=tuple(replace(step, expects=kind_of(step).mark(step, node)) for step in plan.steps))


def preview(step: Step, node: Node) -> str:
    return kind_of(step).preview(step, node)


def reversible(step: Step) -> bool:
    """Whether it is confirmed with the rest. What its kind cannot undo no plan can call undoable."""
    return step.undoable and kind_of(step).undoable
