"""The state of a node's three conditions, as node-problem-detector would keep it: true at once, false after ten quiet minutes.

Pure: what was found and the time come from outside. They inform; nothing acts on them unless somebody configures it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from exhume.cluster.document import Document, list_in, seconds, stamp, text_in
from exhume.text import printable

QUIET_S = 600.0
# node-problem-detector writes what has not changed every five minutes (k8sexporter, heartbeatPeriod).
HEARTBEAT_S = 300.0
# The API server takes messages of up to 32 KiB; people read one line.
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Kind:
    """A condition and the findings that make it true, the first the most telling."""

    name: str
    findings: tuple[str, ...]
    quiet_reason: str
    quiet: str


KINDS = (
    Kind(
        "MemoryCgroupLeak", ("memcg-leak", "zombie-memcgs", "cgroup-dirs-leak"), "NoMemoryCgroupLeak", "no memory cgroups leak"
    ),
    Kind(
        "KernelCPUStarvation",
        ("soft-lockup", "core-saturated", "memcg-walk"),
        "NoKernelCPUStarvation",
        "no core is held by the kernel",
    ),
    Kind(
        "NetworkPollStarvation", ("nic-reset", "napi-starved"), "NoNetworkPollStarvation", "network queues are polled in time"
    ),
)
# Reasons are one word in camel case (node-problem-detector; metav1.Condition.reason).
_REASONS = {
    "memcg-leak": "MemoryCgroupsLeak",
    "zombie-memcgs": "ZombieMemoryCgroups",
    "cgroup-dirs-leak": "CgroupDirectoriesLeak",
    "soft-lockup": "SoftLockup",
    "core-saturated": "CoreSaturatedByKernel",
    "memcg-walk": "MemoryCgroupWalk",
    "nic-reset": "NetworkDeviceReset",
    "napi-starved": "NetworkPollLate",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """One finding: its kind and what there is to say."""

    kind: str
    summary: str


@dataclass(frozen=True, slots=True)
class Condition:
    name: str
    bad: bool
    reason: str
    message: str
    since_s: float
    """When it became so."""
    seen_s: float = 0.0
    """When that which makes it true was last found."""


def begin(now_s: float, node: Document | None = None) -> tuple[Condition, ...]:
    """What the node says of itself already is kept: an agent that is restarted has not seen ten quiet minutes yet."""
    told = {text_in(one, "type"): one for one in list_in(node, "status", "conditions")}
    return tuple(_begun(kind, told.get(kind.name, {}), now_s) for kind in KINDS)


def _begun(kind: Kind, told: Document, now_s: float) -> Condition:
    since = seconds(text_in(told, "lastTransitionTime"))
    since_s = now_s if since is None or since > now_s else since
    if text_in(told, "status") == "True":
        reason, message = text_in(told, "reason"), text_in(told, "message")
        return Condition(kind.name, True, reason, printable(message, _LONGEST), since_s, now_s)
    quiet_since = since_s if text_in(told, "status") == "False" else now_s
    return Condition(kind.name, False, kind.quiet_reason, kind.quiet, quiet_since)


def step(conditions: Iterable[Condition], found: Iterable[Seen], now_s: float) -> tuple[Condition, ...]:
    """What they are after a look at the node. While one stays true its reason and message stay, too, or they would flap."""
    by_kind: dict[str, Seen] = {}
    for one in found:
        by_kind.setdefault(one.kind, one)
    kinds = {kind.name: kind for kind in KINDS}
    return tuple(_after(one, kinds[one.name], by_kind, now_s) for one in conditions)


def _after(before: Condition, kind: Kind, found: Mapping[str, Seen], now_s: float) -> Condition:
    telling = next((found[name] for name in kind.findings if name in found), None)
    if telling is not None:
        if before.bad:
            return replace(before, seen_s=now_s)
        message = printable(telling.summary, _LONGEST)
        return Condition(kind.name, True, _REASONS[telling.kind], message, now_s, now_s)
    if before.bad and now_s - before.seen_s >= QUIET_S:
        return Condition(kind.name, False, kind.quiet_reason, kind.quiet, now_s)
    return before


def changed(before: Iterable[Condition], after: Iterable[Condition]) -> tuple[Condition, ...]:
    """Those that became true or false: each is an event."""
    return tuple(new for old, new in zip(before, after, strict=True) if old.bad != new.bad)


def patch(conditions: Iterable[Condition], now_s: float) -> Document:
    """For nodes/status, strategic: conditions are merged by type, so that nobody else's are touched."""
    return {
        "status": {
            "conditions": [
                {
                    "type": one.name,
                    "status": "True" if one.bad else "False",
                    "reason": one.reason,
                    "message": one.message,
                    "lastTransitionTime": stamp(one.since_s),
                    "lastHeartbeatTime": stamp(now_s),
                }
                for one in conditions
            ]
        }
    }


def event(one: Condition, node: str, now_s: float) -> Document:
    """As node-problem-detector makes them: of the node, whose uid is its name there, in the namespace default."""
    moment = stamp(now_s)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{node[:200]}.", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node},
        "type": "Warning" if one.bad else "Normal",
        "reason": one.reason,
        "message": f"Node condition {one.name} is now: {one.bad}, reason: {one.reason}, message: {one.message}",
        "source": {"component": "exhume", "host": node},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
