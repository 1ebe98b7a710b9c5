"""One look at who waits, on the running kernel, against what /proc says."""

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from exhume.errors import Unreadable
from exhume.kernel.bpf import Btf, Features
from exhume.kernel.clock import Clock
from exhume.sources.latency import look, variables
from exhume.sources.latency.discover import Discover, Thread
from exhume.sources.latency.look import NAPI_DUE, VECTORS, Look, Looker
from exhume.sources.latency.variables import RUN_QUEUE, Variables
from tests.kernel.bpf.needs import each_fallback, needs_bpf
from tests.sources.latency import loaded
from tests.sources.latency.network import RECEIVER, veth_pair
from tests.sources.latency.waiting import CORE, HELD_MS, WAITED_NS, named, needs_a_core_to_hold
from tests.starved import held, hold, hold_now, off_the_core, ready_to_hold
from tests.waiting import wait_for

pytestmark = needs_bpf

MS = 1_000_000


@pytest.fixture(scope="module")
def btf() -> Btf:
    return Btf.vmlinux()


def found(btf: Btf, names: str = "") -> tuple[list[Thread], list[Thread]]:
    finder = Discover(btf, re.compile(names) if names else None)
    try:
        seen = finder.find()
    finally:
        finder.close()
    return [one for one in seen.threads if names and re.search(names, one.comm)], seen.ksoftirqd


@contextmanager
def sleepers(count: int) -> Iterator[list[int]]:
    """Threads of ours that sleep."""
    reads, writes = os.pipe()
    tids = []

    def sleep() -> None:
        Path("/proc/thread-self/comm").write_text("exhume-sleeps")
        tids.append(threading.get_native_id())
        os.read(reads, 1)

    threads = [threading.Thread(target=sleep) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: len(tids) == count and all(reads_from(tid, reads) for tid in tids))
        yield sorted(tids)
    finally:
        os.write(writes, bytes(count))
        for thread in threads:
            thread.join()
        os.close(reads)
        os.close(writes)


def reads_from(tid: int, fd: int) -> bool:
    """Whether a thread sleeps in a system call on this descriptor: only then it has stopped for good."""
    state = Path(f"/proc/self/task/{tid}/stat").read_text().rpartition(")")[2].split()[0]
    call = Path(f"/proc/self/task/{tid}/syscall").read_text().split()
    return state == "S" and call[1:2] == [hex(fd)]


def softirqs() -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """A row a core, a column a vector."""
    lines = Path("/proc/softirqs").read_text().splitlines()[1:]
    return np.array([[int(word) for word in line.split()[1:]] for line in lines]).T


def schedstat(tid: int) -> tuple[int, int]:
    """How long it waited, and how often it got a core."""
    _, waited, times = Path(f"/proc/{tid}/schedstat").read_text().split()
    return int(waited), int(times)


def seen(looker: Looker) -> Look:
    with Clock() as clock:
        now = clock.now()
        looker.glance()
        return looker.seen(now)


@each_fallback
def test_softirqs_are_counted_as_in_proc(btf: Btf, features: Features) -> None:
    _, cores = found(btf)
    with Looker(btf, 50 * MS, features) as looker:
        assert looker.sees_softirqs
        looker.watch([], cores)
        first = seen(looker).cores
        before = softirqs()
        looker.glance()
        after = softirqs()
        rows = looker.seen(0).cores
    assert rows["known"].tolist() == [1] * len(cores)
    assert rows["softirqs"].shape == before[: len(cores)].shape == (len(cores), VECTORS)
    assert (before[: len(cores)] <= rows["softirqs"]).all()
    assert (rows["softirqs"] <= after[: len(cores)]).all()
    assert rows["softirqs"].sum() > 0
    assert (rows["softirqs_before"] == first["softirqs"]).all()
    assert (rows["pending_before"] == first["pending"]).all()


