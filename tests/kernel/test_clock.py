"""The perf clock is dmesg's clock."""

import os
import threading
import time

import pytest

from exhume.kernel.clock import Clock


def test_the_clock_goes_on_and_knows_its_error() -> None:
    with Clock() as clock:
        if clock.reason:
            pytest.skip(clock.reason)
        first = clock.anchor()
        time.sleep(0.01)
        second = clock.anchor()
        assert second.perf_ns - first.perf_ns == pytest.approx(second.monotonic_ns - first.monotonic_ns, abs=1_000_000)
        assert 0 <= first.error_ns < 10_000_000
        assert abs(second.real_ns - time.time_ns()) < 1_000_000_000


def test_it_is_the_clock_of_the_kernel_log() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to write to /dev/kmsg")
    with Clock() as clock:
        if clock.reason:
            pytest.skip(clock.reason)
        reader = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(reader, 0, os.SEEK_END)
        before = clock.now()
        with open("/dev/kmsg", "w") as log:
            log.write("<14>exhume test: which time is it\n")
        after = clock.now()
        record = os.read(reader, 8192).decode()
        os.close(reader)
    stamp_ns = int(record.split(",")[2]) * 1000
    assert before - 100_000 <= stamp_ns <= after + 100_000


def test_many_readings_do_not_overflow_the_ring() -> None:
    with Clock() as clock:
        stamps = [clock.anchor().perf_ns for _ in range(500)]
    assert stamps == sorted(stamps)


def test_without_perf_events_it_says_so_and_still_gives_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.kernel.perf._PERF_EVENT_OPEN", {})
    with Clock() as clock:
        assert "perf events" in clock.reason
        assert clock.anchor().error_ns == -1
        assert abs(clock.now() - time.monotonic_ns()) < 1_000_000_000


def test_nothing_is_left_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with Clock() as clock:
        clock.anchor()
    assert len(os.listdir("/proc/self/fd")) == before


def test_other_threads_may_ask_for_now() -> None:
    with Clock() as clock:
        seen: list[int] = []
        thread = threading.Thread(target=lambda: seen.append(clock.now()))
        thread.start()
        thread.join()
        assert abs(seen[0] - clock.now()) < 1_000_000_000
