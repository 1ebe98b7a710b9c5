"""Who ran where, by the front of a line of perf script, which comes again and again: it is looked up and hardly ever parsed."""

from array import array

import numpy as np

from exhume.imports import script_sample
from exhume.imports.interner import Interner
from exhume.recording.recording import Ints
from exhume.text import decode

_MANY = 1 << 16
_PLAIN = 200
_CLOCK = b" 1.000000: "
"""Any time, behind the front of a line."""


class Owners(dict[bytes, int]):
    """The front of a line, without the blank before the time: the number of who it is << 1 | whether that is an idle task.

    The idle task of a core is told apart since only its stacks may be idle. -1 for a front that has to be read another way.
    """

    def __init__(self, interner: Interner, anybody: bool) -> None:
        """`anybody`: where nothing tells whose a sample is, the stack says whether it is idle."""
        super().__init__()
        self._interner = interner
        self._anybody = anybody
        self._thread = array("q")
        self._core = array("q")
        self._leaders: dict[int, str] = {}
        self._whose: dict[int, list[bytes]] = {}
        self.remembered = 0
        """Bytes of text that are kept."""
        self.names = 0
        """Bytes of names that were new, since this was set to 0."""
        self.alone = self.homeless = False
        """Some have one number for thread and process; some have no core."""
        self.guessed = False
        """Of some nothing is said: they may be idle, but not without a stack, which an idle task always has."""

    def __missing__(self, front: bytes) -> int:
        if b": " not in front and b":\t" not in front and len(front) < _PLAIN:  # nothing in it can be taken for the time
            return self.of(script_sample.who(front), front + b" ")
        sample = script_sample.parse(front + _CLOCK)
        return self.of(sample.who, sample.text) if sample is not None and sample.text[:-1] == front else -1

    def of(self, who: script_sample.Who, text: bytes) -> int:
        """Remembered where the quick way through a line comes to the same place in it."""
        comm = decode(who.comm)
        if who.both and who.pid == who.tid and self._leaders.get(who.pid) != comm:
            if len(self._leaders) > _MANY:
                self._leaders.clear()
            self._leaders[who.pid] = comm
            for known in self._whose.pop(who.pid, ()):
                self.pop(known, None)
        process = self._leaders.get(who.pid, "") if who.both else ""
        self.alone |= not who.both and who.tid != -1
        self.homeless |= who.core < 0
        guessed = self._anybody and who.tid == -1 and not comm
        self.guessed |= guessed
        idle = guessed or who.pid == 0 or (who.tid == -1 and comm == "swapper")
        found = len(self._thread) << 1 | idle
        self._thread.append(self._interner.thread(who.pid, who.tid, comm, process))
        self._core.append(who.core)
        self.names += len(comm)
        if text.endswith(b" ") and b": " not in text:
            self[text[:-1]] = found
            self._whose.setdefault(who.pid, []).append(text[:-1])
            self.remembered += len(text)
        return found

    @property
    def many(self) -> bool:
        return len(self._thread) > _MANY

    def cores_and_threads(self, found: Ints) -> tuple[Ints, Ints]:
        number = found >> 1
        return np.frombuffer(self._core, dtype=np.int64)[number], np.frombuffer(self._thread, dtype=np.int64)[number]

    def forget(self) -> None:
        """All texts and their numbers."""
        self.clear()
        self._whose.clear()
        self._thread, self._core = array("q"), array("q")
        self.remembered = 0
