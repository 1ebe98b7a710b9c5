"""Free zombies in place (see `remedy/purge.py`). Page cache that is dropped cannot be brought back, so it is not undone."""

import json

from exhume.errors import Refused, UsageError
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Step
from exhume.remedy.steps.kind import AFTERWARDS, State
from exhume.text import from_json, printable


def purge(under: str, reason: str, most_lost_bytes: int = 0) -> Step:
    """The zombies below a cgroup; `/` is all of them. Live groups lose, or read again, no more than `most_lost_bytes`."""
    content = json.dumps({"most_lost_bytes": most_lost_bytes}).encode() if most_lost_bytes else b""
    return Step("purge", under, reason, "medium" if most_lost_bytes else "low", undoable=False, content=content)


def most_lost_bytes(step: Step) -> int:
    if not step.content:
        return 0
    try:
        found = from_json(step.content)["most_lost_bytes"]
    except (ValueError, KeyError, TypeError):
        found = None
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise UsageError("the content of a purge must be JSON with most_lost_bytes, a number of bytes")
    return found


class Purge:
    name = "purge"
    undoable = False
    undo_rank = AFTERWARDS
    offline = True

    def preview(self, step: Step, node: Node) -> str:
        """Without a walk, which needs root and a moment."""
        return f"exhume zombies purge --yes --under {printable(step.target)}\n"

    def mark(self, step: Step, node: Node) -> str:
        return ""

    def done(self, step: Step, node: Node) -> bool:
        return False

    def before(self, step: Step, node: Node) -> State:
        if not node.root.same_kernel():
            raise Refused("zombies are only purged on the node whose kernel this is")
        return {}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        from exhume.remedy.purging import Purging

        with Purging(node.root, step.target) as purging:
            parts = purging.plan.allowed(most_lost_bytes=most_lost_bytes(step))
            if not parts:
                return "no zombies that can be freed at the cost that was agreed to"
            _, outcomes = node.operations.call(
                "purge", lambda: purging.carry_out(parts, lambda ratio: node.progress("purging zombies", ratio))
            )
        gone, of = sum(one.gone for one in outcomes), sum(one.part.zombies for one in outcomes)
        return f"{gone:,} of {of:,} zombies gone"

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return "page cache that was dropped is read again when it is needed"
