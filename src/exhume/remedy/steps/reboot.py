"""The last resort. The sentinel file that kured and others look for is a `write-file`; this one reboots now, by systemd."""

from exhume.remedy.manager import as_command
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Step
from exhume.remedy.steps.files import write_file
from exhume.remedy.steps.kind import AFTERWARDS, State, manager_of

SENTINEL = "/run/reboot-required"
"""What kured (--reboot-sentinel) and unattended-upgrades look for, at its older name /var/run/reboot-required."""

# What systemctl(1) reboot starts where there is no logind (start_with_fallback in src/systemctl/systemctl-start-special.c).
_TARGET, _MODE = "reboot.target", "replace-irreversibly"


def reboot(reason: str) -> Step:
    return Step("reboot", "node", reason, "high", undoable=False)


def reboot_by_sentinel(reason: str, path: str = SENTINEL) -> Step:
    """Undo removes the file as long as nobody acted on it; whoever does reboots the node, so it is confirmed as a reboot is."""
    made = write_file(path, b"*** System restart required ***\n", reason, "high")
    return Step(made.kind, made.target, made.reason, made.risk, undoable=False, content=made.content)


class Reboot:
    name = "reboot"
    undoable = False
    undo_rank = AFTERWARDS
    offline = False

    def preview(self, step: Step, node: Node) -> str:
        return as_command("StartUnit", _TARGET, _MODE) + "\n"

    def mark(self, step: Step, node: Node) -> str:
        return ""

    def done(self, step: Step, node: Node) -> bool:
        return False

    def before(self, step: Step, node: Node) -> State:
        manager_of(step, node)
        return {"boot_id": _boot_id(node)}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        """A reboot that was asked for before the journal could say that it was is seen by the kernel's boot_id."""
        if _boot_id(node) == before.get("boot_id"):
            manager = manager_of(step, node)
            node.operations.call("reboot", lambda: manager.start(_TARGET, _MODE))
        return ""

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return "a reboot cannot be undone"


def _boot_id(node: Node) -> str:
    return node.root.read("proc/sys/kernel/random/boot_id", 64).decode("ascii", "replace").strip()
