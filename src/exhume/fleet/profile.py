"""One profile over many nodes: the stacks of a window of each, or of the time around every event of a kind, put together."""

from collections.abc import Iterable, Iterator, Sequence

from exhume.recording.events import nic_resets
from exhume.recording.folder import Folder
from exhume.render.flame import Kind, Node, plant

Window = tuple[int, int]
# So deep is a tree at most: what is deeper hangs on the last frame.
_DEEPEST = 1024


def together(roots: Iterable[Node]) -> Node:
    """Trees as one: what has the same name at the same place is one frame."""
    whole = _Growing()
    for root in roots:
        waiting: list[tuple[Node, _Growing, int]] = [(root, whole, 0)]
        whole.value += root.value
        while waiting:
            node, into, depth = waiting.pop()
            if depth >= _DEEPEST:
                continue
            for child in node.children:
                key = child.kind, child.name, child.module
                grown = into.children.get(key)
                if grown is None:
                    grown = into.children[key] = _Growing()
                grown.value += child.value
                waiting.append((child, grown, depth + 1))
    return _frozen(whole)


class _Growing:
    __slots__ = ("children", "value")

    def __init__(self) -> None:
        self.value = 0
        self.children: dict[tuple[Kind, str, str], _Growing] = {}


def _frozen(whole: _Growing) -> Node:
    """From the leaves up, without recursion: stacks may be deeper than Python's."""
    order: list[_Growing] = [whole]
    for growing in order:
        order.extend(growing.children.values())
    made: dict[int, tuple[Node, ...]] = {}
    for growing in reversed(order):
        children = [
            Node(name, kind, child.value, made.pop(id(child)), module)
            for (kind, name, module), child in growing.children.items()
        ]
        made[id(growing)] = tuple(sorted(children, key=lambda node: (node.kind, node.name, node.module)))
    return Node("all", "all", whole.value, made[id(whole)])


def of(folder: Folder, windows: Sequence[Window], idle: bool) -> Iterator[Node]:
    """The tree of each window that has samples."""
    for start, end in windows:
        tally, dictionaries = folder.profile(start, end)
        if len(tally.count):
            yield plant(tally, dictionaries, "process", "frame" if idle else "none").node()


def around(folder: Folder, kind: str, before_ns: int, after_ns: int) -> list[Window]:
    """Times around the events whose kind begins so, or around NIC resets; those that touch are one."""
    recording = folder.load(tables=["events"])
    if kind == "nic-reset":
        times = [reset.time for reset in nic_resets(recording)]
    else:
        events = recording["events"]
        rows = zip(events.ints("time").tolist(), events.texts("kind"), strict=True)
        times = sorted(time for time, name in rows if name.startswith(kind))
    found: list[Window] = []
    for time in times:
        start, end = time - before_ns, time + after_ns
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found
