"""The profiles of many nodes: the stacks of a window of each, or of the time around every event of a kind."""

from collections.abc import Iterator, Sequence

from exhume.recording.events import nic_resets
from exhume.recording.folder import Folder
from exhume.render.flame import Node, plant

Window = tuple[int, int]


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
