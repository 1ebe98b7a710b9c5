"""What of a profile may leave the node, and under which names: rows for the encoders.

Who runs in a container or a pod is somebody's tenant. Their samples leave only if the pod's Kubernetes namespace is known and
is on the list; all others are counted under one frame, so that totals stay honest, with no name, no label and no function of
theirs. The same goes for threads of which nobody knows whose they are.

Labels become series with most receivers, so there are few: the units and containers that ran most, the rest together. Processes
are no label: their name is the outermost frame.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from exhume.exports.subject import UNKNOWN, Frame, Labels, Names, Row
from exhume.host.owners import PERHAPS, Owner, owner
from exhume.recording.arrays import unique_inverse
from exhume.recording.recording import Recording
from exhume.recording.tally import Tally
from exhume.text import printable

TOP = 20
OTHER = "(other)"
NOT_ALLOWED = Frame("(pod not allowed)", "", False)
NOT_KNOWN = Frame("(owner not known)", "", False)
USER = Frame("(user space)", "", False)
EVERY = "*"
"""In the list of namespaces: all pods and all containers."""
LONGEST = 200


class Tenant(NamedTuple):
    """What is known of a container: its namespace, and what to call it."""

    namespace: str = ""
    pod: str = ""
    container: str = ""


class Rows(NamedTuple):
    rows: list[Row]
    frames: list[Frame]
    samples: int
    withheld: int
    """Samples of those that may not leave."""


class _Who(NamedTuple):
    """A thread, as the world may see it."""

    labels: Labels
    process: Frame | None
    instead: Frame | None
    """One frame for all it did."""
    idle_task: bool = False


_NOBODY = _Who((), None, NOT_KNOWN)
_IDLE_TASK = _Who((), Frame("swapper", "", False), None, True)


def rows(tally: Tally, dictionaries: Recording, namespaces: tuple[str, ...], look: Callable[[Owner], Tenant]) -> Rows:
    """Idle samples are left out. `look` is asked about each container and pod once."""
    names = Names(dictionaries)
    counts: Counter[tuple[Labels, tuple[int, ...]]] = Counter()
    for who, stack, count in _together(tally, names, _seen(dictionaries, frozenset(namespaces), look)):
        counts[who.labels, _stack(names, who, stack)] += count
    hidden = {(names.number(frame),) for frame in (NOT_ALLOWED, NOT_KNOWN)}
    withheld = sum(count for (_, frames), count in counts.items() if frames in hidden)
    ran: Counter[Labels] = Counter()
    for (labels, _), count in counts.items():
        ran[labels] += count
    named = [labels for labels, _ in sorted(ran.items(), key=lambda item: (-item[1], item[0])) if labels]
    few = {labels: labels if place < TOP else (("unit", OTHER),) for place, labels in enumerate(named)}
    together: Counter[tuple[Labels, tuple[int, ...]]] = Counter()
    for (labels, frames), count in counts.items():
        together[few.get(labels, ()), frames] += count
    made = [Row(labels, frames, count) for (labels, frames), count in sorted(together.items(), key=lambda item: -item[1])]
    return _only_used(made, names.frames, sum(together.values()), withheld)


def _together(tally: Tally, names: Names, seen: dict[int, _Who]) -> Iterator[tuple[_Who, int, int]]:
    """Counts by who it was and stack, without the idle ones: many threads look the same, and there are many samples."""
    threads, thread = unique_inverse(tally.thread)
    stacks, stack = unique_inverse(tally.stack)
    whole = [seen.get(one, _NOBODY) for one in threads.tolist()]
    places: dict[_Who, int] = {}
    who = np.array([places.setdefault(one, len(places)) for one in whole], dtype=np.int64)[thread]
    different = list(places)
    idle = np.array([names.kind(one) == "idle" for one in stacks.tolist()], dtype=bool)
    busy = ~idle[stack]
    # Whatever they did: it is not told.
    stack[np.array([one.instead is not None for one in different], dtype=bool)[who]] = 0
    keys, back = unique_inverse(who[busy] * max(1, len(stacks)) + stack[busy])
    counts = np.bincount(back, weights=tally.count[busy], minlength=len(keys)).astype(np.int64)
    for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
        yield different[key // len(stacks)], int(stacks[key % len(stacks)]), count


def _seen(dictionaries: Recording, namespaces: frozenset[str], look: Callable[[Owner], Tenant]) -> dict[int, _Who]:
    tenants: dict[Owner, Tenant] = {}
    found = {}
    for row in dictionaries["threads"].rows():
        known = owner(row["cgroup"])
        whose = Owner(row["unit"] or known.unit, row["pod"] or known.pod, row["container"] or known.container, known.runtime)
        if row["pid"] == 0:
            found[row["id"]] = _IDLE_TASK
        elif not row["cgroup"] or (whose.container == PERHAPS and EVERY not in namespaces):
            found[row["id"]] = _NOBODY
        elif whose.pod or whose.container not in ("", PERHAPS):
            if whose not in tenants:
                tenants[whose] = look(whose) if namespaces else Tenant()
            found[row["id"]] = _tenant(whose, tenants[whose], namespaces, row["process"] or row["comm"])
        else:
            labels: Labels = (("unit", printable(whose.unit, LONGEST)),) if whose.unit else ()
            found[row["id"]] = _Who(labels, _process(row["process"] or row["comm"]), None)
    return found


def _tenant(whose: Owner, tenant: Tenant, namespaces: frozenset[str], process: str) -> _Who:
    if EVERY not in namespaces and (not tenant.namespace or tenant.namespace not in namespaces):
        return _Who((), None, NOT_ALLOWED)
    told = (
        ("unit", whose.unit),
        ("namespace", tenant.namespace),
        ("pod", tenant.pod or whose.pod),
        ("container", tenant.container or whose.container[:12]),
    )
    return _Who(tuple((key, printable(value, LONGEST)) for key, value in told if value), _process(process), None)


def _process(name: str) -> Frame:
    return Frame(name or "[unknown]", "", False)


def _stack(names: Names, who: _Who, stack: int) -> tuple[int, ...]:
    if who.instead is not None:
        return (names.number(who.instead),)
    frames = names.stack(stack)
    if who.idle_task:
        # In a PID namespace of our own everybody outside is number 0, too: only interrupts are the core's, and nobody's.
        if names.kind(stack) not in ("softirq", "irq"):
            return (names.number(NOT_KNOWN),)
        frames = tuple(frame for frame in frames if names.frames[frame].kernel)
    if names.kind(stack) == "user" and all(names.frames[frame] == UNKNOWN for frame in frames):
        frames = (names.number(USER),)  # stacks of programs were not taken
    process = () if who.process is None else (names.number(who.process),)
    return process + (frames or (names.number(UNKNOWN),))


def _only_used(made: list[Row], frames: list[Frame], samples: int, withheld: int) -> Rows:
    """Without the names that only others' stacks have: they must not leave either."""
    places: dict[int, int] = {}
    renumbered = [
        Row(row.labels, tuple(places.setdefault(frame, len(places)) for frame in row.stack), row.count) for row in made
    ]
    return Rows(renumbered, [frames[place] for place in places], samples, withheld)
