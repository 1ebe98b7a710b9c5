"""core-saturated of the machine as a whole: all cores in the kernel at once, or most of them, and what for.

No core stands out then. It is one lock that all want, one limit that all are at, or a shortage that all try to mend.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from exhume.findings.cores import BUSY, KERNEL, Core, Stretch, saturated, together
from exhume.findings.held import Who, belongs, blamed, programs_of, stack_of
from exhume.findings.kernel_threads import of_kernel
from exhume.findings.kernel_work import IDLE, UNKNOWN, USER, Work, telling
from exhume.findings.model import Evidence, Finding, Span
from exhume.findings.sampled import by_core
from exhume.findings.sampled_work import Whose, most
from exhume.findings.spans import merged
from exhume.findings.stall_words import SHARES, text
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.text import printable

KIND = "core-saturated"
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
) -> list[Finding]:
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
    subject = "all cores" if max(stretch.ratio for stretch in stretches) >= thresholds.machine_kernel_ratio else "most cores"
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
) -> Finding:
    longest = max(stretches, key=lambda stretch: stretch.ms)
    when = longest.start, longest.end
    shares = [core.share(*KERNEL, start=when[0], end=when[1]) for core in everyone]
    full = sum(share >= 0.5 for share in shares)
    interrupts, working = (_mean(everyone, states, when) for states in (("irq", "softirq"), BUSY))
    evidence = [
        Evidence("cores", full, f"of {len(everyone)}, most of their time in the kernel", source),
        Evidence("longest", longest.ms, "ms", source),
        Evidence("episodes", len(stretches), "", source),
        Evidence("kernel time", round(longest.ratio, 3), "of all cores' time", source),
        Evidence("interrupt time", round(interrupts, 3), "of all cores' time, irq and softirq", source),
        Evidence("busy meanwhile", round(working, 3), "of all cores' time", source),
        Evidence("machine busy", round(machine, 3), "of all cores' time", source),
    ]
    if (stolen := _mean(everyone, ("steal",), when)) >= 0.01:
        evidence.append(Evidence("steal", round(stolen, 3), "of all cores' time meanwhile", source))
    cores = f"all {full} cores" if full == len(everyone) else f"{full} of {len(everyone)} cores"
    summary = f"{cores} at once in the kernel, {times(stretches)}: {longest.ratio:.0%} of the time of all"
    spans = tuple(Span(-1, stretch.start, stretch.end) for stretch in stretches)
    seen = _seen(recording, spans)
    if seen is not None:
        said, more = _told(recording, seen, longest)
        summary, evidence = summary + said, evidence + more
    return Finding(KIND, subject, "warning", stretches[0].start, stretches[-1].end, summary, tuple(evidence), spans)


def _mean(everyone: list[Core], states: tuple[str, ...], when: tuple[int, int]) -> float:
    shares = [core.share(*states, start=when[0], end=when[1]) for core in everyone]
    return sum(shares) / max(1, len(shares))


def _told(recording: Recording, seen: _Seen, longest: Stretch) -> tuple[str, list[Evidence]]:
    share = seen.works[seen.work] / seen.total
    function = telling(seen.stack)
    where = f", {function}" if function and seen.work.key != "kernel" else ""
    said = f"; most often ({share:.0%} of the samples) it {seen.work.words}{where}"
    evidence = [Evidence("stack samples", seen.total, "in the kernel", _SAMPLES)]
    if seen.whose is not None and seen.who is not None:
        evidence.append(Evidence("process", seen.whose.process, "", _SAMPLES))
        own_ms = round(seen.whose.share * longest.ms)
        evidence.append(Evidence("its system time", own_ms, "ms of each core", f"{_SAMPLES}, by their share"))
        evidence += [*belongs(seen.who, "/proc/PID/cgroup"), *of_kernel(recording, seen.who, seen.own_stack)]
        said += f"; {seen.whose.share:.0%} of them are of {printable(seen.whose.process, 64)}"
    evidence.append(Evidence("it", seen.work.words, "", _SAMPLES))
    evidence.append(Evidence("function", function, "", _SAMPLES))
    evidence.append(Evidence("stack", text(seen.stack), "", _SAMPLES))
    for work, what in SHARES.items():
        if part := seen.works[work]:
            evidence.append(Evidence(what, round(part / seen.total, 3), "of the samples", _SAMPLES))
    return said, evidence


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
    name = program.process.rpartition(" [")[0]
    own = [each for each in whose if (each[0].comm, each[0].cgroup) == (name, program.cgroup)]
    return _Seen(total, works, work, stack_names, program, *max(own, key=lambda each: (whose[each], each)))


def times(stretches: Sequence[Stretch]) -> str:
    longest = max(stretch.ms for stretch in stretches)
    return f"{len(stretches)} times, longest {longest:,} ms" if len(stretches) > 1 else f"for {longest:,} ms"
