"""Whether bringing a unit back to what it was would meet a protected one: since it was stopped or started, the node may be
another.

Asked when the files are back and systemd has read them, right before the unit is started or stopped.
"""

from exhume.image.directory import Directory
from exhume.image.systemd.units import read_units
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Step
from exhume.remedy.protected_plan import known_agents
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps.kind import State
from exhume.remedy.steps.units import StartUnit, StopUnit, undoing


def why_kept(step: Step, node: Node, before: State) -> str:
    """Why a unit is left as it is; empty if it may be brought back, or is so already."""
    if step.kind not in (StopUnit.name, StartUnit.name):
        return ""
    does = undoing(step, node, before)
    if not does:
        return ""
    with Directory(node.root.path) as tree:
        protection = Protection(read_units(tree), known_agents(), manager=node.manager)
        if does == "start":
            return protection.why_not_start(step.target)
        guard = protection.built_in(step.target)
        return guard.sentence if guard is not None else ""
