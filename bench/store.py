"""The store: what writing, sealing and reading cost, and how many bytes a sample takes, on made-up nodes."""

import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from bench.measure import Row
from exhume.recording.recording import Ints, Node, Recording, labels
from exhume.recording.source_state import SourceState

SECOND = 1_000_000_000
BEGIN = 5_000 * SECOND
REAL = 1_790_000_000 * SECOND
BUDGET = 64 << 30
CLASSES = ("user", "system", "user", "softirq", "user", "system", "irq")


class MadeNode:
    """Samples like those of a real node: cores that keep to their threads, stacks that are drawn like words, and new ones.

    The jitter of times is what cpu-clock had on a real machine at 97 Hz (standard deviation 1 ms idle, 25 us busy).
    """

    def __init__(self, cores: int, hz: int, stacks: int, idle: float, new: float, jitter_ns: int, seed: int = 1) -> None:
        self.node = Node("made", "boot", "6.18", "v2", cores)
        self._random = np.random.default_rng(seed)
        self._cores, self._hz, self._idle, self._new, self._jitter = cores, hz, idle, new, jitter_ns
        self._frames = 20_000
        self._stacks: list[Ints] = [self._random.integers(0, 50, 4)]
        self._pool = stacks
        self._named = 0
        self._written = 0
        self._chapter = 0
        while len(self._stacks) < stacks:
            self._grow()
        # What is seen often is seen early: ids follow how often a stack is drawn, not exactly.
        self._order = np.argsort(np.arange(1, stacks) * self._random.uniform(0.3, 3.0, stacks - 1)) + 1

    def _grow(self) -> None:
        """A new stack: the begin of one that there is, and some calls more; ten to sixty deep."""
        parent = self._stacks[int(len(self._stacks) * self._random.random() ** 2)]
        kept = parent[: int(self._random.integers(0, min(len(parent), 58) + 1))]
        more = max(10 - len(kept), int(self._random.integers(1, 9)))
        calls = (self._frames * self._random.random(more) ** 3).astype(np.int64)
        self._stacks.append(np.concatenate((kept, calls))[:60])

    def second(self, at: int, chapter: int = 1) -> Recording:
        """Everything that was new in a second: samples, and what they refer to if it was not written in this chapter."""
        rows = Recording(self.node)
        begin = BEGIN + at * SECOND
        ticks = np.arange(self._hz) * (SECOND // self._hz)
        times = begin + ticks[None, :] + self._random.normal(0, self._jitter, (self._cores, self._hz)).astype(np.int64)
        core = np.repeat(np.arange(self._cores), self._hz)
        thread = np.where(self._random.random(len(core)) < 0.05, self._random.integers(0, self._cores * 4, len(core)), core) + 1
        stack = self._order[np.minimum(self._random.zipf(1.3, len(core)), self._pool - 1) - 1]
        for place in np.flatnonzero(self._random.random(len(core)) < self._new):
            self._grow()
            stack[place] = len(self._stacks) - 1
        idle = self._random.random(len(core)) < self._idle
        stack[idle], thread[idle] = 0, 0
        if chapter != self._chapter:
            self._chapter, self._named, self._written = chapter, 0, 0
        self._names(rows)
        rows["samples"].add_columns({"time": times.ravel(), "core": core, "thread": thread, "stack": stack})
        self._others(rows, begin, at)
        return rows

    def _names(self, rows: Recording) -> None:
        if not self._named:
            self._named = self._frames
            rows["frames"].add_columns(
                {
                    "id": np.arange(self._frames),
                    "name": [f"{_word(i)}_{_word(i * 7)}::{_word(i * 31)}" for i in range(self._frames)],
                    "module": [
                        ("[kernel]", "/usr/bin/python3.11", f"/usr/lib/lib{_word(i // 500)}.so")[i % 3]
                        for i in range(self._frames)
                    ],
                    "space": [("kernel", "user", "user")[i % 3] for i in range(self._frames)],
                    "offset": np.full(self._frames, -1),
                }
            )
            threads = self._cores * 4 + 1
            names = [f"{_word(i)}/{i}" for i in range(threads)]
            cgroup = [
                f"/kubepods.slice/kubepods-pod{i // 8:08x}.slice/cri-containerd-{i // 4:032x}.scope" for i in range(threads)
            ]
            rows["threads"].add_columns(
                {
                    "id": np.arange(threads),
                    "pid": np.arange(threads) + 1000,
                    "tid": np.arange(threads) + 1000,
                    "start": np.arange(threads) * 10**9,
                    "comm": names,
                    "process": names,
                    "cgroup": cgroup,
                    "unit": [""] * threads,
                    "pod": [path[24:35] for path in cgroup],
                    "container": [path[-38:-6] for path in cgroup],
                }
            )
        new = range(self._written, len(self._stacks))
        self._written = len(self._stacks)
        classes = ["idle" if i == 0 else CLASSES[i % len(CLASSES)] for i in new]
        rows["stacks"].add_columns(
            {"id": np.arange(new.start, new.stop), "class": classes, "frames": self._stacks[new.start :]}
        )

    def _others(self, rows: Recording, begin: int, at: int) -> None:
        """Cores at 10 Hz, 150 counters that change each second, an anchor, an event now and then."""
        for reading in range(10):
            moment = begin + reading * 100_000_000 + int(self._random.integers(0, 200_000))
            ticks = at * 100 + reading * 10
            for core in range(self._cores):
                busy = int(self._random.integers(0, 3))
                rows["cpu"].add(
                    moment, core, ticks // 9 + busy, 0, ticks // 20 + busy, ticks - busy, at // 50, 0, at // 9, 0, 0, 0
                )
        moment = begin + 700_000_000 + int(self._random.integers(0, 2_000_000))
        for i in range(150):
            name = f"{_word(i // 8)}_total"
            rows.count(moment, name, at * (i + 3) * 17 + int(self._random.integers(0, 1 + i * i)), labels(device=f"eth{i % 8}"))
        for path in ("/", "/system.slice"):
            rows["memcg"].add(moment, path, 200 + at % 3, at // 7, 200 + at % 3 + at // 7, "proc-cgroups", "node", 1)
        for pid in range(8):
            rows["processes"].add(moment, 900 + pid, 0, 123, 1, f"proc{pid}", "S", pid % self._cores, at * pid, at, f"/a/{pid}")
        rows["anchors"].add(
            begin + 990_000_000, begin + 1_000, begin + 1_000, REAL + begin + int(self._random.integers(0, 99)), 900
        )
        if at % 20 == 0:
            rows["events"].add(begin, "kernel-line", "", "info", f"something {at} happened", labels(line=at))
            rows.add_source(begin, "cpu", SourceState("on"), at * 1000)


def _word(number: int) -> str:
    """A made-up name, always the same for a number."""
    parts = (
        "mem",
        "cg",
        "sched",
        "run",
        "get",
        "page",
        "walk",
        "lock",
        "tree",
        "node",
        "free",
        "alloc",
        "read",
        "list",
        "copy",
        "wait",
    )
    number = number * 2_654_435_761 % (1 << 32)
    return "_".join(parts[number >> shift & 15] for shift in (4, 12, 20))


@contextmanager
def _directory() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="exhume-bench-", dir=os.environ.get("EXHUME_BENCH_DIR"))
    try:
        yield os.path.join(path, "recording")
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _disk_bytes(path: str) -> int:
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(path) for name in names)