@each_fallback
def test_who_is_on_a_core_is_told_by_number_and_name(btf: Btf, features: Features) -> None:
    _, cores = found(btf)
    with Looker(btf, 50 * MS, features) as looker:
        looker.watch([], cores)
        looker.glance()
        rows = looker.seen(0).cores
    ours = [row for row in rows if int(row["curr_tid"]) == threading.get_native_id()]  # who looks is on one of them
    assert len(ours) == 1
    assert int(ours[0]["curr_pid"]) == os.getpid()
    comm = Path("/proc/thread-self/comm").read_bytes().rstrip(b"\n")
    assert ours[0]["curr_comm"].tobytes().split(b"\0", 1)[0] == comm


@each_fallback
def test_a_thread_that_waits_is_seen_to_since_when(btf: Btf, features: Features) -> None:
    needs_a_core_to_hold()
    with (
        named(b"exhume-waits", spin=True) as pid,
        Looker(btf, 50 * MS, features) as looker,
        Clock() as clock,
        off_the_core(real_time=True),
    ):
        threads, cores = found(btf, "^exhume-waits$")
        mine = [one for one in threads if one.tid == pid]
        looker.watch(mine, cores)
        anchor = clock.anchor()
        waits: dict[int, int] = {}  # since when, until when it was seen to
        holders = set()
        holder = ready_to_hold(HELD_MS)
        hold_now(holder)
        while holder.poll() is None:
            now = clock.now()
            looker.glance()
            it = looker.seen(now)
            (row,) = it.threads
            assert (int(row["there"]), int(row["tid"]), int(row["cpu"])) == (1, pid, CORE)
            if int(row["last_queued"]):
                waits[int(row["last_queued"])] = now
                if now - int(row["last_queued"]) > 50 * MS:
                    holders |= {int(core["curr_pid"]) for core in it.cores[CORE : CORE + 1]}
            time.sleep(0.005)
        begin, end = (moment + anchor.perf_ns - anchor.monotonic_ns for moment in held(holder))
        wait_for(lambda: schedstat(pid)[0] > WAITED_NS)  # a wait is counted when it ends
        before = schedstat(pid)
        looker.glance()
        (row,) = looker.seen(0).threads
        after = schedstat(pid)
    # On the clock of the recording: of one wait, as much as the core was held meanwhile.
    assert max(min(last, end) - max(start, begin) for start, last in waits.items()) > WAITED_NS
    assert holder.pid in holders
    assert before[0] <= int(row["run_delay"]) <= after[0]
    assert before[1] <= int(row["pcount"]) <= after[1]
    assert int(row["run_delay"]) > WAITED_NS


def test_there_is_nothing_to_tell_of_threads_that_sleep_and_something_of_one_that_waits(btf: Btf) -> None:
    needs_a_core_to_hold()
    with (
        sleepers(3) as asleep,
        named(b"exhume-waits", spin=True) as pid,
        Looker(btf, 50 * MS) as looker,
        off_the_core(real_time=True),
    ):
        looker.watch([one for one in found(btf, "^exhume-sleeps$")[0] if one.tid in asleep], [])
        looker.glance()  # the first has nothing to compare with
        assert not looker.glance()
        looker.watch([one for one in found(btf, "^exhume-waits$")[0] if one.tid == pid], [])
        holder = ready_to_hold(HELD_MS)
        hold_now(holder)
        wait_for(looker.glance)
        held(holder)


def test_what_was_waited_between_two_looks_is_told_afterwards(btf: Btf) -> None:
    needs_a_core_to_hold()
    with named(b"exhume-waits", spin=True) as pid, Looker(btf, 50 * MS) as looker:
        looker.watch([one for one in found(btf, "^exhume-waits$")[0] if one.tid == pid], [])
        looker.glance()
        held(hold(HELD_MS))
        times = schedstat(pid)[1]
        wait_for(lambda: schedstat(pid)[1] > times)  # it ran again
        assert looker.glance()
        (row,) = looker.seen(0).threads
        assert int(row["run_delay"]) - int(row["run_delay_before"]) > WAITED_NS
        assert int(row["pcount"]) > int(row["pcount_before"]) > 0


