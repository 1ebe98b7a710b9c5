"""A format made up for tests: a line with the axis, then `SECONDS CORE COMM STACK;STACK` or `SECONDS ! MESSAGE`."""

from collections.abc import Iterator

from exhume.imports.incoming import Anchor, Damaged, Ids, Input, Wanted
from exhume.imports.interner import Interner
from exhume.recording.recording import Node, Recording

SECOND = 1_000_000_000


def looks(head: bytes) -> bool:
    return head.startswith(b"made-up ")


def opened(source: Input, wanted: Wanted) -> "MadeUp":
    return MadeUp(source, wanted)


class MadeUp:
    def __init__(self, source: Input, wanted: Wanted) -> None:
        lines = source.exactly(1 << 20).decode().splitlines()
        _, axis, *anchor = lines[0].split()
        assert axis in ("boot", "wall")
        self.axis = axis
        self.node = Node("made", "", "6.1", "", 4)
        self.about: dict[str, str | int | bool] = {"hz": 97, "event": wanted.event or "cycles"}
        self.anchors = [Anchor(0, int(anchor[0]) * SECOND, "made up", anchor[1:] != ["guess"])] if anchor else []
        self.notes: list[str] = []
        self._lines = lines[1:]
        self._interner: Interner | None = None

    @property
    def full(self) -> bool:
        return self._lines[:1] == ["turn"]

    def forget(self) -> None:
        assert self._interner is not None
        self._interner.forget()

    def batches(self, ids: Ids) -> Iterator[Recording]:
        self._interner = names = Interner(ids)
        while self._lines:
            rows = Recording(self.node)
            while self._lines and (line := self._lines.pop(0)) not in ("batch", "turn"):
                when, core, rest = line.split(" ", 2)
                time = round(float(when) * SECOND)
                if core == "!":
                    rows["events"].add(time, "nic-reset-done", "eth0", "info", rest, ())
                    continue
                if core == "broken":
                    raise Damaged("it is broken at byte 7")
                comm, stack = rest.split(" ")
                frames = tuple(names.frame(name, "[kernel]", "kernel") for name in stack.split(";"))
                number = names.stack(frames, comm == "swapper")
                rows["samples"].add(time, int(core), names.thread(7, 7, comm), number)
            names.write(rows)
            if line == "turn":
                self._lines.insert(0, "turn")
            yield rows
            if self._lines[:1] == ["turn"]:
                del self._lines[0]
