"""What the kernel was busy with, in words, by the functions on a stack: for a sentence that says why a core was not free.

A kind of work is known by its callers as well as by its innermost function; kernel_functions has the names.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from exhume.findings import kernel_functions as of
from exhume.profile.classes import IRQ, LEFT, SOFTIRQ, mark


class Work(NamedTuple):
    key: str
    words: str
    """After a name: "kubelet walked memory cgroups"."""


WALK: Final = Work("walk", "walked memory cgroups")
FLUSH: Final = Work("flush", "walked memory cgroups to sum up their statistics")
RECLAIM: Final = Work("reclaim", "reclaimed memory")
CONSOLE: Final = Work("console", "printed kernel messages to a slow console")
SHOOTDOWN: Final = Work("shootdown", "waited for other cores to answer (TLB shootdown)")
COMPACTION: Final = Work("compaction", "moved pages about (compaction)")
OOM: Final = Work("oom", "looked for a process to kill (out of memory)")
UNMAP: Final = Work("unmap", "gave back the memory of a process")
WRITEBACK: Final = Work("writeback", "wrote pages back to disk")
FAULT: Final = Work("fault", "served page faults")
LOCK: Final = Work("lock", "spun on a lock")
CGROUPFS: Final = Work("cgroupfs", "listed directories of cgroups or of sysfs")
AUDIT: Final = Work("audit", "wrote audit records")
BPF: Final = Work("bpf", "ran BPF programs")
NETFILTER: Final = Work("netfilter", "filtered packets or tracked connections")
POLLING: Final = Work("polling", "polled a block device")
COMPLETION: Final = Work("completion", "completed block I/O")
FUTEX: Final = Work("futex", "waited for and woke threads (futex)")
FORK: Final = Work("fork", "started or ended processes")
CHARGE: Final = Work("charge", "charged memory to cgroups")
RCU: Final = Work("rcu", "ran RCU callbacks")
SLAB: Final = Work("slab", "allocated or freed kernel objects")
NETWORK: Final = Work("network", "was busy with packets")
SOFTIRQS: Final = Work("softirq", "ran softirqs")
INTERRUPTS: Final = Work("irq", "served interrupts")
USER: Final = Work("user", "ran its own code")
UNKNOWN: Final = Work("unknown", "held the core")
IDLE: Final = Work("idle", "was idle")

# What came on top of a program and is not its doing: these keys.
BORROWED: Final = frozenset({NETWORK.key, SOFTIRQS.key, INTERRUPTS.key})

# A function's traits are bits, so that a stack's are soon found: there can be thousands of stacks, all of some hundred names.
_GROUPS: Final = (
    (of.NETWORK, _NETWORK := 1 << 0),
    (of.CONSOLE, _CONSOLE := 1 << 1),
    (of.OOM, _OOM := 1 << 2),
    (of.PAGES, _PAGES := 1 << 3),
    (of.WALK, _WALK := 1 << 4),
    (of.FLUSH, _FLUSH := 1 << 5),
    (of.READS, _READS := 1 << 6),
    (of.VISITS, _VISITS := 1 << 7),
    (of.RECLAIM, _RECLAIM := 1 << 8),
    (of.SHOOTDOWN, _SHOOTDOWN := 1 << 9),
    (of.COMPACTION, _COMPACTION := 1 << 10),
    (of.UNMAP, _UNMAP := 1 << 11),
    (of.WRITEBACK, _WRITEBACK := 1 << 12),
    (of.FAULT, _FAULT := 1 << 13),
    (of.LOCK, _LOCK := 1 << 14),
    (of.CGROUPFS, _CGROUPFS := 1 << 15),
    (of.AUDIT, _AUDIT := 1 << 16),
    (of.NETFILTER, _NETFILTER := 1 << 17),
    (of.POLLING, _POLLING := 1 << 18),
    (of.COMPLETION, _COMPLETION := 1 << 19),
    (of.FUTEX, _FUTEX := 1 << 20),
    (of.CHARGE, _CHARGE := 1 << 21),
    (of.FORK, _FORK := 1 << 22),
    (of.RCU, _RCU := 1 << 23),
    (of.SLAB, _SLAB := 1 << 24),
    (of.BALANCING, _BALANCING := 1 << 25),
    (of.TIMERS, _TIMERS := 1 << 26),
    (of.CALLS, _CALLS := 1 << 27),
)
_BPF, _IN, _SOFT, _OUT = 1 << 28, 1 << 29, 1 << 30, 1 << 31
_BEGINNINGS: Final = ((of.FLUSH_BEGINNINGS, _FLUSH), (of.BPF_BEGINNINGS, _BPF))
_MARKS: Final = {IRQ: _IN, SOFTIRQ: _SOFT, LEFT: _OUT}

# The first that fits is told: what other work leads to comes before what leads to it.
_KINDS: Final = (
    (_BPF, BPF),
    (_SHOOTDOWN, SHOOTDOWN),
    (_COMPACTION, COMPACTION),
    (_UNMAP, UNMAP),
    (_WRITEBACK, WRITEBACK),
    (_FAULT, FAULT),
    (_LOCK, LOCK),
    (_CGROUPFS, CGROUPFS),
    (_AUDIT, AUDIT),
    (_NETFILTER, NETFILTER),
    (_POLLING, POLLING),
    (_COMPLETION, COMPLETION),
    (_FUTEX, FUTEX),
    (_CHARGE, CHARGE),
    (_FORK, FORK),
    (_RCU, RCU),
    (_SLAB, SLAB),
)
# The same of softirqs and of interrupts. They keep their key: it is still nobody's own work.
_IN_SOFTIRQ: Final = (
    (_RCU, Work(SOFTIRQS.key, "ran RCU callbacks in a softirq")),
    (_COMPLETION, Work(SOFTIRQS.key, "completed block I/O in a softirq")),
    (_BALANCING, Work(SOFTIRQS.key, "balanced load between cores")),
    (_TIMERS, Work(SOFTIRQS.key, "ran timers in a softirq")),
    (_SOFT, SOFTIRQS),
)
_IN_INTERRUPT: Final = (
    (_COMPLETION, Work(INTERRUPTS.key, "completed block I/O in interrupts")),
    (_CALLS, Work(INTERRUPTS.key, "did what other cores asked for (IPI)")),
    (_IN, INTERRUPTS),
)
# Leaves that say nothing: locks, RCU, the scheduler and the like are called from everywhere.
_DULL: Final = (
    *("_raw_", "__raw_", "rcu_read_", "__rcu_read_", "preempt_", "native_", "__cond_resched", "_cond_resched", "asm_"),
    *("__schedule", "schedule", "io_schedule", "context_switch", "__switch_to"),
)


def work(stack: Sequence[str]) -> Work:
    """What a kernel stack, innermost function first, was busy with. Without a name on it nothing is known."""
    found, above = _found(stack)
    if found & _NETWORK:
        return NETWORK
    if above:
        return _first(found, _IN_SOFTIRQ if above == _SOFT else _IN_INTERRUPT) or INTERRUPTS
    # From within anything else: whoever prints pays for everybody's messages, and the search for a victim walks groups, too.
    if found & _CONSOLE:
        return CONSOLE
    if found & _OOM:
        return OOM
    kind = _memcg(found) or _first(found, _KINDS)
    if kind is not None:
        return kind
    named = next((name for name in stack if name and not name.startswith("[")), "")
    return Work("kernel", f"was in {_bare(named)}") if named else UNKNOWN


def _memcg(found: int) -> Work | None:
    if found & _PAGES:
        return RECLAIM
    if found & _WALK:
        return WALK
    if found & _FLUSH:
        return FLUSH
    if found & _READS:
        return WALK
    if found & _VISITS:
        return RECLAIM if found & _LOCK else WALK
    # Reclaim is where an allocation or a fault may end up; what it in turn ends up in (compaction) is told instead.
    return RECLAIM if found & _RECLAIM and not found & _COMPACTION else None


def _first(found: int, kinds: Sequence[tuple[int, Work]]) -> Work | None:
    for bit, kind in kinds:
        if found & bit:
            return kind
    return None


def _found(stack: Sequence[str]) -> tuple[int, int]:
    """The traits of all functions of a stack, or of those of the softirq or interrupt on top of it, and which that is."""
    found, left = 0, False
    for name in stack:
        traits = _traits(name)
        found |= traits
        if traits & _OUT:
            left = True
        elif traits & _SOFT or (traits & _IN and not left):
            # A softirq is told where an interrupt leads to one: what is further out does not change it.
            return found, traits & (_SOFT | _IN)
    return found, 0


@lru_cache(maxsize=1 << 16)
def _traits(name: str) -> int:
    name = _bare(name)
    traits = _MARKS.get(mark(name), 0)
    for functions, bit in _GROUPS:
        traits |= bit if name in functions else 0
    for beginnings, bit in _BEGINNINGS:
        traits |= bit if name.startswith(beginnings) else 0
    return traits


def _bare(name: str) -> str:
    return name.split(".", 1)[0]


def bare(stack: Sequence[str]) -> list[str]:
    """Without what a compiler adds to a name: .isra.0, .constprop.0, .cold."""
    return [_bare(name) for name in stack]


def spins(stack: Sequence[str]) -> bool:
    """Whether it waits for a lock that another core has, whatever it is for."""
    return bool(_found(stack)[0] & _LOCK)


def telling(stack: Sequence[str]) -> str:
    """The innermost function that says what was done: one that the work is known by, or else the first that is not called
    from everywhere."""
    names = [name for name in bare(stack) if name and not name.startswith("[")]
    some = [name for name in names if not name.startswith(_DULL)] or names[:1]
    key = work(names).key
    known = () if key in (SOFTIRQS.key, INTERRUPTS.key) else (name for name in some if work([name]).key == key)
    return next(iter(known), some[0] if some else "")