def _rss_mb() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class _Written:
    """What it cost to write seconds of a node through the writer; making them up is not counted."""

    def __init__(self) -> None:
        self.appends: list[float] = []
        self.sealing = 0.0
        self.rss: list[float] = []
        self.bytes = 0
        self.samples = 0


def _write(path: str, made: MadeNode, seconds: int, segment_s: int = 60, chapter_s: int = 3_600) -> _Written:
    from exhume.recording.writer import Writer

    seen = _Written()
    about: dict[str, str | int | bool] = {"hz": 97, "event": "cpu-clock", "kernel_only": False}
    writer = Writer(path, made.node, about, budget_bytes=BUDGET, segment_ns=segment_s * SECOND)
    for at in range(seconds):
        if at and at % chapter_s == 0:
            writer.turn()
        rows = made.second(at, writer.chapter)
        seen.samples += len(rows["samples"])
        process, thread = time.process_time(), time.thread_time()
        writer.append(rows)
        seen.appends.append(time.thread_time() - thread)
        if writer.sealing:
            writer.settle()
            seen.sealing += time.process_time() - process - seen.appends[-1]
            seen.rss.append(_rss_mb())
    process = time.process_time()
    writer.close()
    seen.sealing += time.process_time() - process
    seen.rss.append(_rss_mb())
    seen.bytes = _disk_bytes(path)
    if writer.lost or writer.troubles:
        raise RuntimeError(f"the writer had trouble: {writer.troubles} {writer.lost}")
    return seen


def replay_store(seconds: int = 180) -> Iterator[Row]:
    """96 busy cores at 97 Hz through the writer: CPU, memory, bytes a sample."""
    made = MadeNode(96, 97, stacks=20_000, idle=0.0, new=0.01, jitter_ns=25_000)
    before = _rss_mb()
    with _directory() as path:
        seen = _write(path, made, seconds)
    yield Row(
        f"writer and sealing of 96 busy cores, {seconds} s: share of one core",
        (sum(seen.appends) + seen.sealing) / seconds,
        None,
        "",
        0.1,
    )
    yield Row("  of that appending, a second", 1e3 * statistics.median(seen.appends), None, "ms")
    yield Row("  of that sealing, a segment", 1e3 * seen.sealing / max(1, len(seen.rss)), None, "ms")
    yield Row("  bytes a sample, everything included", seen.bytes / seen.samples, None, "B", 6.0)
    yield Row(
        "  memory of the process at most (the made-up node included)",
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        None,
        "MB",
    )
    yield Row("  memory grown by", seen.rss[-1] - before, None, "MB", 250.0)


