"""Who held a core: by samples of the running kernel, and by any bytes."""

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.root import Root
from exhume.kernel.clock import Clock
from exhume.kernel.perf import Record
from exhume.sources.facts import online_cpus
from exhume.sources.sampling import offenders
from exhume.sources.sampling.kernel_symbols import KernelSymbols
from exhume.sources.sampling.offenders import KEPT_NS, TAKE_NS, Offender, Offenders, parse
from tests.starved import off_the_core

MS = 1_000_000
CORE = max(online_cpus(Root()))
SAMPLE = struct.Struct("=IIQIIQ")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="samples of the kernel's stacks need root")

_IN_KERNEL = """
buffer = bytearray(1 << 22)
file = open("/dev/zero", "rb", buffering=0)
print(flush=True)
while True:
    file.readinto(buffer)
"""
_IN_USER_SPACE = "print(flush=True)\nwhile True: pass"


@contextmanager
def spinning(code: str) -> Iterator[int]:
    """A process that keeps the core to itself, above all else that tests do; fair tasks get 5 % of it from the kernel."""
    process = subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        os.sched_setaffinity(process.pid, {CORE})
        os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(98))
        yield process.pid
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


def followed(it: Offenders, clock: Clock, seconds: float) -> tuple[int, int]:
    with off_the_core(CORE):
        start = clock.now()
        while (now := clock.now()) < start + seconds * 1e9:
            it.follow(now, {CORE})
            time.sleep(0.05)
    return start, now


@needs_root
def test_who_spins_in_the_kernel_is_named_with_its_stack() -> None:
    with spinning(_IN_KERNEL) as pid, Offenders(Root(), online_cpus(Root())) as it, Clock() as clock:
        assert it.reason == ""
        start, end = followed(it, clock, 0.6)
        who = it.who(clock.now(), CORE, start, end)
        assert who is not None
        assert (who.pid, who.tid) == (pid, pid)
        assert 0 < who.samples <= who.total
        assert who.samples > who.total / 2
        if why := KernelSymbols(Root()).reason:
            pytest.skip(why)
        assert any("read_iter_zero" in name or "read_zero" in name for name in who.stack), who.stack
        assert any("vfs_read" in name or "ksys_read" in name for name in who.stack), who.stack
        # Of the thread that waits itself nobody asks.
        other = it.who(clock.now(), CORE, start, end, waiting=pid)
        assert other is None or other.tid != pid


@needs_root
def test_who_spins_in_user_space_is_named_without_a_stack() -> None:
    with spinning(_IN_USER_SPACE) as pid, Offenders(Root(), [CORE]) as it, Clock() as clock:
        start, end = followed(it, clock, 0.5)
        who = it.who(clock.now(), CORE, start, end)
    assert who is not None
    assert (who.pid, who.stack) == (pid, ())


@needs_root
def test_of_another_time_and_another_core_nobody_is_known() -> None:
    with Offenders(Root(), [CORE]) as it, Clock() as clock:
        start, _ = followed(it, clock, 0.3)
        assert it.who(clock.now(), CORE, start - 10**9, start - 10**9 // 2) is None
        assert it.who(clock.now(), CORE + 1000, start, clock.now()) is None


@needs_root
def test_nothing_is_left_when_it_is_closed() -> None:
    before = set(os.listdir("/proc/self/fd"))
    it = Offenders(Root(), online_cpus(Root()))
    assert set(os.listdir("/proc/self/fd")) > before
    it.close()
    it.close()
    assert set(os.listdir("/proc/self/fd")) == before
    it.follow(1 << 60, set())
    assert it.who(1 << 60, CORE, 0, 1 << 60) is None


def test_where_nobody_may_sample_nobody_is_known_and_it_is_said_why() -> None:
    with Offenders(Root(), [99_999]) as it:  # no such core
        assert it.reason
        it.follow(10**12, {0})
        assert it.who(10**12, 0, 0, 10**12) is None


# With samples made by hand


class Taken:
    def __init__(self, samples: bytes) -> None:
        self.samples = samples


class MadeSampler:
    """Gives one core what it is told to."""

    cpus = (3,)

    def __init__(self) -> None:
        self.next = b""

    def take(self) -> list[Taken]:
        given, self.next = self.next, b""
        return [Taken(given)]

    def close(self) -> None:
        pass


def record(body: bytes, kind: int = Record.SAMPLE) -> bytes:
    return struct.pack("=IHH", kind, 0, 8 + len(body)) + body


def sample(time: int, pid: int, tid: int, *chain: int) -> bytes:
    return record(SAMPLE.pack(pid, tid, time, 3, 0, len(chain)) + struct.pack(f"={len(chain)}Q", *chain))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> tuple[Offenders, MadeSampler]:
    sampler = MadeSampler()
    monkeypatch.setattr(offenders, "Sampler", lambda *_, **__: sampler)
    return Offenders(Root(), [3]), sampler


def test_who_was_seen_most_often_is_to_blame(made: tuple[Offenders, MadeSampler]) -> None:
    it, sampler = made
    sampler.next = (
        sample(10, 5, 6) + sample(20, 7, 8) + sample(30, 7, 8) + sample(40, 9, 9) + sample(41, 9, 9) + sample(99, 5, 6)
    )
    assert it.who(100, 3, 10, 50) == Offender(7, 8, 2, 5, ())
    assert it.who(100, 3, 10, 50, waiting=8) == Offender(9, 9, 2, 3, ())
    assert it.who(100, 3, 10, 19) == Offender(5, 6, 1, 1, ())
    assert it.who(100, 3, 11, 19) is None


def test_samples_are_forgotten_but_not_those_of_a_core_on_which_something_waits(made: tuple[Offenders, MadeSampler]) -> None:
    it, sampler = made
    sampler.next = sample(TAKE_NS, 7, 7)
    it.follow(TAKE_NS, set())
    it.follow(TAKE_NS + 2 * KEPT_NS, {3})
    assert it.who(TAKE_NS + 2 * KEPT_NS, 3, 0, 10**18) is not None
    it.follow(2 * TAKE_NS + 2 * KEPT_NS, set())
    assert it.who(2 * TAKE_NS + 2 * KEPT_NS, 3, 0, 10**18) is None


def test_records_that_are_no_samples_are_passed_over(made: tuple[Offenders, MadeSampler]) -> None:
    it, sampler = made
    sampler.next = record(bytes(40), kind=3) + record(bytes(3)) + sample(20, 7, 8) + sample(21, 7, 8)[:-1]
    who = it.who(100, 3, 10, 50)
    assert who is not None
    assert who.pid == 7


@given(st.binary(max_size=120))
def test_any_bytes_are_a_sample_or_none(body: bytes) -> None:
    one = parse(body)
    if one is not None:
        pid, tid, at, _, _, length = SAMPLE.unpack_from(body)
        assert (one.pid, one.tid, one.time, len(one.chain)) == (pid, tid, at, 8 * length)
        assert one.chain in body


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**64 - 1), max_size=5))
def test_a_chain_is_never_longer_than_what_there_is(length: int, chain: list[int]) -> None:
    one = parse(SAMPLE.pack(1, 2, 3, 4, 0, length) + struct.pack(f"={len(chain)}Q", *chain))
    assert (one is None) == (length > len(chain))
