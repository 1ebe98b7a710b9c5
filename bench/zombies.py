"""exhume zombies: naming, grouping, churn and purge on the real kernel."""

import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.measure import Row, cost, median
from tests import zombies

NAME = [sys.executable, "-m", "exhume", "zombies", "--json"]
MIB = 1 << 20


def _json(*argv: str) -> dict[str, object]:
    done = subprocess.run([sys.executable, "-m", "exhume", "zombies", *argv], capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def _need() -> None:
    if why := zombies.unavailable():
        raise RuntimeError(why)


def zombies_named(count: int = 60_000) -> Iterator[Row]:
    """60,000 real zombies, all named: wall with start-up, memory, longest stay in the kernel."""
    _need()
    with zombies.zombies(count):
        cost(NAME)
        seen = median([cost(NAME) for _ in range(5)])
        before = zombies.total()
        document = _json("--json")
        after = zombies.total()
        from exhume.sources.memcg_walk import walk

        longest = sorted(walk().longest_call_ns for _ in range(5))[2]
        found = int(str(document["zombies"])) + int(str(document["live"]))
        tree = ["sh", "-c", f"find {zombies.MEMORY} -type d | wc -l; cat /proc/cgroups"]
        by_hand = median([cost(tree) for _ in range(5)])
    yield Row(f"exhume zombies with {count:,}: wall, start-up included", seen.wall_s, None, "s", 0.6)
    yield Row("  peak memory", seen.peak_mb, None, "MB", 150.0)
    yield Row("  longest stay in the kernel", longest / 1e6, None, "ms", 1.0)
    yield Row("  groups missing against /proc/cgroups", max(0, min(before, after) - found), None, "", 0.0)
    yield Row("  wall, against counting them by find and /proc/cgroups", seen.wall_s, by_hand.wall_s, "s")


def zombies_groups(groups: int = 20, each: int = 3_000) -> Iterator[Row]:
    """20 places with 3,000 zombies each: every one found with its exact count."""
    _need()
    with ExitStack() as stack:
        for i in range(groups):
            stack.enter_context(zombies.zombies(each, f"place-{chr(97 + i)}"))
        document = _json("--json")
    listed = document["groups"]
    assert isinstance(listed, list)
    exact = sum(one["zombies"] == each and f"/{zombies.PARENT.name}/place-" in one["path"] for one in listed)
    yield Row(f"places of {groups} with {each:,} zombies that were not found exactly", groups - exact, None, "", 0.0)


_BYSTANDER = """
import ctypes, mmap, time
getuid = ctypes.CDLL(None).getuid
page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

def calls():
    for _ in range(20000): getuid()

def faults():
    for _ in range(10000):
        page.madvise(mmap.MADV_DONTNEED)
        page[0]

while what := input():
    start = time.thread_time_ns()
    (calls if what == "calls" else faults)()
    print(time.thread_time_ns() - start, flush=True)
"""
_TURNS = 60


def walk_bystander(count: int = 5_000) -> Iterator[Row]:
    """What the walk costs other processes where it cannot be test-run (before 5.10), and how long it takes then."""
    _need()
    from exhume.kernel.bpf import Builder, Features, Routine
    from exhume.sources.memcg_walk import walk

    old = Features(test_run=False)
    code = Builder(old)
    code.exit(0)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _BYSTANDER], stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None

        def spent(what: str) -> int:
            print(what, file=other.stdin, flush=True)
            return int(other.stdout.readline()) if other.stdout is not None else 0

        alone: dict[str, list[int]] = {"calls": [], "faults": []}
        beside: dict[str, list[int]] = {"calls": [], "faults": []}
        for what in _TURNS * ("calls", "faults"):
            alone[what].append(spent(what))
            with Routine(code, features=old) as routine:
                routine.run()
                beside[what].append(spent(what))
        print(file=other.stdin, flush=True)
    for what, each, name, bar in (("calls", 20_000, "a system call", 1.05), ("faults", 10_000, "a page fault", None)):
        without, attached = (statistics.median(turns[what]) / each for turns in (alone, beside))
        yield Row(f"{name} of another process while it is attached, against without", attached, without, "ns", bar)
    with zombies.zombies(count):
        times: dict[bool, list[float]] = {True: [], False: []}
        for test_run in 10 * (True, False):
            start = time.perf_counter()
            walk(Features(test_run=test_run))
            times[test_run].append(time.perf_counter() - start)
    yield Row(
        f"walk of {count:,} zombies by page faults, against test-run", 1e3 * min(times[False]), 1e3 * min(times[True]), "ms"
    )


