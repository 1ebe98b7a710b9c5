"""The purge on the real kernel: cold zombies go, what live pods use stays unless that is accepted, a starved core is no trap.

What a live pod loses is what it has to read from the disk again (/proc/PID/io). It reads all the time, but a machine may still
drop a little of its cache (DAMON does), so that a sixteenth is no loss; the faults tested for take all of it.
"""

import json
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
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Refused, Unreadable
from exhume.node.cgroups import Hierarchy
from exhume.node.memcg_walk import walk
from exhume.node.root import Root
from exhume.remedy import reclaim as reclaim_module
from exhume.remedy.child import Child
from exhume.remedy.cores import Cores, visit_cores
from exhume.remedy.reclaim import End, Limit, Reclaimed, Usage, reclaim
from tests import starved, zombies
from tests.kernel.bpf.needs import needs_bpf
from tests.zombies import MEMORY, PAGE, PARENT

_WHY_NOT = zombies.unavailable()
real = [needs_bpf, pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "zombies can be made")]
_numbers = count()
MIB = 1 << 20
LITTLE = MIB // 16
"""Of each MiB of hot cache: what a machine may drop by itself meanwhile."""
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

    def from_disk(self) -> int:
        fields = dict(line.split(": ") for line in Path(f"/proc/{self.pid}/io").read_text().splitlines())
        return int(fields["read_bytes"])

    def __enter__(self) -> "Pod":
        return self

    def __exit__(self, *_: object) -> None:
        end(self.pid)
        os.close(self._passes)
        os.close(self._stop)


def resident(path: str) -> int:
    """Pages of a file that are in the page cache."""
    done = subprocess.run(["fincore", "--noheadings", "--output", "PAGES", path], capture_output=True, text=True, check=True)
    return int(done.stdout)


def under(home: Path) -> str:
    return "/" + str(home.relative_to(MEMORY))


