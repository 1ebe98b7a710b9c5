"""From rings to rows, on the real kernel: who ran where, in what, under which name; and what stays bounded."""

import os
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.root import Root
from exhume.recording.recording import Node, Recording
from exhume.sources.facts import online_cpus
from exhume.sources.sampling import images, profiler, tasks
from exhume.sources.sampling.profiler import Profiler
from exhume.sources.sampling.sampler import Sampler, Taken
from exhume.sources.sampling.user_symbols import UserSymbols
from tests.sources.sampling import made_records as made
from tests.trees import Tree

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="system-wide samples need root")
CPUS = online_cpus(Root())
CORE = CPUS[-1]
HZ = 499


def empty() -> Recording:
    return Recording(Node("n", "b", "6", "v1", len(CPUS)))


@dataclass(frozen=True)
class Row:
    """A sample with all that it refers to."""

    core: int
    thread: dict[str, Any]
    kind: str
    frames: list[dict[str, Any]]

    @property
    def names(self) -> list[str]:
        return [frame["name"] for frame in self.frames]

    @property
    def spaces(self) -> list[str]:
        return [frame["space"] for frame in self.frames]


class Kept:
    """What a reader knows after each batch: every number must have been told by then."""

    def __init__(self) -> None:
        self.threads: dict[int, dict[str, Any]] = {}
        self.stacks: dict[int, dict[str, Any]] = {}
        self.frames: dict[int, dict[str, Any]] = {}
        self.samples: list[dict[str, Any]] = []

    def add(self, rows: Recording) -> None:
        for name, known in (("frames", self.frames), ("threads", self.threads), ("stacks", self.stacks)):
            for row in rows[name].rows():
                assert name == "frames" or row["id"] not in known, "a number was given twice"
                known[row["id"]] = row
        for row in rows["stacks"].rows():
            assert {*row["frames"]} <= self.frames.keys()
        for row in rows["samples"].rows():
            assert row["thread"] in self.threads
            assert row["stack"] in self.stacks
            self.samples.append(row)

    def rows(self) -> Iterator[Row]:
        for sample in self.samples:
            stack = self.stacks[sample["stack"]]
            frames = [self.frames[frame] for frame in stack["frames"]]
            yield Row(sample["core"], self.threads[sample["thread"]], stack["class"], frames)

    def of(self, pid: int) -> list[Row]:
        return [row for row in self.rows() if row.thread["pid"] == pid]


@dataclass
class Live:
    sampler: Sampler
    profiler: Profiler
    kept: Kept

    def batch(self, seconds: float = 0.0) -> None:
        time.sleep(seconds)
        rows = empty()
        self.profiler.add(self.sampler.take(), rows)
        self.kept.add(rows)

    def until(self, what: Callable[[], bool]) -> None:
        """Batches until it is seen: how long that takes is the machine's affair."""
        deadline = time.monotonic() + 120
        while not what():
            assert time.monotonic() < deadline, "it was not seen within two minutes"
            self.batch(0.1)


@contextmanager
def live(hz: int = HZ, kernel_only: bool = False) -> Iterator[Live]:
    if os.geteuid() != 0:
        pytest.skip("system-wide samples need root")
    with Sampler(CPUS, hz, kernel_only) as sampler:
        of_all = Profiler(Root(), sampler.cgroups, symbols=None if kernel_only else UserSymbols(Root()))
        try:
            yield Live(sampler, of_all, Kept())
        finally:
            of_all.close()


