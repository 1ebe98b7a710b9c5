"""Which threads are watched, found on the running kernel."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.root import Root
from exhume.kernel.bpf import Btf, Features
from exhume.sources.facts import online_cpus
from exhume.sources.latency import discover
from exhume.sources.latency.discover import MOST, PF_KTHREAD, RECORD, Discover, Found, Thread, chosen, core_of, device_of, polls
from tests.kernel.bpf.needs import each_fallback, needs_bpf
from tests.sources.latency.network import RECEIVER, veth_pair
from tests.sources.latency.waiting import named


@contextmanager
def discovery(names: str | None = None, features: Features | None = None) -> Iterator[Discover]:
    it = Discover(Btf.vmlinux(), None if names is None else re.compile(names), features or Features())
    try:
        yield it
    finally:
        it.close()


def thread(tid: int, comm: str, *, kernel: bool = True) -> Thread:
    return Thread(0xFFFF_8880_0000_0000 + tid, 0, tid, tid, comm, "", 0, kernel)


@needs_bpf
@each_fallback
def test_the_ksoftirqd_of_every_core_is_found(features: Features) -> None:
    with discovery(features=features) as it:
        found = it.find()
    cores = list(online_cpus(Root()))
    assert [one.comm for one in found.ksoftirqd] == [f"ksoftirqd/{core}" for core in cores]
    for one in found.ksoftirqd:
        assert Path(f"/proc/{one.tid}/comm").read_text() == one.comm + "\n"
        assert one.pid == one.tid
        assert one.task >= 1 << 63, "an address in the kernel"
        assert one.kernel


@needs_bpf
def test_without_names_nobody_else_but_those_who_poll_is_told() -> None:
    with discovery() as it:
        assert all(polls(one) for one in it.find().threads)


@needs_bpf
@pytest.mark.parametrize("comm", [b"ksoftirqd/0", b"napi/eth0-8193"])
def test_a_process_that_calls_itself_so_is_not_taken_for_one(comm: bytes) -> None:
    with named(comm) as pid, discovery() as silent, discovery("^(ksoftirqd|napi)/") as asked:
        found = silent.find()
        assert pid not in {one.tid for one in (*found.threads, *found.ksoftirqd)}
        found = asked.find()
        assert pid not in {one.tid for one in found.ksoftirqd}
        (impostor,) = [one for one in found.threads if one.tid == pid]  # by its name, as was asked for
    assert (impostor.comm, impostor.kernel, impostor.device, core_of(impostor)) == (comm.decode(), False, "", -1)
    assert not polls(impostor)


@needs_bpf
@each_fallback
def test_threads_are_found_by_name_with_what_is_not_text_in_it(features: Features) -> None:
    with named(b"bad \xff\x1b[2J\n") as pid, discovery(r"^bad \\xff", features) as it:
        found = [one for one in it.find().threads if one.tid == pid]
        assert [one.comm for one in found] == ["bad \\xff\x1b[2J\n"]


@needs_bpf
def test_threads_that_are_not_the_first_of_their_process_are_found() -> None:
    end, ready, tids = threading.Event(), threading.Event(), []

    def wait() -> None:
        Path("/proc/thread-self/comm").write_text("exhume-second")
        tids.append(threading.get_native_id())
        ready.set()
        end.wait()

    other = threading.Thread(target=wait)
    other.start()
    try:
        ready.wait()
        with discovery("^exhume-second$") as it:
            found = [one for one in it.find().threads if not polls(one)]
            assert [(one.tid, one.pid, one.kernel) for one in found] == [(tids[0], os.getpid(), False)]
    finally:
        end.set()
        other.join()


@needs_bpf
def test_a_thread_that_polls_is_told_with_its_device_and_network_namespace() -> None:
    with veth_pair() as pair, discovery() as it:
        pair.thread(0)
        (one,) = [one for one in it.find().threads if one.device == RECEIVER]
        assert polls(one)
        assert one.comm.startswith(f"napi/{RECEIVER}-")
        assert one.netns == pair.netns
        assert one.napi >= 1 << 63, "an address in the kernel"
        pair.unthread()


@pytest.mark.parametrize(
    ("comm", "device"),
    [
        ("napi/eth0-8193", "eth0"),
        ("napi/eth0-", "eth0"),
        ("napi/bond-a-17", "bond-a"),
        ("napi/enp0s31f6-8", "enp0s31f6"),
        ("napi/exhume-tes", "exhume-tes"),  # cut: what is behind the last dash is no number
        ("napi/averylongn", "averylongn"),
        ("napi/", ""),
        ("napi/-1", ""),
        ("napi/a\x1b[2J-5", "a\x1b[2J"),
    ],
)
def test_a_device_by_the_name_of_its_thread(comm: str, device: str) -> None:
    assert device_of(comm) == device


@given(st.one_of(st.text(max_size=20), st.text(max_size=11).map("napi/".__add__)))
def test_any_name_has_some_device_that_is_part_of_it(comm: str) -> None:
    assert device_of(comm) in comm


@given(st.text(max_size=20).map("ksoftirqd/".__add__), st.booleans())
def test_any_name_has_a_core_or_none(comm: str, kernel: bool) -> None:
    core = core_of(thread(7, comm, kernel=kernel))
    assert -1 <= core < 10**6
    assert core == -1 or (kernel and int(comm.partition("/")[2]) == core)


@given(st.binary(min_size=RECORD.itemsize, max_size=RECORD.itemsize))
def test_any_record_is_a_thread(raw: bytes) -> None:
    one = discover._thread(np.frombuffer(raw, RECORD)[0])
    assert one.kernel == bool(int(np.frombuffer(raw, RECORD)[0]["flags"]) & PF_KTHREAD)
    one.comm.encode()
    one.device.encode()


def test_those_who_poll_come_first_and_what_is_too_many_is_counted() -> None:
    many = [thread(i, f"worker{i}", kernel=False) for i in range(MOST + 5, 0, -1)]
    poller, core = thread(9000, "napi/eth0-1"), thread(9001, "ksoftirqd/12")
    found, left_out = chosen([*many, poller, core, thread(9002, "ksoftirqd/3")], re.compile("^worker"))
    assert found.threads[0] == poller
    assert [one.tid for one in found.threads[1:]] == list(range(1, MOST))
    assert left_out == 6
    assert [one.comm for one in found.ksoftirqd] == ["ksoftirqd/3", "ksoftirqd/12"]
    assert chosen([*many, core], None) == (Found([], [core]), 0)
