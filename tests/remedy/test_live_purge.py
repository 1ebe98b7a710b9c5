"""The purge on the real kernel: cold zombies go, what live pods use stays unless that is accepted, a starved core is no trap.

What a live pod loses is what the purge's own processes remove of its files from the page cache (`cache_removals`). Other tasks
may remove pages at any time (DAMON does). Where they removed all pages that pin a zombie, it is gone, and not by the purge.
"""

import json
import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Refused, Unreadable
from exhume.host.cgroups import Hierarchy
from exhume.host.root import Root
from exhume.remedy import reclaim as reclaim_module
from exhume.remedy.child import Child
from exhume.remedy.cores import Cores, visit_cores
from exhume.remedy.reclaim import End, Limit, Reclaimed, Usage, reclaim
from exhume.sources.memcg_walk import walk
from tests import starved, zombies
from tests.kernel.bpf.needs import needs_bpf
from tests.remedy import cache_removals
from tests.remedy.cache_removals import CacheRemovals, indexes, pages
from tests.zombies import MEMORY, PAGE, PARENT

_WHY_NOT = zombies.unavailable()
real = [needs_bpf, pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "zombies can be made")]
_NOT_TRACED = cache_removals.unavailable()
traced = pytest.mark.skipif(bool(_NOT_TRACED), reason=_NOT_TRACED or "removals from the page cache can be recorded")
_numbers = count()
MIB = 1 << 20
FOLIOS = pytest.mark.parametrize("folios", ["large", "small"])


