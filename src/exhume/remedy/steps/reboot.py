"""The last resort: now, by logind, or by the sentinel file that kured and others look for. Of one boot, and of no later one."""

from exhume.errors import Refused, Unreadable
from exhume.remedy import logind
from exhume.remedy.files import changed, new_file
from exhume.remedy.found import Found
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Step
from exhume.remedy.steps.files import OnDisk
from exhume.remedy.steps.kind import AFTERWARDS, State, manager_of
from exhume.text import printable

SENTINEL = "/run/reboot-required"
"""What kured (--reboot-sentinel) and unattended-upgrades look for, at its older name /var/run/reboot-required."""
_REQUIRED = b"*** System restart required ***\n"
_REBOOTED = "the node was rebooted since"


def reboot(reason: str, boot_id: str = "") -> Step:
    """Of the boot with that id and of no later one, if it is known."""
    return Step("reboot", "node", reason, "high", undoable=False, expects=boot_id)


def reboot_by_sentinel(reason: str, boot_id: str = "") -> Step:
    """Undo removes the file as long as nobody acted on it; whoever does reboots the node, so it is confirmed as a reboot is."""
    return Step("reboot-sentinel", SENTINEL, reason, "high", undoable=False, expects=boot_id)


class Reboot:
    name = "reboot"
    undoable = False
    undo_rank = AFTERWARDS
    offline = False

    def preview(self, step: Step, node: Node) -> str:
        return logind.PREVIEW + "\n"

    def mark(self, step: Step, node: Node) -> str:
        """By the kernel's boot_id: a plan is for the boot in which it was made."""
        return _boot_or_none(node)

    def done(self, step: Step, node: Node) -> bool:
        """Whoever rebooted it since: what the reboot was for is gone."""
        return bool(step.expects) and _boot_id(node) != step.expects

    def before(self, step: Step, node: Node) -> State:
        manager_of(step, node)
        return {"boot_id": _boot_id(node)}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        """A reboot that was asked for before the journal could say that it was is seen by the kernel's boot_id."""
        if _boot_id(node) == before.get("boot_id"):
            manager = manager_of(step, node)
            node.operations.call("reboot", manager.reboot)
        return ""

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return "a reboot cannot be undone"


class RebootSentinel(OnDisk):
    """The file is gone after the reboot that it asked for, which is not "not yet written": the kernel's boot_id tells."""

    name = "reboot-sentinel"

    def wanted(self, step: Step, before: Found) -> Found:
        if step.target != SENTINEL or before.kind not in ("absent", "file"):
            raise Refused(f"{printable(step.target)} is left alone: a reboot is asked for by a file at {SENTINEL}")
        return new_file(_REQUIRED, 0o644) if before.kind == "absent" else changed(before, _REQUIRED, before.mode)

    def mark(self, step: Step, node: Node) -> str:
        return _boot_or_none(node)

    def done(self, step: Step, node: Node) -> bool:
        return (bool(step.expects) and _boot_or_none(node) != step.expects) or super().done(step, node)

    def before(self, step: Step, node: Node) -> State:
        return {**super().before(step, node), "boot_id": _boot_or_none(node)}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        return _REBOOTED if _rebooted(node, before) else super().apply(step, node, before, token)

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return _REBOOTED if _rebooted(node, before) else super().undo(step, node, before, token)


def _rebooted(node: Node, before: State) -> bool:
    return _boot_or_none(node) != before.get("boot_id")


def _boot_or_none(node: Node) -> str:
    """Empty for an image, which has not booted."""
    try:
        return _boot_id(node)
    except Unreadable:
        return ""


def _boot_id(node: Node) -> str:
    return node.root.read("proc/sys/kernel/random/boot_id", 64).decode("ascii", "replace").strip()
