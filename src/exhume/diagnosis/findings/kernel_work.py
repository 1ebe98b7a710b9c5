"""What the kernel was busy with, in words, by the functions on a stack: for a sentence that says why a core was not free.

A kind of work is known by its callers as well as by its innermost function; kernel_functions has the names. Some functions do
something else since some release of the kernel: then the release decides, or that the functions which it lost are seen.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from exhume.diagnosis.findings import kernel_functions as of
from exhume.sources.sampling.classes import IRQ, LEFT, SOFTIRQ, mark


class Work(NamedTuple):
    key: str
    words: str
    """After a name: "kubelet walked memory cgroups"."""


WALK: Final = Work("walk", "walked memory cgroups")
FLUSH: Final = Work("flush", "walked memory cgroups to sum up their statistics")
STATISTICS: Final = Work("statistics", "read statistics of memory cgroups")
RECLAIM: Final = Work("reclaim", "reclaimed memory")
CONSOLE: Final = Work("console", "printed kernel messages to a slow console")
SHOOTDOWN: Final = Work("shootdown", "waited for other cores to answer (TLB shootdown)")
NUMA: Final = Work("numa", "moved pages to the node that uses them (NUMA balancing)")
OFFLINE: Final = Work("offline", "emptied memory that is to be taken away")
COMPACTION: Final = Work("compaction", "moved pages about (compaction)")
MIGRATION: Final = Work("migration", "moved pages elsewhere")
OOM: Final = Work("oom", "looked for a process to kill (out of memory)")
TRIM: Final = Work("trim", "trimmed its memory (madvise)")
UNMAP: Final = Work("unmap", "gave back the memory of a process")
WRITEBACK: Final = Work("writeback", "wrote pages back to disk")
FAULT: Final = Work("fault", "served page faults")
LOCK: Final = Work("lock", "spun on a lock")
CGROUPFS: Final = Work("cgroupfs", "listed directories of cgroups or of sysfs")
AUDIT: Final = Work("audit", "wrote audit records")
BPF: Final = Work("bpf", "ran BPF programs")
NETFILTER: Final = Work("netfilter", "filtered packets or tracked connections")
POLLING: Final = Work("polling", "polled a device or a ring of requests")
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
    (of.READS_NUMA_STAT, _READS_NUMA_STAT := 1 << 6),
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
    (of.READS_STAT, _READS_STAT := 1 << 28),
    (of.NEXT, _NEXT := 1 << 29),
    (of.NUMA, _NUMA := 1 << 30),
    (of.OFFLINE, _OFFLINE := 1 << 31),
    (of.MIGRATION, _MIGRATION := 1 << 32),
    (of.TRIM, _TRIM := 1 << 33),
    (of.MADVISE, _MADVISE := 1 << 34),
    (of.DRAIN, _DRAIN := 1 << 35),
)
_BPF, _IN, _SOFT, _OUT, _MEMCG = 1 << 36, 1 << 37, 1 << 38, 1 << 39, 1 << 40
_BEGINNINGS: Final = ((of.FLUSH_BEGINNINGS, _FLUSH), (of.BPF_BEGINNINGS, _BPF))
_MARKS: Final = {IRQ: _IN, SOFTIRQ: _SOFT, LEFT: _OUT}

# The first that fits is told: what other work leads to comes before what leads to it.
_KINDS: Final = (
    (_BPF, BPF),
    (_SHOOTDOWN, SHOOTDOWN),
    (_NUMA, NUMA),
    (_OFFLINE, OFFLINE),
    (_COMPACTION, COMPACTION),
    (_MIGRATION, MIGRATION),
    (_TRIM, TRIM),
    (_UNMAP, UNMAP),
    (_WRITEBACK, WRITEBACK),
    (_DRAIN, CHARGE),
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
    *("css_next_", "css_rightmost_"),
    *("do_syscall_64", "entry_SYSCALL_64", "x64_sys_call", "exc_page_fault", "do_el0_svc", "el0_svc", "el0t_64_sync"),
    *("__x86_indirect_", "__x86_return_thunk", "srso_", "retbleed_"),  # arch/x86/lib/retpoline.S
)


class Walks(NamedTuple):
    """Which of the files that once were a walk over all memory cgroups below one still are, on some kernel."""

    numa_stat: bool = True
    stat: bool = True


_NOT_KNOWN: Final = Walks()


def walks(release: str, stacks: Iterable[Sequence[str]] = ()) -> Walks:
    """By the release, and by stacks of that kernel: one on which the walk is seen below the file settles it."""
    known = re.match(r"(\d{1,4})\.(\d{1,4})", release)
    version = (int(known[1]), int(known[2])) if known else (0, 0)
    seen = 0
    for stack in stacks:
        found, above = _found(stack)
        seen |= found if found & (_WALK | _NEXT) and not found & (_VISITS | _RECLAIM) and not above else 0
    return Walks(version < (5, 8) or bool(seen & _READS_NUMA_STAT), version < (5, 2) or bool(seen & _READS_STAT))


def work(stack: Sequence[str], walked: Walks = _NOT_KNOWN) -> Work:
    """What a kernel stack, innermost function first, was busy with. Without a name on it nothing is known; nor are the files
    that its kernel walks groups for, unless somebody says."""
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
    if found & _MADVISE and found & _UNMAP:
        found |= _TRIM
    kind = _memcg(found, walked, stack) or _first(found, _KINDS)
    if kind is not None:
        return kind
    named = _telling(stack)
    return Work("kernel", f"was in {named[0]}") if named else UNKNOWN


def _memcg(found: int, walked: Walks, stack: Sequence[str]) -> Work | None:
    if found & _PAGES or (found & _VISITS and _scanner(stack)):
        return RECLAIM
    if found & _WALK:
        return WALK
    if found & _FLUSH:
        return FLUSH
    if found & _NEXT and found & (_MEMCG | _VISITS | _RECLAIM):
        return WALK
    if found & (_READS_NUMA_STAT | _READS_STAT):
        # memory.stat calls what memory.numa_stat calls, with its own function below it.
        return WALK if (walked.stat if found & _READS_STAT else walked.numa_stat) else STATISTICS
    if found & _VISITS:
        return RECLAIM if found & _LOCK else WALK
    # Reclaim is where an allocation or a fault may end up; what it in turn ends up in (compaction) is told instead.
    return RECLAIM if found & _RECLAIM and not found & _COMPACTION else None


def _scanner(stack: Sequence[str]) -> str:
    """The shrinker that was told to free something; empty where it was only asked how much it has, or where nobody knows."""
    names = bare(stack)
    if of.ASKS_SHRINKERS not in names:
        return ""
    called = [name for name in names[: names.index(of.ASKS_SHRINKERS)] if name and not name.startswith("[")]
    name = called[-1] if called else ""
    own = name in of.SHRINKERS_OWN or name.startswith(_DULL) or mark(name) != 0
    return "" if own or "count" in name.split("_") else name


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
    if "mem_cgroup" in name or "memcg" in name:
        traits |= _MEMCG
    return traits


def _bare(name: str) -> str:
    return name.split(".", 1)[0]


def bare(stack: Sequence[str]) -> list[str]:
    """Without what a compiler adds to a name: .isra.0, .constprop.0, .cold."""
    return [_bare(name) for name in stack]


def spins(stack: Sequence[str]) -> bool:
    """Whether it waits for a lock that another core has, whatever it is for."""
    return bool(_found(stack)[0] & _LOCK)


def _telling(stack: Sequence[str]) -> list[str]:
    """Names that are not called from everywhere, or the innermost one if all are; none where there are no names."""
    names = [name for name in bare(stack) if name and not name.startswith("[")]
    return [name for name in names if not name.startswith(_DULL)] or names[:1]


def telling(stack: Sequence[str]) -> str:
    """The innermost function that says what was done: one that the work is known by, or else the first that is not called
    from everywhere."""
    some, key = _telling(stack), work(stack).key
    if key == RECLAIM.key and (scanner := _scanner(stack)):
        return scanner
    known = () if key in (SOFTIRQS.key, INTERRUPTS.key) else (name for name in some if work([name]).key == key)
    return next(iter(known), some[0] if some else "")
