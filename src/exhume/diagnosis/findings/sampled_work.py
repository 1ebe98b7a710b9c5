"""All stack samples by what was done: how much of all cores' time went into a kind of work, when, and whose it was."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from exhume.diagnosis.findings.held import Who, stack_of, threads_of
from exhume.diagnosis.findings.kernel_work import FLUSH, IDLE, RECLAIM, UNKNOWN, WALK, Work
from exhume.diagnosis.findings.sampled import unfit
from exhume.diagnosis.findings.stretches import Floats, Steps
from exhume.diagnosis.findings.subjects import Process
from exhume.host.quantities import SECOND
from exhume.recording.recording import Ints, Recording

Mask: TypeAlias = NDArray[np.bool_]

# mm/vmscan.c, mm/page_alloc.c: who reclaims. kswapd does it for everybody, a task that needs memory for itself (direct),
# because the node has none left or because a cgroup is at its limit. And a task may be told to by a write to a file of a cgroup
# or of /proc (asked), which is nobody's shortage of memory.
_KSWAPD: Final = frozenset("kswapd balance_pgdat kswapd_shrink_node".split())
_OF_NODE: Final = frozenset("try_to_free_pages __alloc_pages_direct_reclaim __perform_reclaim".split())
# mm/memcontrol.c: memory.max (a charge that fails) and memory.high (on the way back to user space)
_OF_LIMIT: Final = frozenset(
    "try_to_free_mem_cgroup_pages try_charge_memcg try_charge reclaim_high mem_cgroup_handle_over_high "
    "__mem_cgroup_handle_over_high".split()
)
_EITHER: Final = frozenset(("do_try_to_free_pages",))
# mm/memcontrol.c, memcontrol-v1.c, vmscan.c, fs/drop_caches.c
_ASKED: Final = frozenset(
    "mem_cgroup_force_empty_write mem_cgroup_force_empty mem_cgroup_resize_max mem_cgroup_resize_limit memory_max_write "
    "memory_high_write memory_reclaim user_proactive_reclaim drop_caches_sysctl_handler".split()
)
BY_KSWAPD, BY_TASK, BY_ORDER, BY_LIMIT = 1, 2, 3, 4


class Whose(NamedTuple):
    """Of some samples, those of one program: all processes of one name in one cgroup."""

    process: Process
    cgroup: str
    share: float


@dataclass(frozen=True, slots=True)
class Sampled:
    """One entry a sample, in order of time."""

    times: Ints
    cores: Ints
    threads: Ints
    known: dict[int, Who]
    works: NDArray[np.int16]
    kinds: tuple[str, ...]
    """The keys of the kinds of work that `works` counts through."""
    reclaims: NDArray[np.int8]
    """Who reclaimed in it: BY_KSWAPD, BY_TASK (direct), BY_LIMIT (direct, for a cgroup at its limit), BY_ORDER, or 0."""
    edges: Ints
    whole: Floats
    """How many samples all cores have in each second, or would have."""

    def doing(self, *works: Work) -> Mask:
        wanted = {work.key for work in works}
        mask: Mask = np.array([key in wanted for key in self.kinds], dtype=np.bool_)[self.works]
        return mask

    @property
    def busy(self) -> Mask:
        return ~self.doing(IDLE)

    @property
    def direct(self) -> Mask:
        """Tasks that reclaim for themselves, for the node's sake or for that of a limit."""
        mask: Mask = np.isin(self.reclaims, (BY_TASK, BY_LIMIT))
        return mask

    @property
    def named(self) -> bool:
        """Whether the stacks say what was done at all: without the kernel's symbols they do not."""
        return 2 * int(self.doing(UNKNOWN).sum()) <= int(self.busy.sum())

    def steps(self, mask: Mask, against: Mask | None = None) -> Steps:
        """The share of all cores' time, or of the samples in `against`, second by second."""
        return Steps(self.edges, self._count(mask), self.whole if against is None else self._count(against))

    def core_steps(self, mask: Mask, core: int) -> Steps:
        """The share of one core's samples."""
        of_core = self.cores == core
        return Steps(self.edges, self._count(mask & of_core), self._count(of_core))

    def _count(self, mask: Mask) -> Floats:
        counted: Floats = np.histogram(self.times[mask], self.edges)[0].astype(np.float64)
        return counted

    def during(self, parts: Iterable[tuple[int, int]]) -> Mask:
        mask = np.zeros(len(self.times), dtype=np.bool_)
        for start, end in parts:
            mask[np.searchsorted(self.times, start, "left") : np.searchsorted(self.times, end, "right")] = True
        return mask

    def most_by(self, mask: Mask) -> Whose | None:
        """Which program most of these samples are of. None where there are none, or they are of no program."""
        return most(list(self._whose(mask)), int(mask.sum()))

    def by_cgroup(self, mask: Mask) -> list[tuple[str, float]]:
        """The cgroups that these samples are of, the most first, each with its share of them."""
        found: Counter[str] = Counter()
        for who, count in self._whose(mask):
            if who.cgroup not in ("", "/"):
                found[who.cgroup] += count
        total = max(1, int(mask.sum()))
        return [(cgroup, count / total) for cgroup, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))]

    def by_process(self, mask: Mask) -> list[tuple[Who, int]]:
        """Samples by process; its threads together, by the name and cgroup of the one that has most."""
        found: dict[int, Counter[Who]] = {}
        for who, count in self._whose(mask):
            if who.pid > 0:
                found.setdefault(who.pid, Counter())[who] += count
        return [(max(of, key=lambda who: (of[who], who)), of.total()) for _, of in sorted(found.items())]

    def _whose(self, mask: Mask) -> Iterable[tuple[Who, int]]:
        ids, counts = np.unique(self.threads[mask], return_counts=True)
        return [(self.known[one], count) for one, count in zip(ids.tolist(), counts.tolist(), strict=True) if one in self.known]


