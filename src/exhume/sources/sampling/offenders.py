"""Who holds a core while something waits for it: by stack samples of that core, of that time.

The stack at the moment the waiting thread gets to run shows the way out, not what took so long, so cores are sampled all the
time and the samples are forgotten after seconds. To begin only when a core is stuck would be to ask that very core: the
kernel interrupts it and spins until it answers (smp_call_function_single).
"""

import struct
from collections import Counter, deque
from collections.abc import Iterable
from typing import NamedTuple, Self

import numpy as np

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.kernel.perf import Record, records
from exhume.sources.sampling.kernel_symbols import KernelSymbols
from exhume.sources.sampling.records import CONTEXT_MAX
from exhume.sources.sampling.sampler import Sampler

HZ = 99
# So long samples are kept; of a core on which something waits, a minute.
KEPT_NS, LONGEST_NS = 3_000_000_000, 60_000_000_000
TAKE_NS = 250_000_000
_SAMPLE = struct.Struct("=IIQIIQ")  # pid, tid, time, cpu, reserved, length of the chain


class Offender(NamedTuple):
    """Who was on the core most of the time, and its most frequent kernel stack, innermost function first."""

    pid: int
    tid: int
    samples: int
    total: int
    """Samples of that core in that time, whoever they are of."""
    stack: tuple[str, ...]
    """Empty where it was in user space."""


class _Seen(NamedTuple):
    time: int
    pid: int
    tid: int
    chain: bytes


class Offenders:
    """Samples the kernel's stacks on all cores. Where that cannot be, nobody is known, and `reason` says why."""

    def __init__(self, root: Root, cpus: Iterable[int]) -> None:
        self._root = root
        self._symbols: KernelSymbols | None = None
        self._chunks: dict[int, deque[tuple[int, bytes]]] = {}
        """By core: when it was taken, and the records."""
        self._taken = 0
        self._stale = True
        """Whether names of modules may have changed since they were read."""
        self._sampler: Sampler | None = None
        self.reason = ""
        try:
            self._sampler = Sampler(cpus, HZ, kernel_only=True, side_band=False)
        except Unreadable as error:
            self.reason = str(error)

    def prepare(self) -> None:
        """Read the names of functions, which takes a tenth of a second, before it matters how long that takes."""
        if self._symbols is None:
            self._symbols = KernelSymbols(self._root)

    def follow(self, now: int, cores: set[int]) -> None:
        """Call it often: `cores` are those on which something waits."""
        if self._sampler is None or now - self._taken < TAKE_NS:
            return
        self._take(now)
        for core, chunks in self._chunks.items():
            oldest = now - (LONGEST_NS if core in cores else KEPT_NS)
            while chunks and chunks[0][0] < oldest:
                chunks.popleft()

    def who(self, now: int, core: int, start: int, end: int, waiting: int = 0) -> Offender | None:
        """Of the samples of a core between two moments; those of the thread that waits are not counted."""
        if self._sampler is None:
            return None
        self._take(now)
        seen = []
        for taken, chunk in self._chunks.get(core, ()):
            if taken >= start:
                for kind, body in records(chunk):
                    one = parse(body) if kind == Record.SAMPLE else None
                    if one is not None and start <= one.time <= end and (not waiting or one.tid != waiting):
                        seen.append(one)
        if not seen:
            return None
        (pid, tid), samples = Counter((one.pid, one.tid) for one in seen).most_common(1)[0]
        chains = Counter(one.chain for one in seen if one.tid == tid)
        self._stale = True
        stacks: Counter[tuple[str, ...]] = Counter()
        for chain, times in chains.items():
            stacks[self._names(chain)] += times
        return Offender(pid, tid, samples, len(seen), stacks.most_common(1)[0][0])

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, now: int) -> None:
        assert self._sampler is not None
        self._taken = now
        for core, taken in zip(self._sampler.cpus, self._sampler.take(), strict=True):
            if taken.samples:
                self._chunks.setdefault(core, deque()).append((now, taken.samples))

    def _names(self, chain: bytes) -> tuple[str, ...]:
        addresses = np.frombuffer(chain, dtype=np.uint64)
        addresses = addresses[addresses < CONTEXT_MAX]  # marks of what follows, not places
        if not len(addresses):
            return ()
        self.prepare()
        symbols = self._symbols
        if symbols is None or symbols.reason:
            return ()
        # All but the innermost are where calls return to, which may be past the end of the function that called.
        addresses = addresses - (np.arange(len(addresses)) > 0).astype(np.uint64)
        found = symbols.find(addresses)
        if self._stale and any(at < 0 or symbols.module(at) != "[kernel]" for at in found.tolist()):
            # Memory of modules and BPF programs is used again, ours not excepted: who is there now is asked once a stall.
            self._stale = False
            symbols.refresh()
            found = symbols.find(addresses)
        return tuple(symbols.name(at) if at >= 0 else "[unknown]" for at in found.tolist())


def parse(body: bytes) -> _Seen | None:
    """A sample as the kernel wrote it."""
    if len(body) < _SAMPLE.size:
        return None
    pid, tid, time, _, _, length = _SAMPLE.unpack_from(body)
    if length > (len(body) - _SAMPLE.size) // 8:
        return None
    return _Seen(time, pid, tid, body[_SAMPLE.size : _SAMPLE.size + 8 * length])
