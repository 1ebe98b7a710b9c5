"""Stretches of time on cores, put side by side: how long they are together, and how long two kinds of them overlap."""

from collections.abc import Iterable

from exhume.diagnosis.findings.model import Span


def merged(spans: Iterable[Span]) -> dict[int, list[tuple[int, int]]]:
    """By core and in order, those that touch as one."""
    joined: dict[int, list[tuple[int, int]]] = {}
    for core, start, end in sorted(spans):
        known = joined.setdefault(core, [])
        if known and start <= known[-1][1]:
            known[-1] = known[-1][0], max(known[-1][1], end)
        elif end >= start:
            known.append((start, end))
    return joined


def total_ns(spans: Iterable[Span]) -> int:
    """How long, on whichever core: what happens on two at once counts once."""
    return sum(end - start for parts in merged(span._replace(core=0) for span in spans).values() for start, end in parts)


def overlap_ns(some: Iterable[Span], others: Iterable[Span]) -> int:
    """How long one of each kind was on the same core."""
    theirs = merged(others)
    total = 0
    for core, parts in merged(some).items():
        against = theirs.get(core, [])
        i = 0
        for start, end in parts:
            while i < len(against) and against[i][1] <= start:
                i += 1
            for other_start, other_end in against[i:]:
                if other_start >= end:
                    break
                total += min(end, other_end) - max(start, other_start)
    return total
