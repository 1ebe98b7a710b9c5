"""Stacks of perf script by their text: what was seen once is looked up, as a whole, by its callers or line by line."""

from exhume.profile.importing import script_frames
from exhume.profile.importing.interner import Interner

_LONGEST = 4 << 20
"""A stack of more text than this is torn apart."""


class Stacks:
    """Texts and the numbers of what they stand for. Whoever reads many of them looks into `chains`, `frames` and `numbers`."""

    def __init__(self, interner: Interner) -> None:
        self._interner = interner
        self.chains: dict[bytes, int] = {b"": 0}
        """Callers, by all their lines."""
        self.frames: dict[bytes, int] = {b"": 0}
        self.numbers: dict[int, int] = {}
        """Stacks, by callers << 33 | the innermost frame << 1 | whether it is of the idle task."""
        self.remembered = 0
        """Bytes of text that are kept, about."""
        self.names = 0
        """Bytes of names that were new, since this was set to 0."""
        self._chain: list[tuple[int, ...]] = [()]
        self._inlined: set[bytes] = set()
        self._functions: dict[bytes, int] = {}
        self._nowhere = 0

    def forget(self) -> None:
        """All texts; what they stand for keeps its number."""
        for known in (self._functions, self._inlined, self.numbers):
            known.clear()
        self.frames, self.chains, self._chain = {b"": 0}, {b"": 0}, [()]
        self.remembered = self._nowhere = 0

    def frame(self, line: bytes) -> int:
        """The number of a frame; -1 if it is inlined, 0 if it is none."""
        number = self.frames.get(line)
        if number is not None:
            return number
        if line in self._inlined:
            return -1
        function = script_frames.function(line)
        number = self._functions.get(function) if function else None
        if number is None:
            frame = script_frames.parse(line)
            if frame is None or (not line.startswith(b"\t") and script_frames.beside(line)):
                return 0
            self.remembered += len(line) + len(function)
            if frame.inlined:
                self._inlined.add(line)
                return -1
            number = self._interner.frame(frame.name, frame.module, frame.space, frame.offset)
            self.names += len(line)
            if frame == script_frames.NOWHERE:
                self._nowhere = number
            if function:
                self._functions[function] = number
        self.frames[line] = number
        self.remembered += len(line)
        return number

    def _parsed(self, lines: list[bytes]) -> tuple[int, ...] | None:
        """Frames, the outermost first; None if something else is among them."""
        found: list[int] = []
        caller = b""
        known = self.frames.get
        for line in reversed(lines):
            number = known(line) or self.frame(line)
            if not number:
                return None
            if number < 0:
                inlined, outer = script_frames.parse(line), script_frames.parse(caller) or script_frames.NOWHERE
                number = self._interner.frame(inlined.name if inlined is not None else "", outer.module, outer.space)
            else:
                caller = line
            # Where code has no frame pointers the chain leads into data: such a stretch says no more than one of it.
            if number != self._nowhere or not found or found[-1] != number:
                found.append(number)
        return tuple(found)

    def number(self, text: bytes, idle: int) -> int:
        """The number of a stack; 0 if there is something else in its lines."""
        innermost, _, below = text.partition(b"\n")
        return self.of(innermost, below, idle)

    def of(self, innermost: bytes, below: bytes, idle: int) -> int:
        """The same of the innermost frame and its callers, apart."""
        frame = self.frame(innermost)
        if not frame and (innermost or below):
            return 0
        if frame < 0:
            whole = self._parsed([innermost, *(below.split(b"\n") if below else ())])
            return self._interner.stack(whole, bool(idle)) if whole is not None else 0
        chain = self._chain_of(below)
        if chain < 0:
            return 0
        frames = self._chain[chain]
        key = chain << 33 | frame << 1 | idle
        number = self.numbers.get(key)
        if number is None:
            if frame and (frame != self._nowhere or frames[-1:] != (frame,)):
                frames = (*frames, frame)
            number = self.numbers[key] = self._interner.stack(frames, bool(idle))
            self.names += 8 * len(frames)
            self.remembered += 100
        return number

    def _chain_of(self, text: bytes) -> int:
        """The number of the callers in a stack; -1 if there is something else among them."""
        chain = self.chains.get(text)
        if chain is None:
            plain = script_frames.without_nowhere(text)
            chain = self.chains.get(plain)
            if chain is None:
                frames = self._parsed(plain.split(b"\n"))
                if frames is None:
                    return -1
                chain = self.chains[plain] = len(self._chain)
                self._chain.append(frames)
                self.remembered += len(plain) + 8 * len(frames)
            self.chains[text] = chain
            self.remembered += len(text)
        return chain


def _belongs(text: bytes, begin: int) -> bool:
    """Whether the line that begins there is of the sample before it."""
    end = text.find(b"\n", begin)
    return text[begin : begin + 1] in (b"\t", b"") or script_frames.beside(text[begin : end if end >= 0 else None])


def whole(text: bytes) -> tuple[bytes, bytes]:
    """What is certainly whole of these lines, and the last sample, of which more may follow."""
    end = text.rfind(b"\n\n") + 2
    if end == 1 and (end := text.rfind(b"\r\n\r\n") + 4) == 3:
        end = len(text)
        while end > 0 and (end := text.rfind(b"\n", 0, end - 1) + 1) and _belongs(text, end):
            pass
    if len(text) - end > _LONGEST:
        end = len(text)
    return text[:end], text[end:]
