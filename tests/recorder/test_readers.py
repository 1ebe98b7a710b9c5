"""The loop: rhythm, sources on and off, and readers that fail, hang or have bugs."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.recorder.profiles import CHECK, FLIGHT, Profile
from exhume.recorder.readers import ReaderThread, Source, next_multiple
from exhume.recorder.recorder import record
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import Bug, Failed, Note, Reasons, SourceState, Timeout
from exhume.sources.kernel_log import KernelLog
from exhume.sources.reader import Reader
from tests.trees import Moving, Tree, incident


class Made:
    """A reader that does what it is told."""

    def __init__(self, name: str, does: object = None, every_ns: int = 0) -> None:
        self.name, self.every_ns, self._does = name, every_ns, does
        self.reads = 0

    def read(self, recording: Recording, time: int) -> Reasons:
        self.reads += 1
        if isinstance(self._does, BaseException):
            raise self._does
        if isinstance(self._does, threading.Event):
            recording.count(time, "half", 1)
            self._does.wait()
        recording.count(time, self.name, self.reads)
        return (Note("noted"),)


def reading(profile: Profile, *only: Reader, **changes: Any) -> Profile:
    """The profile with these readers alone, at their own intervals."""
    return replace(profile, readers=lambda *_: [*only], intervals={}, **changes)


def run(*only: Reader, seconds: float = 0.3, strict: bool = False, **changes: Any) -> Recording:
    return record(Root(), reading(CHECK, *only, **changes), int(seconds * 1e9), strict=strict)


def test_the_cores_are_read_ten_times_a_second_or_better() -> None:
    recording = run(seconds=1.0)
    times = np.unique(recording["cpu"].ints("time"))
    assert len(times) > 10
    assert recording.on("cpu")


def test_a_reader_is_asked_at_the_beginning_and_at_the_end() -> None:
    reader = Made("once")
    recording = run(reader)
    assert reader.reads == 2
    assert recording.source("once") == SourceState("on", (Note("noted"),))


def test_a_reader_with_a_rhythm_is_asked_in_between() -> None:
    reader = Made("often", every_ns=100_000_000)
    run(reader, seconds=0.65)
    assert 4 <= reader.reads <= 9


MOMENT = st.integers(0, 1 << 62)


@given(MOMENT, st.integers(1, 10**11), MOMENT)
def test_a_beat_is_the_next_multiple_of_its_rhythm(began: int, every: int, earliest: int) -> None:
    beat = next_multiple(began, every, earliest)
    assert (beat - began) % every == 0
    assert 0 <= beat - earliest < every


def test_readers_of_different_rhythms_meet_whenever_each_was_read_first() -> None:
    seconds = {next_multiple(7, 1_000, earliest) for earliest in (8, 400, 999)}
    tens = {next_multiple(7, 10_000, earliest) for earliest in (8, 400, 999)}
    assert (seconds, tens) == ({1_007}, {10_007})
    assert next_multiple(7, 1_000, 9_008) in tens
    assert next_multiple(7, 0, 400) == 400


def test_a_reader_that_finds_itself_too_dear_is_not_asked_again_until_the_end() -> None:
    class Dear(Made):
        def read(self, recording: Recording, time: int) -> Reasons:
            notes = super().read(recording, time)
            if self.reads == 2:
                self.every_ns = 0
            return notes

    reader = Dear("dear", every_ns=50_000_000)
    run(reader, seconds=0.5)
    assert reader.reads == 3


def test_how_long_it_waited_for_a_core_is_in_the_recording() -> None:
    waited = run().counter("own_wait_ns")
    assert waited is not None
    assert waited.last >= 0


def test_a_source_that_cannot_be_seen_is_off_with_its_reason_and_stops_nothing() -> None:
    recording = run(
        Made("hidden", Unreadable("/x is not there")),
        Made("fine"),
        Made("broken", OSError(5, "Input/output error")),
    )
    assert recording.source("hidden") == SourceState.off(Failed("/x is not there"))
    assert recording.why_off("hidden") == "/x is not there"
    assert recording.on("fine")
    assert recording.why_off("broken") == "Input/output error"


def test_a_bug_in_a_reader_is_called_a_bug_and_stops_nothing() -> None:
    recording = run(Made("buggy", ZeroDivisionError("x")), Made("fine"))
    assert "a bug in exhume" in recording.why_off("buggy")
    buggy = recording.source("buggy")
    assert buggy is not None
    assert buggy.find(Bug) is not None
    assert recording.on("fine")
    with pytest.raises(ZeroDivisionError):
        run(Made("buggy", ZeroDivisionError("x")), strict=True)


def test_a_reader_that_hangs_costs_its_own_source_and_leaves_nothing_half_written() -> None:
    released = threading.Event()
    try:
        before, after = Made("before"), Made("after")
        recording = run(before, Made("hung", released), after, seconds=0.5, grace_ns=500_000_000, stuck_ns=150_000_000)
        assert recording.on("before")
        assert recording.source("hung") == SourceState.off(Timeout(150))
        assert recording.on("after")
        assert (before.reads, after.reads) == (2, 2)
        assert recording.counter("half") is None
        assert recording.on("cpu")
    finally:
        released.set()


def test_a_whole_node_of_files_is_recorded_strictly(tmp_path: Path) -> None:
    tree = incident(tmp_path)
    with Moving(tree, cpus=96, saturated=39, process=4242):
        recording = record(Root(str(tmp_path)), CHECK, 400_000_000, strict=True)
    assert recording.node.cpus == 96
    assert recording.node.cgroups == "v1"
    assert {"cpu", "memcg", "kernel-log", "processes", "interrupts"} <= {
        name for name, row in recording.sources().items() if row.state.up
    }


@pytest.mark.parametrize(
    "content", [b"", b"\xff\x00\x1b[2J\n" * 400, b"9" * 70_000, b"(" * 5_000, b"a:b:c - cgroup x memory\n" * 40]
)
def test_garbage_in_every_file_at_once_is_survived(tmp_path: Path, content: bytes) -> None:
    tree = incident(tmp_path)
    for file in list(tree.path.rglob("*")):
        if file.is_file():
            file.write_bytes(content)
    recording = record(Root(str(tmp_path)), CHECK, 250_000_000, strict=True)
    assert len(recording.sources()) > 10


def test_an_empty_root_is_a_recording_with_every_source_off(tmp_path: Path) -> None:
    recording = record(Root(str(tmp_path)), CHECK, 250_000_000, strict=True)
    assert {row.state.state for name, row in recording.sources().items() if name != "clock"} == {"off"}
    assert Tree(tmp_path)


def test_a_flooded_log_is_still_read_every_second_and_others_are_not() -> None:
    thread = ReaderThread([], Node("n", "b", "6.1", "v1", 2), lambda: 0, FLIGHT, threading.Event())
    cost = 40_000_000  # ten thousand lines
    assert thread.pause(Source(KernelLog(Root("/")), 0), cost) == 1_000_000_000
    assert thread.pause(Source(Made("vmstat", every_ns=2_000_000_000), 0), cost) == 8_000_000_000