def most(found: Sequence[tuple[Who, int]], total: int) -> Whose | None:
    """By name and cgroup: a program that works in eight processes is one program."""
    counted: Counter[tuple[str, str]] = Counter()
    pids: dict[tuple[str, str], Counter[int]] = {}
    for who, count in found:
        if who.pid > 0 and count > 0:
            counted[who.comm, who.cgroup] += count
            pids.setdefault((who.comm, who.cgroup), Counter())[who.pid] += count
    if not counted or total <= 0:
        return None
    key = max(counted, key=lambda each: (counted[each], each))
    pid = max(pids[key], key=lambda each: (pids[key][each], -each))
    return Whose(Process(key[0], pid, len(pids[key]) - 1), key[1], counted[key] / total)


def sampled(recording: Recording) -> Sampled | None:
    """None where no stacks were sampled, or not of the machine as a whole, or none of them says what was done."""
    found = recording.derived("samples", _sampled) if len(recording["samples"]) and not unfit(recording) else None
    return found if found is not None and found.named else None


def _sampled(recording: Recording) -> Sampled:
    table = recording["samples"]
    order = np.argsort(table.ints("time"), kind="stable")
    times, cores, threads = (table.ints(name)[order] for name in ("time", "core", "thread"))
    stacks, which = np.unique(table.ints("stack")[order], return_inverse=True)
    kinds: dict[str, int] = {}
    works = np.empty(len(stacks), dtype=np.int16)
    reclaims = np.zeros(len(stacks), dtype=np.int8)
    for i, number in enumerate(stacks.tolist()):
        stack = stack_of(recording, number)
        works[i] = kinds.setdefault(stack.work.key, len(kinds))
        if stack.work in (RECLAIM, WALK, FLUSH):
            reclaims[i] = _reclaims(stack.names)
    start, end = int(times[0]), int(times[-1])
    edges = np.linspace(start, max(end, start + 1), max(1, round((end - start) / SECOND)) + 1).astype(np.int64)
    whole = _whole(times, cores, edges, recording.node.cpus, IDLE.key in kinds)
    who = threads_of(recording)
    return Sampled(times, cores, threads, who, works[which], tuple(kinds), reclaims[which], edges, whole)


def _whole(times: Ints, cores: Ints, edges: Ints, cpus: int, idle: bool) -> Floats:
    """Some events do not sample a core that sleeps: then the most that any core had in a second is what each would have."""
    second = np.clip(np.searchsorted(edges, times, "right") - 1, 0, len(edges) - 2)
    numbers, core = np.unique(cores, return_inverse=True)
    counts = np.bincount(second * len(numbers) + core, minlength=(len(edges) - 1) * len(numbers))
    by_core = counts.reshape(len(edges) - 1, len(numbers)).astype(np.float64)
    all_cores = max(cpus, len(numbers))
    if idle:
        return np.asarray(by_core.sum(axis=1) * all_cores / len(numbers), dtype=np.float64)
    seconds = np.diff(edges) / SECOND
    return np.asarray((by_core / seconds[:, None]).max() * seconds * all_cores, dtype=np.float64)


def _reclaims(names: Sequence[str]) -> int:
    found = {name.split(".", 1)[0] for name in names}
    if found & _KSWAPD:
        return BY_KSWAPD
    if found & _ASKED:
        return BY_ORDER
    if found & _OF_NODE:
        return BY_TASK
    if found & _OF_LIMIT:
        return BY_LIMIT
    return BY_TASK if found & _EITHER else 0
