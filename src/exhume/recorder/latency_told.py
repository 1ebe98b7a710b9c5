"""A stall and who is to blame for it, in words and in the fields of its event."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from exhume.host.quantities import MILLISECOND, milliseconds
from exhume.recording.recording import Labels, labels
from exhume.sources.latency.stalls import Holder, Stall

if TYPE_CHECKING:  # a check that finds nothing does not need it
    from exhume.sources.sampling.offenders import Offender

# From the innermost function on so many are told with a stall.
DEEPEST: Final = 24


@dataclass(frozen=True, slots=True)
class Told:
    """A stall and who is to blame, as far as is known now."""

    stall: Stall
    over: bool
    at: int
    length_ns: int
    holder: Holder | None
    policy: str
    """The holder's, if it is not an ordinary one: SCHED_FIFO 50."""
    cgroup: str
    offender: "Offender | None"


# include/uapi/linux/sched.h; SCHED_NORMAL is what everybody has
_POLICIES = {1: "SCHED_FIFO", 2: "SCHED_RR", 3: "SCHED_BATCH", 5: "SCHED_IDLE", 6: "SCHED_DEADLINE", 7: "SCHED_EXT"}


def parse_policy(raw: bytes) -> str | None:
    """The scheduling policy in /proc/TID/stat, fields 40 and 41 of proc(5), with its priority if it is real-time; "" for the
    ordinary one. None for a process that has ended."""
    words = raw[raw.rfind(b")") + 1 :].split()
    if len(words) < 39 or not words[37].isdigit() or not words[38].isdigit() or words[0] in (b"Z", b"X"):
        return None
    name = _POLICIES.get(int(words[38]), "")
    return f"{name} {int(words[37])}" if name in ("SCHED_FIFO", "SCHED_RR") else name


def in_interrupt(stack: tuple[str, ...]) -> str:
    """What a core did on top of whoever was there, which is not to blame for it: "softirqs", "interrupts", or ""."""
    from exhume.sources.sampling.classes import IRQ, LEFT, SOFTIRQ, mark

    left = False
    for name in stack:  # innermost first; an interrupt that was left again is only what the sample itself came by
        kind = mark(name)
        if kind == LEFT:
            left = True
        elif kind == SOFTIRQ:
            return "softirqs"
        elif kind == IRQ and not left:
            return "interrupts"
    return ""


def message(told: Told) -> str:
    """A stall in a sentence."""
    stall = told.stall
    late = milliseconds(told.length_ns / MILLISECOND) + ("" if told.over else " and lasts")
    if stall.what == "napi":
        what = f"{stall.device or 'a network device'} was due to be polled on core {stall.core} for {late}"
    elif stall.what == "softirq":
        what = f"softirq {', '.join(stall.vectors)} was due on core {stall.core} for {late}"
    else:
        what = f"{stall.subject} waited for core {stall.core} for {late}"
    if stall.throttled:
        return f"{what}; the quota of its cgroup held it back"
    if told.offender is not None and (kind := in_interrupt(told.offender.stack)):
        return f"{what}; the core was busy with {kind}"
    if told.holder is None:
        return f"{what}; who held the core is not known"
    if not told.holder.tid:
        return f"{what}; the core was idle, in a softirq, had interrupts off, or did not run at all"
    where = f" in {told.offender.stack[0]}" if told.offender is not None and told.offender.stack else ""
    policy = f" ({told.policy})" if told.policy else ""
    return f"{what}; {told.holder.comm} [{told.holder.pid}]{policy} held the core{where}"


def fields(told: Told) -> Labels:
    stall = told.stall
    said: dict[str, str | int] = {
        "what": stall.what,
        "cpu": stall.core,
        "start_ns": stall.start,
        "us": told.length_ns // 1000,
        "error_us": stall.error_ns // 1000,
    }
    if stall.throttled:
        said["throttled"] = 1
    if stall.device:
        said["device"] = stall.device
    if stall.netns:
        said["netns"] = stall.netns
    if stall.thread is not None:
        said |= {"thread": stall.thread.comm, "tid": stall.thread.tid}
    if stall.vectors:
        said["vectors"] = " ".join(stall.vectors)
    if told.holder is not None:
        said |= {"offender_pid": told.holder.pid, "offender_tid": told.holder.tid, "offender_comm": told.holder.comm}
    if told.policy:
        said["offender_policy"] = told.policy
    if told.cgroup:
        said["offender_cgroup"] = told.cgroup
    if told.offender is not None:
        said |= {"offender_samples": told.offender.samples, "samples": told.offender.total}
        if told.offender.stack:
            said["stack"] = ";".join(told.offender.stack[:DEEPEST])
    return labels(**said)