_CHURN = """
import os, sys, time
parent, end, i = sys.argv[1], time.monotonic() + float(sys.argv[2]), 0
os.makedirs(parent, exist_ok=True)
while time.monotonic() < end:
    for k in range(10):
        os.mkdir(f"{parent}/churn{os.getpid()}-{i}"); os.rmdir(f"{parent}/churn{os.getpid()}-{i}"); i += 1
    time.sleep(max(0, i / 1000 - (time.monotonic() - end + float(sys.argv[2]))))
os.rmdir(parent)
print(i)
"""


def walk_churn(seconds: int = 60) -> Iterator[Row]:
    """Walks while two processes make and remove 1,000 groups a second each: nothing hangs, doubles or is invented."""
    _need()
    from exhume.sources.memcg_walk import walk

    zombies.PARENT.mkdir(exist_ok=True)
    churners = [
        subprocess.Popen(
            [sys.executable, "-c", _CHURN, str(zombies.PARENT / f"churn{i}"), str(seconds)], stdout=subprocess.PIPE, text=True
        )
        for i in range(2)
    ]
    walks = doubled = invented = incomplete = 0
    slowest = 0.0
    with zombies.zombies(2_000):
        before = set(walk().paths())
        end = time.monotonic() + seconds - 2
        while time.monotonic() < end:
            start = time.monotonic()
            seen = walk()
            slowest = max(slowest, time.monotonic() - start)
            walks += 1
            doubled += len(seen) - len(set(seen.serial.tolist()))
            incomplete += not seen.complete
            if walks % 20 == 0:
                invented += sum(path not in before and not _plausible(path) for path in seen.paths())
    made = sum(int(churner.communicate()[0]) for churner in churners)
    yield Row(f"walks in {seconds} s of churn ({made / seconds:,.0f} groups made and removed a second)", walks, None, "")
    yield Row("  slowest walk", slowest, None, "s")
    yield Row("  walks that did not end", incomplete, None, "", 0.0)
    yield Row("  groups that came twice", doubled, None, "", 0.0)
    yield Row("  groups that were never made", invented, None, "", 0.0)


def _plausible(path: str) -> bool:
    """One of those that the churn makes, or a group from elsewhere whose directory, or its parent's, is there."""
    if path.startswith(f"/{zombies.PARENT.name}/churn"):
        return re.fullmatch(rf"/{zombies.PARENT.name}/churn[01](/churn\d+-\d+)?", path) is not None
    here = f"{zombies.MEMORY}{path}"
    return path.isprintable() and (os.path.isdir(here) or os.path.isdir(os.path.dirname(here)))


@dataclass(frozen=True, slots=True)
class _PromiseRun:
    """One purge beside live pods."""

    promised_bytes: int
    removed_bytes: int
    """Of the pods' files, from the page cache, by the purge's processes."""
    by_others: dict[str, int]
    """The same in the same time by other tasks, by their name."""
    zombies: int
    gone: int
    seconds: float
    refused: str
    """Why; empty if it was carried out."""


def purge_promise(count: int = 2_000, hot_mib: int = 500, shared_mib: int = 64) -> Iterator[Row]:
    """A live pod with 500 MiB of hot cache, in small and in large folios, beside zombies that a purge frees and one whose file
    a second pod uses: what the purge removes of the pods' page cache, against memory.force_empty. EXHUME_BENCH_RUNS times."""
    _need()
    from tests.remedy import cache_removals
    from tests.remedy.cache_removals import CacheRemovals, by_comm, pages
    from tests.remedy.test_live_purge import AS_IS, Pod, data, dead, parent, read_all
    from tests.remedy.test_live_purge import purge as run_purge

    if why := cache_removals.unavailable():
        raise RuntimeError(why)
    number = int(os.environ.get("EXHUME_BENCH_RUNS", "2"))

    def one(home: Path, *files: str) -> _PromiseRun:
        with zombies.zombies(count, home.name, keep=True), CacheRemovals(*files) as removed:
            start = time.monotonic()
            done = run_purge(home, "--yes", program=AS_IS)
            seconds = time.monotonic() - start
        # A purge that is refused prints no document.
        parts = [part for part in done.document.get("parts", ()) if not part["needs_acceptance"]]
        return _PromiseRun(
            promised_bytes=sum(part["most_lost_bytes"] for part in parts),
            removed_bytes=pages(removed.by(done.pid)) * zombies.PAGE,
            by_others={comm: some * zombies.PAGE for comm, some in by_comm(removed.by_others([done.pid])).items()},
            zombies=sum(part["zombies"] for part in parts),
            gone=sum(outcome["gone"] for outcome in done.document.get("outcomes", ())),
            seconds=seconds,
            refused="" if done.document else done.said.strip(),
        )

    for folios in ("small", "large"):
        with parent() as home, data(hot_mib * MIB) as hot, data(shared_mib * MIB) as shared:
            dead(home, "old", partial(read_all, shared, folios))
            with Pod(home, hot, folios) as pod, Pod(home, shared, folios):
                runs = []
                for _ in range(number):
                    runs.append(one(home, hot, shared))
                    pod.passes(1)  # all of it is in the page cache again, whoever removed some
                with CacheRemovals(hot, shared, buffer_kib=64 << 10) as removed:
                    (home / "memory.force_empty").write_text("0")
                by_hand = pages(removed.by(os.getpid())) * zombies.PAGE
        within = sum(run.removed_bytes <= run.promised_bytes for run in runs)
        others = max((run.by_others for run in runs), key=lambda some: sum(some.values()))
        names = f" ({', '.join(sorted(others))})" if others else ""
        worst = max(run.removed_bytes for run in runs)
        yield Row(f"{folios} folios: removed of live pods' cache, against force_empty", worst / MIB, by_hand / MIB, "MiB")
        yield Row("  promised at most", max(run.promised_bytes for run in runs) / MIB, None, "MiB")
        yield Row(f"  {within} of {number} runs within the promise; beyond it", number - within, None, "", 0.0)
        yield Row(f"  removed meanwhile by other tasks{names}", sum(others.values()) / MIB, None, "MiB")
        if refused := [run.refused for run in runs if run.refused]:
            print(refused[-1], file=sys.stderr)
            yield Row("  runs that were refused", len(refused), None, "")
        stayed = max((run.zombies - run.gone) / max(1, run.zombies) for run in runs)
        asked, gone = sum(run.zombies for run in runs), sum(run.gone for run in runs)
        yield Row(f"  {gone:,} of {asked:,} zombies gone; share that stayed", stayed, None, "", 0.01)
        yield Row("  wall, start-up included", max(run.seconds for run in runs), None, "s")