def quiet_store(minutes: int = 30) -> Iterator[Row]:
    """Two quiet cores at 97 Hz: CPU of an append, bytes a sample, and memory over 30 segments."""
    made = MadeNode(2, 97, stacks=400, idle=0.9, new=0.002, jitter_ns=1_000_000)
    with _directory() as path:
        seen = _write(path, made, minutes * 60)
    yield Row(
        f"quiet node, {minutes} segments: CPU of an append, median", 1e3 * statistics.median(seen.appends), None, "ms", 0.8
    )
    yield Row("  CPU of sealing a segment", 1e3 * seen.sealing / minutes, None, "ms")
    yield Row("  CPU of both, a second", 1e3 * (sum(seen.appends) + seen.sealing) / (minutes * 60), None, "ms")
    yield Row("  bytes a sample, everything included", seen.bytes / seen.samples, None, "B", 12.0)
    third = max(1, len(seen.rss) // 3)
    yield Row(
        "  memory grown between the first third of segments and the last",
        statistics.median(seen.rss[-third:]) - statistics.median(seen.rss[:third]),
        None,
        "MB",
        2.0,
    )


def _median_ms(run: Callable[[], object], times: int = 15) -> float:
    """Once to warm the page cache, then the median."""
    run()
    seen = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        seen.append(1e3 * (time.perf_counter() - start))
    return statistics.median(seen)


def _windows(path: str, seconds: int) -> Callable[[], object]:
    """The flame graph of 100 ms anywhere, opening the recording each time, as the command does."""
    from exhume.recording.folder import Folder

    random = np.random.default_rng(3)

    def ask() -> object:
        start = BEGIN + int(random.integers(0, (seconds - 1) * SECOND))
        return Folder(path).profile(start, start + SECOND // 10)

    return ask


def store_window(hours: int = 2) -> Iterator[Row]:
    """Two hours at 14 million samples (20 cores, 1,940 samples a second): what reading them costs, warm."""
    from exhume.recording.folder import Folder

    made = MadeNode(20, 97, stacks=20_000, idle=0.3, new=0.005, jitter_ns=200_000)
    seconds = hours * 3_600
    with _directory() as path:
        seen = _write(path, made, seconds)
        found = Folder(path).count("samples")
        whole = _median_ms(lambda: Folder(path).summary(), 5)
        flame = _median_ms(_windows(path, seconds), 31)
        middle = BEGIN + seconds // 2 * SECOND
        samples = _median_ms(lambda: Folder(path).load(middle, middle + SECOND // 10, ("samples",)))
        opening = _median_ms(lambda: Folder(path))
        minute = _median_ms(lambda: Folder(path).profile(middle, middle + 60 * SECOND))
        stacks = Folder(path).count("stacks")
    yield Row(f"{hours} h, {found:,} samples, {stacks:,} stacks: summary of all", whole / 1e3, None, "s", 0.5)
    yield Row("  flame graph of any 100 ms, opening included", flame, None, "ms", 20.0)
    yield Row("  samples alone of 100 ms, opening included", samples, None, "ms")
    yield Row("  of that opening", opening, None, "ms")
    yield Row("  flame graph of a minute", minute, None, "ms")
    yield Row("  bytes a sample, everything included", seen.bytes / seen.samples, None, "B", 6.0)
    yield Row("  samples that were not found again", seen.samples - found, None, "", 0.0)
    yield Row("  CPU of writing and sealing, a second", 1e3 * (sum(seen.appends) + seen.sealing) / seconds, None, "ms")


def store_growth() -> Iterator[Row]:
    """The same questions of 2 minutes, 2 hours and 12 hours (2 cores): the cost grows with the window, not the recording."""
    from exhume.recording.folder import Folder

    costs = []
    for seconds in (120, 7_200, 43_200):
        made = MadeNode(2, 97, stacks=2_000, idle=0.5, new=0.0005, jitter_ns=200_000)
        with _directory() as path:
            _write(path, made, seconds)
            middle = BEGIN + seconds // 2 * SECOND
            flame = _median_ms(_windows(path, seconds), 31)
            folder = Folder(path)
            inside = _median_ms(lambda folder=folder, middle=middle: folder.profile(middle, middle + SECOND // 10), 31)  # type: ignore[misc]
            summary = _median_ms(lambda path=path, middle=middle: Folder(path).summary(middle, middle + 60 * SECOND), 15)  # type: ignore[misc]
            whole = _median_ms(lambda path=path: Folder(path).summary(), 3)  # type: ignore[misc]
        costs.append((flame, inside, summary, whole))
    for place, what in enumerate(
        ("flame graph of any 100 ms, opening included", "the same once opened", "map of a minute, opening included")
    ):
        short, middle_, long = (cost[place] for cost in costs)
        yield Row(f"{what}: 2 min", short, None, "ms")
        yield Row("  2 h", middle_, None, "ms")
        yield Row("  12 h, against 2 h", long, middle_, "ms", 2.0)
    for (*_, whole), name in zip(costs, ("2 min", "2 h", "12 h"), strict=True):
        yield Row(f"map of the whole: {name}", whole, None, "ms")