def purge(home: Path, *argv: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "exhume", "zombies", "purge", "--under", under(home), "--json", *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def left(home: Path) -> int:
    """Zombies below it, once the kernel has freed what it frees by itself."""
    found = -1
    for _ in range(30):
        seen = walk()
        found = sum(place.startswith(under(home)) for place, _ in seen.places(seen.zombies))
        if not found:
            break
        time.sleep(0.1)
    return found


class TestLiveUse:
    pytestmark = real

    @FOLIOS
    def test_what_a_live_pod_reads_stays_unless_its_loss_is_accepted(self, folios: str) -> None:
        with parent() as home, data(16 * MIB) as model:
            dead(home, "old", lambda: read_all(model, folios))
            with Pod(home, model, folios) as pod:
                before = pod.from_disk()
                code, plan, said = purge(home, "--yes")
                pod.passes(2)
                assert code == 2, said
                assert pod.from_disk() - before < 16 * LITTLE
                assert "--accept-cache-loss" in said
                code, plan, _ = purge(home, "--dry-run")
                (part,) = plan["parts"]
                assert (code, part["way"], part["needs_acceptance"]) == (0, "evict-in-use", True)
                assert any(user.endswith(f"[{pod.pid}]") for user in part["users"])
                assert left(home) == 1
                code, document, said = purge(home, "--yes", "--accept-cache-loss")
                pod.passes(2)
                assert pod.from_disk() - before <= part["most_lost_bytes"] + 16 * LITTLE
                assert part["most_lost_bytes"] <= 17 * MIB
                assert document["outcomes"][0]["zombies"] == 1

    def test_a_page_that_is_read_through_one_open_file_again_and_again_stays(self) -> None:
        """Reads of one folio through one descriptor set PG_referenced and never PG_active (filemap_read)."""
        with parent() as home, data(MIB) as file:

            def first() -> None:
                fd = os.open(file, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
                os.pread(fd, PAGE, 0)

            dead(home, "old", first)
            with Pod(home, file, "small", reopen=False) as pod:
                before = pod.from_disk()
                code, _, _ = purge(home, "--yes")
                pod.passes(2)
                assert (code, left(home)) == (2, 1)
                assert pod.from_disk() == before

    def test_an_accepted_loss_covers_only_the_zombies_that_were_said_to_be_in_use(self) -> None:
        """The plan looks at the first pages of a list. Behind them are pages that a live pod reads."""
        pages = 200
        with parent() as home, data(MIB) as file, data(MIB) as other:

            def write() -> None:
                fd = os.open(file, os.O_WRONLY)
                for page in range(pages):
                    os.pwrite(fd, os.urandom(PAGE), page * PAGE)
                os.fsync(fd)

            dead(home, "old", write)
            dead(home, "in-use", lambda: read_all(other, "small"))
            pod = home / "pod"
            pod.mkdir()

            def read() -> None:
                for page in range(pages - 100):
                    os.pread(os.open(file, os.O_RDONLY), PAGE, page * PAGE)
                read_all(other, "small")
                read_all(other, "small")

            reader = spawn(pod, read)
            try:
                code, document, said = purge(home, "--yes", "--accept-cache-loss")
                assert resident(file) >= pages - 100
            finally:
                end(reader)
            assert code == 2, said
            gone = {one["way"]: one["gone"] for one in document["outcomes"]}
            assert gone == {"evict": 0, "evict-in-use": 1}

    @FOLIOS
    def test_cold_zombies_go_beside_a_pod_with_hot_cache_that_loses_nothing(self, folios: str) -> None:
        with parent() as home, data(32 * MIB) as hot, Pod(home, hot, folios) as pod:
            before = pod.from_disk()
            with zombies.zombies(500, f"{home.name}/agent") as agent:
                code, document, said = purge(agent, "--yes")
                assert code == 0, said
                assert [(part["way"], part["most_lost_bytes"]) for part in document["parts"]] == [("evict", 0)]
                assert document["outcomes"][0]["gone"] == document["parts"][0]["zombies"] > 0
            pod.passes(2)
            assert pod.from_disk() - before < 32 * LITTLE

    @FOLIOS
    def test_mapped_pages_cost_a_reclaim_and_that_is_said_and_asked_for(self, folios: str) -> None:
        """300 zombies hold pages of a library that a running program has mapped; a live pod has hot cache beside them."""
        with ExitStack() as stack:
            home = stack.enter_context(parent())
            library, hot = stack.enter_context(data(2 * MIB)), stack.enter_context(data(64 * MIB))
            pod = stack.enter_context(Pod(home, hot, folios))

            def touch(page: int) -> None:
                fd = os.open(library, os.O_RDONLY)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
                os.pread(fd, PAGE, PAGE * page)

            for page in range(300):
                dead(home, f"z{page}", lambda page=page: touch(page))  # type: ignore[misc]

            def hold() -> None:
                with open(library, "rb") as file:
                    mapped = mmap.mmap(file.fileno(), 300 * PAGE, mmap.MAP_SHARED, mmap.PROT_READ)
                    assert sum(mapped[offset] for offset in range(0, 300 * PAGE, PAGE)) >= 0
                signal.pause()

            holder = home / "holder"
            holder.mkdir()
            program = os.fork()
            if program == 0:
                (holder / "cgroup.procs").write_text(str(os.getpid()))
                hold()
            stack.callback(end, program)
            wait_for(lambda: library in Path(f"/proc/{program}/maps").read_text())
            before = pod.from_disk()
            code, plan, _ = purge(home, "--dry-run")
            reclaimed = [part for part in plan["parts"] if part["way"] == "reclaim-all"]
            assert code == 0
            assert sum(part["zombies"] for part in reclaimed) > 0
            assert "may drop up to all" in reclaimed[0]["promise"]
            assert reclaimed[0]["most_lost_bytes"] >= 60 * MIB
            code, _, said = purge(home, "--yes")
            pod.passes(2)
            assert code == 2, said
            assert pod.from_disk() - before < 64 * LITTLE
            assert "--accept-cache-loss" in said


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
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
                code, _, said = purge(agent, "--yes")
                assert holder.poll() is None, "the core was free again before the purge came back"
            finally:
                holder.kill()
                holder.communicate()
            # The scheduler may let it in for a moment (the fair server of 6.12, real-time throttling before): then it is done.
            assert code == 0 or f"core {starved.CORE} " in said, said
            assert purge(agent, "--yes")[0] == 0

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

    @given(st.lists(st.integers(0, 100), min_size=1, max_size=60), st.integers(0, 200))
    def test_the_living_never_lose_more_than_the_limit(self, taken: list[int], limit_mib: int) -> None:
        with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
            for name in ("SHORTEST_REST_S", "REST", "SETTLE_S"):
                patch.setattr(reclaim_module, name, 0.0)
            home = Path(top, "sys/fs/cgroup/agents")
            (home / "live").mkdir(parents=True)
            (home / "memory.reclaim").write_text("")
            current = home / "live/memory.current"
            usage, steps = 1000 * MIB, iter(taken)
            current.write_text(str(usage))
            limit = Limit(limit_mib * MIB, 1, 2 * MIB)

            def one_step(fd: int, size: int) -> bool:
                """Anything up to the worst case that the plan counts with."""
                nonlocal usage
                share = next(steps, 0) / 100
                usage -= int(share * reclaim_module.worst_step_bytes(1, 2 * MIB, size))
                current.write_text(str(usage))
                return False

            patch.setattr(reclaim_module, "_reclaim", one_step)
            sent: list[Reclaimed] = []
            hierarchy = Hierarchy(2, "/sys/fs/cgroup", "/", frozenset({"memory"}), True)
            root = Root(top)
            reclaim(root, hierarchy, "/agents", Usage(root, hierarchy, ("/agents/live",)), limit, lambda: 5, sent.append)
        assert 1000 * MIB - usage <= limit_mib * MIB
        assert sent[-1].lost_bytes == 1000 * MIB - usage
        assert sent[-1].end in (End.LIMIT, End.NO_EFFECT)

    def test_steps_grow_only_when_nothing_went(self) -> None:
        sizes: list[int] = []
        counts = iter([10, 9, 8, 8, 8, 7, 6, 6, 6, 0, 0])
        with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
            for name in ("SHORTEST_REST_S", "REST", "SETTLE_S"):
                patch.setattr(reclaim_module, name, 0.0)
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