def purge(cache: int = 10_000, tmpfs: int = 20_000, sibling_mib: int = 500) -> Iterator[Row]:
    """10,000 on page cache, 20,000 on tmpfs, and a live sibling with 500 MiB of cache below the same parent."""
    _need()
    from tests.remedy import cache_removals
    from tests.remedy.cache_removals import CacheRemovals, by_comm, pages
    from tests.remedy.test_live_purge import AS_IS
    from tests.remedy.test_live_purge import purge as run_purge

    if why := cache_removals.unavailable():
        raise RuntimeError(why)
    with (
        zombies.beside_a_sibling(cache, tmpfs, sibling_mib) as parent,
        CacheRemovals(_own_open_file(sibling_mib * MIB)) as removed,
        _Shares() as shares,
    ):
        start = time.monotonic()
        done = run_purge(parent, "--yes", program=AS_IS)
        seconds = time.monotonic() - start
    if not done.document:
        raise RuntimeError(done.said.strip())
    outcomes = done.document["outcomes"]
    gone, asked = (sum(one[what] for one in outcomes) for what in ("gone", "zombies"))
    by_others = by_comm(removed.by_others([done.pid]))
    names = f" ({', '.join(sorted(by_others))})" if by_others else ""
    all_pages = sibling_mib * MIB // zombies.PAGE
    # Some may have gone by themselves before it began, where a machine drops cache for reasons of its own.
    yield Row(f"of {asked:,} zombies on page cache that stayed", (asked - gone) / asked, None, "", 0.01)
    yield Row("  cache that the live sibling lost by the purge", pages(removed.by(done.pid)) / all_pages, None, "", 0.0)
    yield Row(f"  the same by other tasks meanwhile{names}", sum(by_others.values()) / all_pages, None, "")
    yield Row("  busiest core in the kernel in any 200 ms", shares.worst, None, "", 0.5)
    yield Row("  wall, start-up included", seconds, None, "s")


def _own_open_file(size: int) -> str:
    """A file of this size that this process has open."""
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.stat(path := f"/proc/self/fd/{fd}").st_size == size:
                return path
    raise RuntimeError(f"no open file has {size:,} bytes")


class _Shares:
    """The largest share of kernel time that any core had in any 200 ms."""

    def __enter__(self) -> "_Shares":
        self._samples: list[tuple[float, list[tuple[int, int]]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            self._samples.append((time.monotonic(), _kernel_ticks()))

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def worst(self) -> float:
        worst = 0.0
        for i, (moment, first) in enumerate(self._samples):
            later = next((sample for sample in self._samples[i:] if sample[0] >= moment + 0.2), None)
            if later is None:
                break
            for (kernel, total), (kernel_later, total_later) in zip(first, later[1], strict=True):
                if total_later - total >= 15:
                    worst = max(worst, (kernel_later - kernel) / (total_later - total))
        return worst


def _kernel_ticks() -> list[tuple[int, int]]:
    found = []
    with open("/proc/stat") as file:
        for line in file:
            if line.startswith("cpu") and line[3].isdigit():
                words = [int(word) for word in line.split()[1:9]]
                found.append((words[2] + words[5] + words[6], sum(words)))
    return found