@contextmanager
def child(script: str, *arguments: str, core: int = CORE) -> Iterator[subprocess.Popen[bytes]]:
    """A Python that runs on one core, and has begun."""
    begin = f"import os, sys, ctypes\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\n"
    command = [sys.executable, "-S", "-c", begin + textwrap.dedent(script), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


SPIN_IN_LIBC = "libc = ctypes.CDLL(None)\ndata = ctypes.create_string_buffer(1 << 22)\nwhile True: libc.memfrob(data, 1 << 22)"
SPIN_IN_KERNEL = "fd = os.open('/dev/zero', os.O_RDONLY)\nwhile True: os.read(fd, 1 << 20)"


def test_a_process_that_computes_shows_with_its_name_its_core_and_its_function() -> None:
    with child(SPIN_IN_LIBC) as process, live() as seen:
        seen.until(lambda: len([row for row in seen.kept.of(process.pid) if row.kind == "user"]) > 50)
        # A name may come later than its samples.
        seen.until(lambda: any(frame["name"] == "memfrob" for frame in seen.kept.frames.values()))
        rows = seen.kept.of(process.pid)
    name = Path(sys.executable).resolve().name[:15]
    assert {row.core for row in rows} == {CORE}
    assert {row.thread["process"] for row in rows} <= {name, Path(sys.executable).name[:15]}
    assert {row.thread["tid"] for row in rows} == {process.pid}
    user = [row for row in rows if row.kind == "user"]
    assert len(user) > len(rows) / 2
    innermost = Counter((row.frames[-1]["name"], Path(row.frames[-1]["module"]).name) for row in user)
    (function, module), count = innermost.most_common(1)[0]
    assert function == "memfrob"
    assert module.startswith("libc")
    assert count > len(user) / 2


def test_a_process_in_a_system_call_shows_as_system_with_user_frames_before_those_of_the_kernel() -> None:
    with child(SPIN_IN_KERNEL) as process, live() as seen:
        seen.until(lambda: len([row for row in seen.kept.of(process.pid) if row.kind == "system"]) > 50)
        rows = [row for row in seen.kept.of(process.pid) if row.kind == "system"]
        reason = seen.profiler.kernel.reason
    assert all("kernel" in row.spaces for row in rows)
    assert all(row.spaces == sorted(row.spaces, reverse=True) for row in rows)
    both = [row for row in rows if "user" in row.spaces]
    assert len(both) > len(rows) / 2
    if reason:
        pytest.skip(f"the kernel's functions have no names here: {reason}")
    deep = [row for row in both if any("read" in name for name in row.names[row.spaces.index("kernel") :])]
    assert len(deep) > len(both) / 2
    entry = [row.names[row.spaces.index("kernel")] for row in deep]
    assert Counter(name.startswith(("entry_", "do_syscall", "el0", "x64_sys", "ret_from")) for name in entry).most_common(1)[0][
        0
    ]


def test_kernel_only_has_no_frame_of_user_space_and_still_counts_its_samples() -> None:
    with child(SPIN_IN_LIBC) as process, live(kernel_only=True) as seen:
        seen.until(lambda: len(seen.kept.of(process.pid)) > 50)
        rows = [*seen.kept.rows()]
    assert {frame["space"] for row in rows for frame in row.frames} <= {"kernel"}
    mine = [row for row in rows if row.thread["pid"] == process.pid]
    assert Counter(row.kind for row in mine).most_common(1)[0][0] == "user"
    assert all(row.frames == [] for row in mine if row.kind == "user")


def test_a_short_program_has_the_name_it_was_executed_under() -> None:
    """The side-band tells; /proc does not any more."""
    names: set[str] = set()
    with live(999) as seen:
        for _ in range(60):
            for _ in range(20):
                os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
            seen.batch()
            names = {row.thread["process"] for row in seen.kept.rows()}
            if "true" in names:
                break
    assert "true" in names


def test_a_process_that_renames_itself_to_terminal_escapes_keeps_that_name() -> None:
    script = """
    while not sys.stdin.readline(): pass
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"\\x1b[31mred\\xff", 0, 0, 0)
        print(os.getpid(), flush=True)
        while True: pass
    os.wait()
    """
    with child(script) as process, live() as seen:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        renamed = int(process.stdout.readline())
        try:
            seen.until(lambda: len(seen.kept.of(renamed)) > 20)
            last = seen.kept.of(renamed)[-1].thread
        finally:
            os.kill(renamed, 9)
    assert last["comm"] == last["process"] == "\x1b[31mred\\xff"


def test_threads_have_names_of_their_own_and_that_of_their_process() -> None:
    script = """
    import threading
    def work():
        ctypes.CDLL(None).prctl(15, b"worker-7", 0, 0, 0)
        while True: pass
    threading.Thread(target=work).start()
    """
    with child(script) as process, live() as seen:
        seen.until(lambda: any(row.thread["comm"] == "worker-7" for row in seen.kept.of(process.pid)))
        rows = [row for row in seen.kept.of(process.pid) if row.thread["comm"] == "worker-7"]
    assert {row.thread["process"] for row in rows}.isdisjoint({"worker-7", ""})
    assert process.pid not in {row.thread["tid"] for row in rows}


@needs_root
def test_an_idle_core_is_idle_in_number_zero() -> None:
    """With the functions of this kernel, whether or not a core of it is idle now."""
    wanted = ("do_idle", "cpu_startup_entry", "schedule_idle")
    symbols = (line.split() for line in Path("/proc/kallsyms").read_text().splitlines())
    at = {words[2]: int(words[0], 16) + 8 for words in symbols if words[2] in wanted}
    idle = made.sample(0, 0, 5, CORE, [at["do_idle"], at["cpu_startup_entry"]])
    leaving = made.sample(0, 0, 6, CORE, [at["schedule_idle"]])
    of_all, rows, kept = Profiler(Root(), cgroups=True), empty(), Kept()
    try:
        of_all.add([Taken(idle + leaving, b"")], rows)
    finally:
        of_all.close()
    kept.add(rows)
    assert [(row.kind, row.thread["pid"], row.thread["comm"]) for row in kept.rows()] == [
        ("idle", 0, "swapper"),
        ("system", 0, "swapper"),
    ]


def test_a_busy_core_has_about_as_many_samples_as_were_asked_for() -> None:
    with child(SPIN_IN_LIBC), live(97) as seen:
        begin = time.monotonic()
        seen.sampler.take()
        seen.batch(1.5)
        elapsed = time.monotonic() - begin
        found = [row for row in seen.kept.rows() if row.core == CORE]
        lost = seen.profiler.lost
    assert 0.5 < (len(found) + lost) / (97 * elapsed) < 1.5


def test_a_device_mapped_at_an_offset_beyond_any_file_stops_nothing() -> None:
    """Anybody may: it must cost no more than a name."""
    script = """
    libc = ctypes.CDLL(None)
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_uint64]
    fd = os.open("/dev/zero", os.O_RDWR)
    while True: libc.mmap(0x10000000, 4096, 5, 0x12, fd, 1 << 63)
    """
    with child(script) as process, live() as seen:
        seen.until(lambda: len(seen.kept.of(process.pid)) > 50)


def test_everything_is_told_anew_after_forgetting() -> None:
    with child(SPIN_IN_KERNEL) as process, live() as seen:
        seen.until(lambda: len(seen.kept.of(process.pid)) > 20)
        before = {*seen.kept.stacks}, {*seen.kept.threads}
        seen.profiler.forget()
        seen.kept = Kept()
        seen.until(lambda: len(seen.kept.of(process.pid)) > 20)
        assert not before[0] & seen.kept.stacks.keys()
        assert not before[1] & seen.kept.threads.keys()


# Batches made by hand, where /proc knows nobody.

TEXT = 0xFFFFFFFF81000000


@pytest.fixture
def alone(tmp_path: Path) -> Profiler:
    Tree(tmp_path).write("proc/kallsyms", f"{TEXT:x} T _stext\n{TEXT + 0x100:x} T do_idle\n{TEXT + 0x300:x} T _etext\n")
    return Profiler(Root(str(tmp_path)), cgroups=True)


def short_processes(batch: int, count: int, inode: int = 7) -> Taken:
    """Each forks, executes, maps, is sampled once, and ends."""
    samples, told = [], []
    for i in range(count):
        pid, now = 1000 + batch * count + i, 1_000_000_000 * batch + 1000 * i
        told += [
            made.fork(pid, 1, now),
            made.comm(pid, pid, b"p%d" % pid, now + 1, by_exec=True),
            made.mmap2(pid, 0x10000, 0x1000, b"/bin/short", now + 2, inode=inode + i),
            made.exit_of(pid, now + 9),
        ]
        samples.append(made.sample(pid, pid, now + 5, i % 2, [TEXT + 0x10], [0x10010 + i]))
    return Taken(b"".join(samples), b"".join(told))


def sizes(of: Profiler) -> dict[str, int]:
    """Everything that is remembered between batches."""
    found = {}
    for owner in (of, of.tasks, of._frames, of._images):
        for name, value in vars(owner).items():
            if isinstance(value, dict | list | set) or hasattr(value, "maxlen"):
                found[f"{type(owner).__name__}.{name}"] = len(value)
    return found


def test_each_short_process_is_named_by_what_it_executed(alone: Profiler) -> None:
    kept = Kept()
    rows = empty()
    alone.add([short_processes(1, 5)], rows)
    kept.add(rows)
    assert [row.thread["process"] for row in kept.rows()] == [f"p{pid}" for pid in range(1005, 1010)]
    assert {frame["module"] for row in kept.rows() for frame in row.frames if frame["space"] == "user"} == {"/bin/short"}
    assert {row.kind for row in kept.rows()} == {"system"}


def test_two_hundred_batches_of_new_processes_leave_no_more_behind_than_twenty(alone: Profiler) -> None:
    kept = Kept()
    after: list[dict[str, int]] = []
    for batch in range(200):
        rows = empty()
        alone.add([short_processes(batch, 20)], rows)
        kept.add(rows)
        if batch in (20, 199):
            after.append(sizes(alone))
    assert len(kept.samples) == 200 * 20
    # Raw stacks have a bound of their own.
    grown = {name for name, size in after[1].items() if size > after[0][name] + 40 and name != "Profiler._raw"}
    assert grown == set()


def test_raw_stacks_are_bounded(alone: Profiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "MOST_RAW", 100)
    kept = Kept()
    for batch in range(30):
        rows = empty()
        alone.add([short_processes(batch, 20)], rows)
        kept.add(rows)
        assert len(alone._raw) <= 100
    assert len({sample["stack"] for sample in kept.samples}) < 30


def test_threads_that_come_and_go_in_one_process_are_bounded(alone: Profiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler, "MOST_NAMES", 50)
    monkeypatch.setattr(tasks, "MOST_NAMES", 50)
    kept = Kept()
    for batch in range(20):
        numbers = range(10_000 + 40 * batch, 10_040 + 40 * batch)
        samples = b"".join(made.sample(9, tid, batch * 1000 + tid, user=[0x10]) for tid in numbers)
        told = b"".join(made.fork(9, 9, batch * 1000, tid) + made.comm(9, tid, b"t%d" % tid, batch * 1000) for tid in numbers)
        rows = empty()
        alone.add([Taken(samples, told)], rows)
        kept.add(rows)
        assert len(alone._threads) <= 50
    assert len(kept.threads) == 800


def test_a_node_of_many_images_begins_anew_once_and_not_every_second(alone: Profiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_IMAGES", 64)
    kept = Kept()
    full = 0
    for batch in range(30):
        rows = empty()
        alone.add([short_processes(batch, 4, inode=10 * batch)], rows)
        kept.add(rows)
        if alone.full:
            full += 1
            alone.forget()
            kept = Kept()
    assert 2 <= full <= 4
    assert not alone.full


def test_a_sample_is_given_the_name_that_was_true_at_its_time(alone: Profiler) -> None:
    told = made.comm(5, 5, b"first", 10) + made.comm(5, 5, b"second", 20) + made.comm(5, 5, b"third", 30, by_exec=True)
    samples = b"".join(made.sample(5, 5, at, user=[0x10]) for at in (35, 12, 25, 20))
    rows, kept = empty(), Kept()
    alone.add([Taken(samples, told)], rows)
    kept.add(rows)
    assert [row.thread["comm"] for row in kept.rows()] == ["third", "first", "second", "second"]


def test_what_was_lost_and_throttled_is_counted(alone: Profiler) -> None:
    alone.add([Taken(made.lost(3) + made.lost_samples(2) + made.throttle(), made.lost(7))], empty())
    assert (alone.lost, alone.throttled, alone.side_band_lost, alone.taken) == (5, 1, 7, 0)


RECORDS = st.one_of(
    st.builds(
        made.sample,
        st.integers(0, 6) | st.just(0xFFFFFFFF),
        st.integers(0, 6) | st.just(0xFFFFFFFF),
        st.integers(0, 100),
        st.integers(0, 3),
        st.lists(st.integers(TEXT, TEXT + 0x400) | st.integers(0, (1 << 64) - 1), max_size=4),
        st.lists(st.integers(0, 0x30000) | st.integers(0, (1 << 64) - 1), max_size=4),
        st.integers(0, (1 << 64) - 1),
    ),
    st.builds(made.comm, st.integers(0, 6), st.integers(0, 6), st.binary(max_size=15), st.integers(0, 100), st.booleans()),
    st.builds(
        made.mmap2,
        st.integers(0, 6),
        st.integers(0, (1 << 64) - 1) | st.integers(0, 0x30000),
        st.integers(0, 1 << 20) | st.integers(0, (1 << 64) - 1),
        st.sampled_from([b"/bin/x", b"//anon", b"[vdso]", b"", b"[x]", b"\xff"]),
        st.integers(0, (1 << 64) - 1),
        st.integers(0, (1 << 64) - 1),
        st.integers(0, (1 << 64) - 1),
    ),
    st.builds(made.fork, st.integers(0, 6), st.integers(0, 6), st.integers(0, (1 << 64) - 1), st.integers(0, 6)),
    st.builds(made.exit_of, st.integers(0, 6), st.integers(0, (1 << 64) - 1), st.integers(0, 6)),
    st.builds(made.cgroup, st.integers(0, (1 << 64) - 1), st.binary(max_size=30)),
    st.binary(max_size=40).map(lambda raw: raw[: len(raw) & ~7]),
)


@given(st.lists(st.tuples(st.lists(RECORDS, max_size=12), st.lists(RECORDS, max_size=12), st.booleans()), max_size=4))
def test_whatever_rings_hold_the_rows_hang_together(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[list[bytes], list[bytes], bool]]
) -> None:
    of_all = Profiler(Root(str(tmp_path_factory.getbasetemp())), cgroups=True)
    kept = Kept()
    for samples, told, forget in batches:
        rows = empty()
        of_all.add([Taken(b"".join(samples), b"".join(told))], rows)
        kept.add(rows)
        if forget:
            of_all.forget()
            kept = Kept()