@each_fallback
def test_who_sleeps_is_told_from_who_does_not(btf: Btf, features: Features) -> None:
    needs_a_core_to_hold()
    with sleepers(1), named(b"exhume-waits", spin=True) as pid, Looker(btf, 50 * MS, features) as looker:
        threads, _ = found(btf, "^exhume-(waits|sleeps)$")
        ours = [one for one in threads if pid == one.tid or one.pid == os.getpid()]
        looker.watch(ours, [])
        for _ in range(2):
            rows = seen(looker).threads
        asleep = {one.comm: (int(row["asleep"]), int(row["asleep_before"])) for one, row in zip(ours, rows, strict=True)}
    assert asleep == {"exhume-waits": (0, 0), "exhume-sleeps": (1, 1)}
    assert not rows["throttled"].any()


def test_a_thread_that_ended_is_not_there(btf: Btf) -> None:
    with named(b"exhume-stays") as stays, Looker(btf, 50 * MS) as looker:
        with named(b"exhume-ends") as ends:
            threads = [one for one in found(btf, "^exhume-(ends|stays)$")[0] if one.tid in (ends, stays)]
            looker.watch(threads, [])
            assert seen(looker).threads["there"].tolist() == [1, 1]
        there = dict(zip((one.tid for one in threads), seen(looker).threads["there"].tolist(), strict=True))
    assert there == {ends: 0, stays: 1}


def test_a_task_at_an_address_that_is_none_is_not_there(btf: Btf) -> None:
    threads = [Thread(address, address, 77, 77, "gone", "", 0) for address in (0, 8, 1 << 47, (1 << 64) - 8, 0xDEAD << 48)]
    with Looker(btf, 50 * MS) as looker:
        looker.watch(threads, threads)
        it = seen(looker)
    assert it.threads["there"].tolist() == it.cores["known"].tolist() == [0] * 5


def test_a_thread_that_is_no_ksoftirqd_leads_to_no_core(btf: Btf) -> None:
    with named(b"ksoftirqd/0"), Looker(btf, 50 * MS) as looker:
        threads, _ = found(btf, "^ksoftirqd/0$")
        impostors = [one for one in threads if not one.kernel]
        looker.watch([], impostors)
        assert seen(looker).cores["known"].tolist() == [0]


