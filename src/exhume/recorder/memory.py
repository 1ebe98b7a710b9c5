"""A recording that stays in memory, as a recorder's store."""

from exhume.recording.recording import Node, Recording


class Memory:
    def __init__(self, node: Node) -> None:
        self.recording = Recording(node)
        self.chapter = 0
        self.lost: dict[str, int] = {}
        self.next_ids = {"stacks": 1, "threads": 1, "frames": 1}

    @property
    def size_bytes(self) -> int:
        """On disk."""
        return 0

    def append(self, rows: Recording) -> None:
        self.recording.extend(rows)

    def turn(self) -> None:
        self.chapter += 1
