"""Plans that take a node of a cluster out of service: for a reboot, or for good until somebody has looked at it."""

from typing import Literal

from exhume.cluster.cordon import boot_id
from exhume.cluster.document import Document, text_in
from exhume.cluster.fleet_limits import FleetLimits
from exhume.cluster.pods import Allowed
from exhume.errors import Refused, Unreadable
from exhume.host.root import Root
from exhume.remedy.plan_model import Limits, Plan, Step
from exhume.remedy.steps import cluster
from exhume.remedy.steps.reboot import reboot, reboot_by_sentinel
from exhume.text import printable

Reboot = Literal["no", "sentinel", "now"]
REBOOTS: tuple[Reboot, ...] = ("no", "sentinel", "now")


def take_out(
    node: Document, why: str, allowed: Allowed, limits: FleetLimits, drain_s: float, reboots: Reboot, root: Root
) -> Plan:
    """Cordon and drain; with a reboot also that, the wait for the node, and uncordon. Without one it stays cordoned."""
    name = text_in(node, "metadata", "name")
    steps: list[Step] = [cluster.cordon(name, "no new pods while it is drained", limits)]
    patience = " once the jobs on it have ended" if allowed.when_idle else ""
    steps.append(cluster.drain(name, f"its pods go elsewhere{patience}, as their disruption budgets allow", allowed, drain_s))
    if reboots != "no":
        _refuse_another(node, root)
        reason = why or "it is to be rebooted"
        steps.append((reboot if reboots == "now" else reboot_by_sentinel)(reason, boot_id(node)))
        steps.append(cluster.wait_ready(name, "until the kubelet reports from the next boot", boot_id(node), limits.back_s))
        steps.append(cluster.uncordon(name, "back into service, unless somebody else wants it out"))
    shared = Limits(limits.max_at_once, limits.pause_when_failed)
    return Plan(name, why or "take the node out of service", tuple(steps), shared)


def quarantine(name: str, why: str, value: str) -> Plan:
    """The taint comes first: a node in quarantine does not count as one that is out for a moment."""
    steps = (
        cluster.taint(name, "no new pods, not even those that tolerate a cordon", value),
        cluster.cordon(name, "kept out of service until it is released", None),
    )
    return Plan(name, why or "keep a sick node for study; what runs on it goes on", steps)


def release(name: str, why: str) -> Plan:
    steps = (
        cluster.untaint(name, "the quarantine is over"),
        cluster.uncordon(name, "back into service, if it was exhume that took it out", cluster.ANY),
    )
    return Plan(name, why or "put the node back into service", steps)


def _refuse_another(node: Document, root: Root) -> None:
    if not is_here(node, root):
        name = printable(text_in(node, "metadata", "name"))
        raise Refused(f"node {name} is not this machine: only the node itself is rebooted; run it there, or leave out --reboot")


def is_here(node: Document, root: Root) -> bool:
    """Whether it is the machine this runs on: the kubelet reports the boot_id that the kernel has."""
    try:
        here = root.read("proc/sys/kernel/random/boot_id", 64).decode("ascii", "replace").strip()
    except Unreadable:
        return False
    return bool(here) and boot_id(node) == here