@each_fallback
def test_more_threads_and_cores_than_one_run_looks_at(btf: Btf, features: Features) -> None:
    with sleepers(70) as tids, Looker(btf, 50 * MS, features) as looker:
        threads, cores = found(btf, "^exhume-sleeps$")
        ours = [one for one in threads if one.pid == os.getpid()]
        many = cores * (40 // len(cores) + 1)
        looker.watch(ours, many)
        before = softirqs()
        it = seen(looker)
        assert it.threads["tid"].tolist() == [one.tid for one in ours]
        assert sorted(it.threads["tid"].tolist()) == tids
        assert it.threads["there"].tolist() == [1] * 70
        assert it.cores["known"].tolist() == [1] * len(many)
        assert (it.cores["softirqs"] >= np.tile(before[: len(cores)], (len(many) // len(cores), 1))).all()
        looker.watch(ours[:1], cores)
        assert len(seen(looker).threads) == 1
        looker.watch([], [])
        assert not looker.glance()
        assert len(looker.seen(0).threads) == len(looker.seen(0).cores) == 0


def test_those_who_are_watched_on_are_compared_with_the_look_before(btf: Btf) -> None:
    """Others come and go while a thread waits or a softirq is due, and that is no reason to begin anew."""
    with sleepers(40), Looker(btf, 50 * MS) as looker:
        threads, cores = found(btf, "^exhume-sleeps$")
        looker.watch(threads[:2], cores)
        first = seen(looker)
        looker.watch([*threads[2:], threads[1]], cores[::-1])
        then = seen(looker)
    assert int(then.threads[-1]["pcount_before"]) == int(first.threads[1]["pcount"]) > 0
    assert int(then.threads[-1]["run_delay_before"]) == int(first.threads[1]["run_delay"])
    assert not then.threads["pcount_before"][:-1].any()
    assert (then.cores["softirqs_before"] == first.cores["softirqs"][::-1]).all()


def test_whether_a_thread_that_polls_has_something_to_do(btf: Btf) -> None:
    needs_a_core_to_hold()
    with veth_pair() as pair, Looker(btf, 50 * MS) as looker, off_the_core():
        pair.thread(CORE)
        finder = Discover(btf)
        threads = [one for one in finder.find().threads if (one.device, one.netns) == (RECEIVER, pair.netns)]
        finder.close()
        looker.watch(threads, [])
        wait_for(lambda: not int(seen(looker).threads[0]["state"]) & NAPI_DUE)  # after the kernel's own packets, of IPv6
        with pair.sending(2000, cpu=0) as sender:
            holder = ready_to_hold(HELD_MS)
            hold_now(holder)
            sending = threading.Thread(target=sender.send)
            sending.start()
            wait_for(lambda: int(seen(looker).threads[0]["state"]) & NAPI_DUE)
            held(holder)
            sending.join()
        pair.unthread()


def test_all_is_gone_when_it_is_closed(btf: Btf) -> None:
    before, descriptors = loaded.of_process(), set(os.listdir("/proc/self/fd"))
    with Looker(btf, 50 * MS) as looker:
        looker.watch([Thread(0, 0, 1, 1, "", "", 0)] * 100, [])
        ours = loaded.of_process() - before
        assert len(ours) == 4
    assert loaded.gone(ours)
    assert set(os.listdir("/proc/self/fd")) == descriptors


# Kernels that are not at hand


class Without(Btf):
    """This kernel's types, but for some of a core's variables."""

    missing: tuple[str, ...] = ()

    def per_cpu(self, name: str) -> int | None:
        return None if name in self.missing else super().per_cpu(name)


def without(*names: str) -> Without:
    made = Without.vmlinux()
    made.missing = names
    return made


@pytest.mark.parametrize("name", ["kstat", "__softirq_pending"])
def test_a_kernel_that_hides_its_softirqs_is_looked_at_without(name: str) -> None:
    types = without(name, "pcpu_hot", "irq_stat") if name != "kstat" else without(name)
    with named(b"exhume-stays") as pid, Looker(types, 50 * MS) as looker:
        assert not looker.sees_softirqs
        threads, cores = found(types, "^exhume-stays$")
        looker.watch([one for one in threads if one.tid == pid], cores)
        it = seen(looker)
    assert it.threads["there"].tolist() == [1]
    assert it.cores["known"].tolist() == [1] * len(cores)


def test_a_kernel_that_does_not_say_where_its_cores_are_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(look, "Variables", lambda btf: Variables(btf, tmp_path / "kallsyms"))
    with pytest.raises(Unreadable, match=r"neither this kernel's BTF nor /proc/kallsyms says where a core keeps runqueues"):
        Looker(without(RUN_QUEUE), 50 * MS)
    with pytest.raises(Unreadable, match="where a core keeps ksoftirqd"):
        Looker(without("ksoftirqd"), 50 * MS)


def test_variables_that_btf_does_not_have_are_found_by_their_symbols(btf: Btf, tmp_path: Path) -> None:
    file = tmp_path / "kallsyms"
    lines = [f"{btf.per_cpu(name) or 0:016x} A {name}" for name in ("runqueues", "ksoftirqd", "kstat", "softnet_data")]
    file.write_text("\n".join(["ffffffff81000000 T _text", *lines, "ffffffffc0000000 d irq_stat\t[evil]", ""]))
    by_symbols, by_types = Variables(without(RUN_QUEUE), file), Variables(btf, tmp_path / "absent")
    for name in ("runqueues", "ksoftirqd", "kstat", "softnet_data"):
        assert by_symbols.distance(name) == by_types.distance(name) is not None, name
    for name in ("irq_stat", "nothing"):
        assert by_symbols.distance(name) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"0000000000000000 A runqueues\n0000000000000000 A ksoftirqd\n",  # to those who may not know
        b"0000000000000008 A ksoftirqd\n",
        b"0000000000000008 A runqueues\n0000000000000010 A runqueues\n",
        b"not hexadecimal A runqueues\n\xff\x00",
    ],
)
def test_symbols_that_say_nothing_lead_nowhere(raw: bytes) -> None:
    assert RUN_QUEUE not in variables.parse(raw)
