"""Recordings made of numbers, for detectors: what a node would have shown."""

from exhume.recorder.latency_told import Told, fields, message
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import SourceState
from exhume.sources.latency.discover import Thread
from exhume.sources.latency.stalls import Holder, Stall, What
from exhume.sources.sampling.offenders import Offender

SECOND = 1_000_000_000
HZ = 100


def recording(cpus: int = 4, on: tuple[str, ...] = ("cpu", "memcg", "kernel-log", "units", "throttling", "nic")) -> Recording:
    """Empty, with those sources on and an anchor."""
    made = Recording(Node("node-7", "boot", "5.4.0", "v1", cpus))
    made["anchors"].add(0, 0, 0, 1_700_000_000 * SECOND, 1)
    for name in on:
        made.add_source(0, name, SourceState("on"))
    return made


def cores(
    made: Recording, seconds: float, shares: dict[int, list[tuple[float, float, str]]], step: float = 0.05, at: int = 0
) -> None:
    """CPU rows at a rhythm: per core a list of (from, to, state) in seconds, idle otherwise, in whole ticks."""
    states = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
    for i in range(round(seconds / step) + 1):
        now = i * step
        for core in range(made.node.cpus):
            spent = dict.fromkeys(states, 0.0)
            for start, end, state in shares.get(core, []):
                spent[state] += max(0.0, min(now, end) - start)
            spent["idle"] += now - sum(spent.values())
            made["cpu"].add(at + round(now * SECOND), core, *(1000 + int(spent[state] * HZ) for state in states))


WALK = ("mem_cgroup_iter", "shrink_node", "do_try_to_free_pages", "try_to_free_pages", "__alloc_pages_direct_reclaim")
KUBELET = Holder(11, 12, "kubelet")


def stall(
    made: Recording,
    end: float,
    ms: float,
    core: int = 1,
    device: str = "eth0",
    netns: int = 4026531840,
    holder: Holder | None = KUBELET,
    stack: tuple[str, ...] = WALK,
    samples: tuple[int, int] = (30, 30),
    what: What = "napi",
    over: bool = True,
    cgroup: str = "/system.slice/kubelet.service",
) -> None:
    """A stall that ended then (or was announced then, and lasts), written as the recorder writes it."""
    start, at = round((end - ms / 1000) * SECOND), round(end * SECOND)
    thread = Thread(0, 0, 77, 77, f"napi/{device}-1", device, netns) if device else None
    told = Stall(what, core, start, thread, device, netns, () if thread else ("NET_RX",), at if over else 0)
    offender = Offender(holder.pid, holder.tid, *samples, stack) if over and holder is not None and samples[1] else None
    whole = Told(told, over, at, at - start, holder, "", cgroup, offender)
    made["events"].add(at, "stall" if over else "stall-begins", told.subject, "warning", message(whole), fields(whole))


def sample(
    made: Recording,
    start: float,
    end: float,
    core: int,
    comm: str,
    tid: int,
    stack: tuple[str, ...],
    kind: str = "system",
    hz: int = 99,
    cgroup: str = "/",
) -> None:
    """Stack samples of a core in some time, all of one thread and one kernel stack, the innermost function first."""
    known = len(made["stacks"]) + 1
    for i, name in enumerate(reversed(stack)):
        made["frames"].add(100 * known + i, name, "[kernel]", "kernel", -1)
    made["stacks"].add(known, kind, [100 * known + i for i in range(len(stack))])
    made["threads"].add(known, tid, tid, 0, comm, comm, cgroup, "", "", "")
    for i in range(round((end - start) * hz)):
        made["samples"].add(round((start + (i + 0.5) / hz) * SECOND), core, known, known)
