"""Who holds a core while something waits for it: stack samples of that core alone, only while it lasts.

The stack at the moment the waiting thread gets to run shows the way out, not what took so long. A core is sampled from when
a wait on it begins to look suspicious until it is over, so that a quiet machine is not sampled at all.
"""

import struct
from collections import Counter, deque
from typing import NamedTuple, Self

import numpy as np

from exhume.errors import Unreadable
from exhume.kernel.perf import Record, records
from exhume.node.root import Root
from exhume.profile.kernel_symbols import KernelSymbols
from exhume.profile.records import CONTEXT_MAX
from exhume.profile.sampler import Sampler

HZ = 499
# Samples kept of each core: a minute of them.
MOST = 60 * HZ
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
    """Samples the cores that it is told to follow."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._samplers: dict[int, Sampler] = {}
        self._seen: dict[int, deque[_Seen]] = {}
        self._symbols: KernelSymbols | None = None
        self.reason = ""
        """Why cores cannot be sampled."""

    def prepare(self) -> None:
        """Read the names of functions, which takes a tenth of a second, before it matters how long that takes."""
        if self._symbols is None:
            self._symbols = KernelSymbols(self._root)

    def follow(self, cores: set[int]) -> None:
        """Sample these and no others. What was seen of those that are left is kept until they are followed again."""
        for core in [core for core in self._samplers if core not in cores]:
            self._take(core)
            self._samplers.pop(core).close()
        for core in cores - self._samplers.keys():
            if self.reason:
                return
            try:
                self._samplers[core] = Sampler([core], HZ, kernel_only=True)
                self._seen[core] = deque(maxlen=MOST)
            except Unreadable as error:
                self.reason = str(error)

    def who(self, core: int, start: int, end: int, waiting: int = 0) -> Offender | None:
        """Of the samples of a core between two moments; those of the thread that waits are not counted."""
        if core in self._samplers:
            self._take(core)
        seen = [one for one in self._seen.get(core, ()) if start <= one.time <= end and (not waiting or one.tid != waiting)]
        if not seen:
            return None
        (pid, tid), samples = Counter((one.pid, one.tid) for one in seen).most_common(1)[0]
        chains = Counter(one.chain for one in seen if one.tid == tid)
        stacks: Counter[tuple[str, ...]] = Counter()
        for chain, times in chains.items():
            stacks[self._names(chain)] += times
        return Offender(pid, tid, samples, len(seen), stacks.most_common(1)[0][0])

    def close(self) -> None:
        for sampler in self._samplers.values():
            sampler.close()
        self._samplers = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, core: int) -> None:
        for taken in self._samplers[core].take():
            for kind, body in records(taken.samples):
                if kind == Record.SAMPLE and (one := parse(body)) is not None:
                    self._seen[core].append(one)

    def _names(self, chain: bytes) -> tuple[str, ...]:
        addresses = np.frombuffer(chain, dtype=np.uint64)
        addresses = addresses[addresses < CONTEXT_MAX]
        if not len(addresses):
            return ()
        self.prepare()
        symbols = self._symbols
        if symbols is None or symbols.reason:
            return ()
        # All but the innermost are where calls return to, which may be past the end of the function that called.
        addresses = addresses - (np.arange(len(addresses)) > 0).astype(np.uint64)
        return tuple(symbols.name(at) if at >= 0 else "[unknown]" for at in symbols.find(addresses).tolist())


def parse(body: bytes) -> _Seen | None:
    """A sample as the kernel wrote it."""
    if len(body) < _SAMPLE.size:
        return None
    pid, tid, time, _, _, length = _SAMPLE.unpack_from(body)
    if length > (len(body) - _SAMPLE.size) // 8:
        return None
    return _Seen(time, pid, tid, body[_SAMPLE.size : _SAMPLE.size + 8 * length])
