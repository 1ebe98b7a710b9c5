"""Numbers for the functions, stacks and threads that a text names, each told once, as a recording's dictionaries want them."""

from exhume.imports.incoming import Ids
from exhume.recording.recording import Recording
from exhume.sources.sampling import classes

# Stacks after which a new chapter is due, as in profiler.py.
MOST_STACKS = 1 << 17


class Interner:
    def __init__(self, ids: Ids, named: bool = True) -> None:
        """`named`: the kernel's functions have names, so that idle ones can be told."""
        self._ids = ids
        self._named = named
        self._frames: dict[tuple[str, str, str, int], int] = {}
        self._stacks: dict[tuple[tuple[int, ...], bool], int] = {}
        self._threads: dict[tuple[int, int, str, str, str], int] = {}
        self._marks: dict[int, int] = {}
        self._kernel: set[int] = set()
        self._frame_rows: list[tuple[int, str, str, str, int]] = []
        self._stack_rows: list[tuple[int, str, list[int]]] = []
        self._thread_rows: list[tuple[int, int, int, int, str, str, str, str, str, str]] = []

    @property
    def full(self) -> bool:
        """Time for a new chapter."""
        return len(self._stacks) > MOST_STACKS or len(self._threads) > MOST_STACKS

    def forget(self) -> None:
        """A new chapter: all is told anew, under new numbers."""
        for known in (self._frames, self._stacks, self._threads, self._marks, self._kernel):
            known.clear()

    def frame(self, name: str, module: str, space: str, offset: int = -1) -> int:
        """Without a name it is "" and told apart by its offset; `space` is kernel or user."""
        key = (name, module, space, offset)
        number = self._frames.get(key)
        if number is None:
            number = self._frames[key] = self._ids.frames
            self._ids.frames += 1
            self._frame_rows.append((number, *key))
            if space == "kernel":
                self._kernel.add(number)
                if mark := classes.mark(name):
                    self._marks[number] = mark
        return number

    def stack(self, frames: tuple[int, ...], idle_task: bool) -> int:
        """The outermost caller first; `idle_task`: it is of pid 0."""
        number = self._stacks.get((frames, idle_task))
        if number is None:
            number = self._stacks[frames, idle_task] = self._ids.stacks
            self._ids.stacks += 1
            marks = [self._marks[frame] for frame in frames if frame in self._marks]
            kernel = bool(frames) and frames[-1] in self._kernel
            named = self._named and bool(frames)
            self._stack_rows.append((number, classes.of_stack(marks, kernel, idle_task, named), list(frames)))
        return number

    def thread(self, pid: int, tid: int, comm: str, process: str = "", cgroup: str = "") -> int:
        """-1 for what the text does not say."""
        key = (pid, tid, comm, process or comm, cgroup)
        number = self._threads.get(key)
        if number is None:
            number = self._threads[key] = self._ids.threads
            self._ids.threads += 1
            self._thread_rows.append((number, pid, tid, 0, comm, process or comm, cgroup, "", "", ""))
        return number

    def write(self, into: Recording) -> None:
        into["frames"].add_rows(self._frame_rows)
        into["stacks"].add_rows(self._stack_rows)
        into["threads"].add_rows(self._thread_rows)
        self._frame_rows, self._stack_rows, self._thread_rows = [], [], []