@contextmanager
def data(size: int) -> Iterator[str]:
    """A file on a disk, none of it in the page cache."""
    with tempfile.NamedTemporaryFile(prefix="exhume-test-") as file:
        for _ in range(0, size, MIB):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield file.name
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(path: str, folios: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    if folios == "small":
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # no readahead, so that each page is a folio
    step = PAGE if folios == "small" else MIB
    for offset in range(0, size, step):
        os.pread(fd, step, offset)
    os.close(fd)


def spawn(group: Path, work: Callable[[], None]) -> int:
    """A process of that group, which is ready when this returns."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            (group / "cgroup.procs").write_text(str(os.getpid()))
            os.close(ready)
            work()
            os.write(tell, b"x")
            signal.pause()
        finally:
            os._exit(0)
    os.close(tell)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    return pid


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@contextmanager
def parent() -> Iterator[Path]:
    directory = PARENT / f"purge-live-{os.getpid()}-{next(_numbers)}"
    directory.mkdir(parents=True)
    try:
        yield directory
    finally:
        zombies.remove(directory)


def dead(home: Path, name: str, work: Callable[[], None]) -> None:
    """A group that did this and is gone, but for what it pins."""
    group = home / name
    group.mkdir()
    end(spawn(group, work))
    group.rmdir()


class Pod:
    """A live process of a group that reads a file without end."""

    def __init__(self, home: Path, path: str, folios: str, reopen: bool = True) -> None:
        self.group = home / f"pod-{next(_numbers)}"
        self.group.mkdir()
        self._path, self._folios = path, folios
        stop, self._stop = os.pipe()
        passes, made = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            (self.group / "cgroup.procs").write_text(str(os.getpid()))
            held = os.open(path, os.O_RDONLY)
            os.set_blocking(stop, False)
            while True:
                if reopen:
                    read_all(path, folios)
                else:
                    os.pread(held, PAGE, 0)
                os.write(made, b"x")
                time.sleep(0.02)
        os.close(stop)
        os.close(made)
        self._passes = passes
        self.passes(3)

    def passes(self, number: int) -> None:
        """Wait until it has read all of it so many times more."""
        os.set_blocking(self._passes, False)
        with suppress(BlockingIOError):
            os.read(self._passes, 1 << 20)
        os.set_blocking(self._passes, True)
        for _ in range(number + 1):
            os.read(self._passes, 1)

    def stop(self) -> None:
        """It reads no more, but lives."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def __enter__(self) -> "Pod":
        return self

    def __exit__(self, *_: object) -> None:
        end(self.pid)
        os.close(self._passes)
        os.close(self._stop)


def under(home: Path) -> str:
    return "/" + str(home.relative_to(MEMORY))


class Purge(NamedTuple):
    code: int
    document: dict[str, Any]
    said: str
    pid: int

    @property
    def promised_bytes(self) -> int:
        return sum(part["most_lost_bytes"] for part in self.document["parts"])

    def gone(self, way: str) -> int | None:
        """None if the plan had no zombies that go this way."""
        found = [one["gone"] for one in self.document["outcomes"] if one["way"] == way]
        return sum(found) if found else None


AS_IS = ("-m", "exhume")
PATIENT = (
    "-c",
    "from exhume.__main__ import run; from exhume.remedy import cores; cores.STARVED_S = 30.0; run()",
)
"""Not refused on a busy machine: there a core may take longer than STARVED_S to run one more ordinary task among others."""


def purge(home: Path, *argv: str, program: tuple[str, ...] = PATIENT) -> Purge:
    command = [sys.executable, *program, "zombies", "purge", "--under", under(home), "--json", *argv]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        printed, said = process.communicate()
    return Purge(process.returncode, json.loads(printed or "{}"), said, process.pid)


def leak(home: Path, fd: int, number: int) -> None:
    """Zombies, each pinned by one cold page of a file."""
    with zombies.within(home):
        for page in range(number):
            zombies.one(home, f"z{page}", fd, page)
    os.fsync(fd)


def left(home: Path) -> int:
    """Zombies below it, once the kernel has freed what it frees by itself."""
    found = -1
    for _ in range(30):
        seen = walk()
        found = sum(place == under(home) for place, _ in seen.places(seen.zombies))
        if not found:
            break
        time.sleep(0.1)
    return found


@traced
class TestLiveUse:
    pytestmark = real

    @FOLIOS
    def test_what_a_live_pod_reads_stays_unless_its_loss_is_accepted(self, folios: str) -> None:
        everything = set(range(16 * MIB // PAGE))
        with parent() as home, data(16 * MIB) as model, CacheRemovals(model) as removed:
            dead(home, "old", lambda: read_all(model, folios))
            with Pod(home, model, folios) as pod:
                refused = purge(home, "--yes")
                planned = purge(home, "--dry-run")
                stayed = left(home)
                accepted = purge(home, "--yes", "--accept-cache-loss")
        assert removed.by(refused.pid) == removed.by(planned.pid) == ()
        assert pages(removed.by(accepted.pid)) * PAGE <= accepted.promised_bytes <= 17 * MIB
        if indexes(removed.by_others([accepted.pid])) != everything:
            assert (refused.code, stayed) == (2, 1), refused.said
            assert "--accept-cache-loss" in refused.said
            (part,) = planned.document["parts"]
            assert (planned.code, part["way"], part["needs_acceptance"]) == (0, "evict-in-use", True)
            assert any(user.endswith(f"[{pod.pid}]") for user in part["users"])
            assert accepted.document["outcomes"][0]["zombies"] == 1
            assert removed.by(accepted.pid)

    def test_a_page_that_is_read_through_one_open_file_again_and_again_stays(self) -> None:
        """Reads of one folio through one descriptor set PG_referenced and never PG_active (filemap_read)."""
        with parent() as home, data(MIB) as file:

            def first() -> None:
                fd = os.open(file, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
                os.pread(fd, PAGE, 0)

            with CacheRemovals(file) as removed:
                dead(home, "old", first)
                with Pod(home, file, "small", reopen=False):
                    refused = purge(home, "--yes")
                    stayed = left(home)
        assert removed.by(refused.pid) == ()
        if not removed.by_others([refused.pid]):
            assert (refused.code, stayed) == (2, 1)

    def test_an_accepted_loss_covers_only_the_zombies_that_were_said_to_be_in_use(self) -> None:
        """The plan looks at the first pages of a list. Behind them are pages that a live pod reads."""
        written, read_again = set(range(200)), set(range(100))
        with parent() as home, data(MIB) as file, data(MIB) as other:

            def write() -> None:
                fd = os.open(file, os.O_WRONLY)
                for page in written:
                    os.pwrite(fd, os.urandom(PAGE), page * PAGE)
                os.fsync(fd)

            def read() -> None:
                for page in read_again:
                    os.pread(os.open(file, os.O_RDONLY), PAGE, page * PAGE)
                read_all(other, "small")
                read_all(other, "small")

            pod = home / "pod"
            pod.mkdir()
            with CacheRemovals(file, other) as removed:
                dead(home, "old", write)
                dead(home, "in-use", lambda: read_all(other, "small"))
                reader = spawn(pod, read)
                try:
                    done = purge(home, "--yes", "--accept-cache-loss")
                finally:
                    end(reader)
        assert not indexes(removed.by(done.pid, file)) & read_again
        if not indexes(removed.by_others([done.pid], file)) >= read_again:
            assert (done.code, done.gone("evict")) == (2, 0), done.said
        assert indexes(removed.by(done.pid, other)) | indexes(removed.by_others([done.pid], other)) == set(range(MIB // PAGE))

    @FOLIOS
    def test_cold_zombies_go_beside_a_pod_with_hot_cache_that_loses_nothing(self, folios: str) -> None:
        with parent() as home, data(32 * MIB) as hot, tempfile.NamedTemporaryFile(prefix="exhume-test-") as cold:
            with Pod(home, hot, folios), CacheRemovals(hot, cold.name) as removed:
                leak(home, cold.fileno(), 500)
                done = purge(home, "--yes")
            assert {(part["way"], part["most_lost_bytes"]) for part in done.document["parts"]} <= {("evict", 0)}
            assert removed.by(done.pid, hot) == ()
            # Each is pinned by one page, and some by memory of this process too, which the plan leaves alone.
            planned, otherwise_held = (sum(one["zombies"] for one in done.document[name]) for name in ("parts", "left"))
            by_purge, by_others = pages(removed.by(done.pid, cold.name)), pages(removed.by_others([done.pid], cold.name))
            assert planned + otherwise_held + by_others >= 500
            assert by_purge <= planned <= by_purge + by_others
            wait_for(lambda: left(home) <= otherwise_held)

    @FOLIOS
    def test_mapped_pages_cost_a_reclaim_and_that_is_said_and_asked_for(self, folios: str) -> None:
        """300 zombies hold pages of a library that a running program has mapped; a live pod has hot cache beside them."""
        with ExitStack() as stack:
            home = stack.enter_context(parent())
            library, hot = stack.enter_context(data(2 * MIB)), stack.enter_context(data(64 * MIB))

            def touch(page: int) -> None:
                fd = os.open(library, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
                os.pread(fd, PAGE, PAGE * page)

            def hold() -> None:
                with open(library, "rb") as file:
                    mapped = mmap.mmap(file.fileno(), 300 * PAGE, mmap.MAP_SHARED, mmap.PROT_READ)
                    assert sum(mapped[offset] for offset in range(0, 300 * PAGE, PAGE)) >= 0
                signal.pause()

            holder = home / "holder"
            holder.mkdir()
            with CacheRemovals(library, hot) as removed:
                pod = stack.enter_context(Pod(home, hot, folios))
                for page in range(300):
                    dead(home, f"z{page}", lambda page=page: touch(page))  # type: ignore[misc]
                program = os.fork()
                if program == 0:
                    (holder / "cgroup.procs").write_text(str(os.getpid()))
                    hold()
                stack.callback(end, program)
                wait_for(lambda: library in Path(f"/proc/{program}/maps").read_text())
                planned = purge(home, "--dry-run")
                refused = purge(home, "--yes")
                pod.stop()  # what it read again meanwhile could be dropped again
                accepted = purge(home, "--yes", "--accept-cache-loss")
        assert removed.by(planned.pid) == removed.by(refused.pid) == ()
        assert pages(removed.by(accepted.pid)) * PAGE <= accepted.promised_bytes
        if len(indexes(removed.by_others([accepted.pid], library))) < 300:
            reclaimed = [part for part in planned.document["parts"] if part["way"] == "reclaim-all"]
            assert planned.code == 0
            assert sum(part["zombies"] for part in reclaimed) > 0
            assert "may drop up to all" in reclaimed[0]["promise"]
            assert reclaimed[0]["most_lost_bytes"] >= 60 * MIB - pages(removed.by_others([accepted.pid], hot)) * PAGE
            assert refused.code == 2, refused.said
            assert "--accept-cache-loss" in refused.said


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class TestStarvedCore:
    pytestmark = real

    def test_a_purge_is_refused_or_done_while_a_core_is_starved_and_does_not_wait_for_it(self) -> None:
        starved.needs_starvation()
        with parent() as home, zombies.zombies(50, f"{home.name}/agent") as agent:
            holder = starved.hold(20_000)
            try:
                wait_for(lambda: bool(visit_cores().starved))
                done = purge(agent, "--yes", program=AS_IS)
                assert holder.poll() is None, "the core was free again before the purge came back"
            finally:
                holder.kill()
                holder.communicate()
            # The scheduler may let it in for a moment (the fair server of 6.12, real-time throttling before): then it is done.
            assert done.code == 0 or f"core {starved.CORE} " in done.said, done.said
            assert purge(agent, "--yes").code == 0

    def test_a_starved_core_outside_our_own_affinity_is_found(self) -> None:
        """As an isolated core is: the kernel drains it like any other."""
        starved.needs_starvation()
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, allowed - {starved.CORE})
        holder = starved.hold(20_000)
        try:
            wait_for(lambda: visit_cores().starved == (starved.CORE,))
            assert holder.poll() is None
            assert os.sched_getaffinity(0) == allowed - {starved.CORE}
        finally:
            holder.kill()
            holder.communicate()
            os.sched_setaffinity(0, allowed)

    def test_cores_that_run_tasks_are_not_called_starved(self) -> None:
        allowed, open_files = os.sched_getaffinity(0), len(os.listdir("/proc/self/fd"))
        visit_cores().refuse_if_starved()
        assert os.sched_getaffinity(0) == allowed
        assert len(os.listdir("/proc/self/fd")) == open_files

    def test_a_child_that_may_get_stuck_does_not_keep_our_output_open(self) -> None:
        with Child[list[str]](lambda send: send([os.readlink(f"/proc/self/fd/{fd}") for fd in range(3)])) as child:
            assert child.receive(30) == [os.devnull] * 3

    def test_the_reason_says_what_to_do(self) -> None:
        with pytest.raises(Refused, match=r"cores 1, 2 have not run .* exhume check"):
            Cores((1, 2)).refuse_if_starved()


class TestReclaimKeepsItsLimit:
    """memory.reclaim of v2, played by plain files: how much each step takes is up to the test."""

    @given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 20)), min_size=1, max_size=60), st.integers(0, 200))
    def test_the_living_never_lose_more_than_the_limit(self, taken: list[tuple[int, int]], limit_mib: int) -> None:
        """Whether they grow meanwhile or not: then their usage hides what was taken."""
        with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
            for name in ("SHORTEST_REST_S", "REST", "SETTLE_S"):
                patch.setattr(reclaim_module, name, 0.0)
            patch.setattr(reclaim_module, "WAITED_S", math.inf)  # a busy machine makes a step wait, too
            home = Path(top, "sys/fs/cgroup/agents")
            (home / "live").mkdir(parents=True)
            (home / "memory.reclaim").write_text("")
            usage, lost, steps = 1000 * MIB, 0, iter(taken)

            def show() -> None:
                (home / "live/memory.current").write_text(f"{usage}\n")
                (home / "live/memory.stat").write_text(f"file 1\npgsteal {7 + lost // PAGE}\npgsteal_kswapd 9\n")

            def one_step(fd: int, size: int) -> bool:
                """Anything up to the worst case that the plan counts with."""
                nonlocal usage, lost
                percent, grown_mib = next(steps, (0, 0))
                took = percent * reclaim_module.worst_step_bytes(1, 2 * MIB, size) // 100 // PAGE * PAGE
                usage, lost = usage - took + grown_mib * MIB, lost + took
                show()
                return False

            show()
            patch.setattr(reclaim_module, "_reclaim", one_step)
            limit = Limit(limit_mib * MIB, 1, 2 * MIB)
            sent: list[Reclaimed] = []
            hierarchy = Hierarchy(2, "/sys/fs/cgroup", "/", frozenset({"memory"}), True)
            root = Root(top)
            reclaim(root, hierarchy, "/agents", Usage(root, hierarchy, ("/agents/live",)), limit, lambda: 5, sent.append)
        assert lost <= limit_mib * MIB
        assert sent[-1].lost_bytes == lost
        assert sent[-1].end in (End.LIMIT, End.NO_EFFECT)

    def test_steps_grow_only_when_nothing_went(self) -> None:
        sizes: list[int] = []
        counts = iter([10, 9, 8, 8, 8, 7, 6, 6, 6, 0, 0])
        with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
            for name in ("SHORTEST_REST_S", "REST", "SETTLE_S"):
                patch.setattr(reclaim_module, name, 0.0)
            patch.setattr(reclaim_module, "WAITED_S", math.inf)  # a busy machine makes a step wait, too
            home = Path(top, "sys/fs/cgroup/agents")
            home.mkdir(parents=True)
            (home / "memory.reclaim").write_text("")

            def one_step(fd: int, size: int) -> bool:
                sizes.append(size)
                return False

            patch.setattr(reclaim_module, "_reclaim", one_step)
            sent: list[Reclaimed] = []
            hierarchy = Hierarchy(2, "/sys/fs/cgroup", "/", frozenset({"memory"}), True)
            usage, limit = Usage(Root(top), hierarchy, ()), Limit(None, 0, PAGE)
            reclaim(Root(top), hierarchy, "/agents", usage, limit, lambda: next(counts), sent.append)
        assert sizes == [0, 0, 0, 1, 1, 1, 2]
        assert sent[-1].end is End.GONE

    def test_a_step_that_waits_in_the_kernel_is_the_last(self) -> None:
        """As behind a core that starves in the middle: each step returns, a second later."""
        with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
            home = Path(top, "sys/fs/cgroup/memory/agents")
            home.mkdir(parents=True)
            (home / "memory.force_empty").write_text("")
            patch.setattr(reclaim_module, "WAITED_S", 0.05)

            def waits(fd: int, size: int) -> bool:
                time.sleep(0.1)
                return False

            patch.setattr(reclaim_module, "_force_empty", waits)
            hierarchy = Hierarchy(1, "/sys/fs/cgroup/memory", "/", frozenset({"memory"}), True)
            sent: list[Reclaimed] = []
            usage, limit = Usage(Root(top), hierarchy, ()), Limit(None, 0, PAGE)
            reclaim(Root(top), hierarchy, "/agents", usage, limit, lambda: 5, sent.append)
        assert sent == [Reclaimed(5, 0, 1, End.WAITED)]

    def test_force_empty_is_never_used_with_a_limit(self) -> None:
        with tempfile.TemporaryDirectory() as top:
            home = Path(top, "sys/fs/cgroup/memory/agents")
            home.mkdir(parents=True)
            (home / "memory.force_empty").write_text("")
            hierarchy = Hierarchy(1, "/sys/fs/cgroup/memory", "/", frozenset({"memory"}), True)
            usage, limit = Usage(Root(top), hierarchy, ()), Limit(5, 0, PAGE)
            with pytest.raises(Unreadable, match="takes no size"):
                reclaim(Root(top), hierarchy, "/agents", usage, limit, lambda: 1, lambda _: None)


@pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "zombies can be made")
def test_a_purge_that_is_killed_leaves_no_child_behind() -> None:
    with zombies.beside_a_sibling(cache=3000, on_tmpfs=0, sibling_mib=1) as home:
        running = subprocess.Popen(
            [sys.executable, "-m", "exhume", "zombies", "purge", "--under", under(home), "--yes"], stdout=subprocess.DEVNULL
        )
        wait_for(lambda: len(_with(under(home))) > 1)
        running.kill()
        running.wait()
        wait_for(lambda: not _with(under(home)))


def _with(word: str) -> list[str]:
    """Processes with this in their command line."""
    found = []
    for pid in os.listdir("/proc"):
        try:
            if pid.isdigit() and word.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found
