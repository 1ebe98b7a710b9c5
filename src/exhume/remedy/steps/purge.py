"""Let zombies go in place (see `remedy/purge.py`). What cache is lost by it cannot be given back, so it is not undone."""

from exhume.errors import Refused
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Risk, Step
from exhume.remedy.steps.kind import AFTERWARDS, State
from exhume.text import printable


def purge(under: str, reason: str, risk: Risk = "low") -> Step:
    """The zombies below a cgroup; `/` is all of them. Live groups lose nothing by it, or a little (ACCEPTED_LOSS)."""
    return Step("purge", under, reason, risk, undoable=False)


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
            targets = purging.plan.targets
            if not targets:
                return "no zombies that can go without a reboot"
            node.operations.call("evict", lambda: purging.evict(lambda ratio: node.progress("evicting pages", ratio)))
            outcomes = [
                node.operations.call(
                    "reclaim",
                    lambda target=target: purging.reclaim(target, False, lambda ratio: node.progress("reclaiming", ratio)),  # type: ignore[misc]
                )
                for target in targets
            ]
        gone, of = sum(one.gone for one in outcomes), sum(one.zombies for one in outcomes)
        return f"{gone:,} of {of:,} zombies gone"

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return "cache that was given up is read again by whoever needs it"
