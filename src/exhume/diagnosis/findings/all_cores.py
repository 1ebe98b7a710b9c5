"""core-saturated of the machine as a whole: all cores in the kernel at once, or most of them, and what for.

No core stands out then. It is one lock that all want, one limit that all are at, or a shortage that all try to mend.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from exhume.diagnosis.findings import subjects
from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.cores import BUSY, KERNEL, Core, Stretch, saturated, together
from exhume.diagnosis.findings.held import Who, blamed, programs_of, stack_of
from exhume.diagnosis.findings.kernel_work import IDLE, UNKNOWN, USER, Work, telling
from exhume.diagnosis.findings.model import Finding, Span
from exhume.diagnosis.findings.offender import innermost, offender, work_shares
from exhume.diagnosis.findings.sampled import by_core
from exhume.diagnosis.findings.sampled_work import Whose, most
from exhume.diagnosis.findings.spans import merged
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

_SAMPLES = "stack samples of all cores in that time"


class _Seen(NamedTuple):
    """What the stacks of all cores show."""

    total: int
    """Samples in the kernel."""
    works: Counter[Work]
    work: Work
    stack: tuple[str, ...]
    whose: Whose | None
    """The program that has most of them."""
    who: Who | None = None
    own_stack: tuple[str, ...] = ()


def findings(
    recording: Recording, everyone: list[Core], crowd: Sequence[Stretch], machine: float, thresholds: Thresholds
) -> list[Finding[CoreSaturated]]:
    """One or none; of a machine with one core it is that core's. The crowd are the stretches in which a core was full of kernel
    time and the others nearly were."""
    if len(everyone) < 2:
        return []
    shortest_ms = thresholds.machine_kernel_ms
    all_as_one = together(everyone)
    whole = saturated(all_as_one, thresholds.machine_kernel_ratio, shortest_ms)
    spans = [Span(-1, stretch.start, stretch.end) for stretch in whole]
    spans += _at_once(crowd, len(everyone) // 2 + 1, shortest_ms)
    parts = merged(spans).get(-1, [])
    if not parts:
        return []
    states = [all_as_one.spent(*KERNEL, start=start, end=end) for start, end in parts]
    stretches = [
        Stretch(-1, start, end, spent / max(1, total)) for (start, end), (spent, total) in zip(parts, states, strict=True)
    ]
    full = max(stretch.ratio for stretch in stretches) >= thresholds.machine_kernel_ratio
    subject = subjects.ALL_CORES if full else subjects.MOST_CORES
    return [_finding(recording, subject, everyone, stretches, machine, all_as_one.source)]


def _at_once(crowd: Iterable[Stretch], least: int, shortest_ms: int) -> list[Span]:
    """When at least so many cores were full at the same time, for long enough."""
    edges = sorted([(stretch.start, 1) for stretch in crowd] + [(stretch.end, -1) for stretch in crowd])
    found, full, since = [], 0, 0
    for time, step in edges:
        since = time if step > 0 and full + 1 == least else since
        if step < 0 and full == least and time - since >= shortest_ms * 1_000_000:
            found.append(Span(-1, since, time))
        full += step
    return found


def _finding(
    recording: Recording, subject: str, everyone: list[Core], stretches: list[Stretch], machine: float, source: str
) -> Finding[CoreSaturated]:
    longest = max(stretches, key=lambda stretch: stretch.ms)
    when = longest.start, longest.end
    shares = [core.share(*KERNEL, start=when[0], end=when[1]) for core in everyone]
    stolen = _mean(everyone, ("steal",), when)
    facts = CoreSaturated(
        subject=subject,
        read_from=source,
        cores_full=sum(share >= 0.5 for share in shares),
        cores_total=len(everyone),
        longest_ms=longest.ms,
        episodes=len(stretches),
        kernel_ratio=longest.ratio,
        interrupt_ratio=_mean(everyone, ("irq", "softirq"), when),
        busy_ratio=_mean(everyone, BUSY, when),
        machine_busy_ratio=machine,
        steal_ratio=stolen if stolen >= 0.01 else None,
    )
    spans = tuple(Span(-1, stretch.start, stretch.end) for stretch in stretches)
    if (seen := _seen(recording, spans)) is not None:
        facts = _sampled(facts, recording, seen, longest)
    return Finding(facts, "warning", stretches[0].start, stretches[-1].end, spans)


def _mean(everyone: list[Core], states: tuple[str, ...], when: tuple[int, int]) -> float:
    shares = [core.share(*states, start=when[0], end=when[1]) for core in everyone]
    return sum(shares) / max(1, len(shares))


def _sampled(facts: CoreSaturated, recording: Recording, seen: _Seen, longest: Stretch) -> CoreSaturated:
    facts = replace(
        facts,
        samples_from=_SAMPLES,
        samples=seen.total,
        did=seen.work.words,
        did_ratio=seen.works[seen.work] / seen.total,
        did_unclassified=seen.work.key == "kernel",
        function=telling(seen.stack),
        stack=innermost(seen.stack),
        work=work_shares({work.key: count for work, count in seen.works.items()}, seen.total),
    )
    if seen.whose is None or seen.who is None:
        return facts
    return replace(
        facts,
        offender=offender(recording, seen.who, _SAMPLES, seen.own_stack, seen.whose.process),
        holder_ratio=seen.whose.share,
        offender_system_ms=round(seen.whose.share * longest.ms),
        system_time_from=f"{_SAMPLES}, by their share",
    )


def _seen(recording: Recording, spans: Sequence[Span]) -> _Seen | None:
    """None where no samples were taken, or where they do not say what was done."""
    parts = merged(spans).get(-1, [])
    pairs = [np.empty((2, 0), dtype=np.int64)]
    for of_core in by_core(recording).values():
        for start, end in parts:
            rows = slice(np.searchsorted(of_core.times, start, "left"), np.searchsorted(of_core.times, end, "right"))
            pairs.append(np.stack((of_core.threads[rows], of_core.stacks[rows])))
    different, counts = np.unique(np.concatenate(pairs, axis=1), axis=1, return_counts=True)
    known = programs_of(recording)
    works: Counter[Work] = Counter()
    stacks: Counter[tuple[Work, tuple[str, ...]]] = Counter()
    whose: Counter[tuple[Who, tuple[str, ...]]] = Counter()
    for thread, number, count in zip(*different.tolist(), counts.tolist(), strict=True):
        stack = stack_of(recording, number)
        if stack.work in (IDLE, USER):
            continue
        works[stack.work] += count
        stacks[stack.work, stack.names] += count
        if thread in known:
            whose[blamed(known[thread], stack.work), stack.names] += count
    total = works.total()
    if not total or 2 * works[UNKNOWN] > total:
        return None
    work = max(works, key=lambda one: (works[one], one))
    stack_names = max((each for each in stacks if each[0] == work), key=lambda each: (stacks[each], each))[1]
    program = most([(who, count) for (who, _), count in whose.items()], total)
    if program is None or program.share < 0.5:
        return _Seen(total, works, work, stack_names, None)
    name = program.process.comm, program.cgroup
    own = [each for each in whose if (each[0].comm, each[0].cgroup) == name]
    return _Seen(total, works, work, stack_names, program, *max(own, key=lambda each: (whose[each], each)))
