"""The flight recorder: everything on one clock into a store, whatever the node, the readers or the clock do."""

import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.kernel.clock import Anchor, Clock
from exhume.recorder import samples
from exhume.recorder.cores import Quiet
from exhume.recorder.profiles import FLIGHT, LATENCY, ZOMBIES, Profile
from exhume.recorder.recorder import Anchors, Options, Recorder, Status
from exhume.recorder.samples import Samples
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import Reasons, SourceState, Timeout
from exhume.sources.reader import Reader
from exhume.sources.sampling.sampler import Taken
from tests.recorder.test_readers import Made, reading
from tests.trees import Moving, incident

SECOND = 1_000_000_000
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="system-wide samples need root")


FIRST_IDS = {"stacks": 1001, "frames": 2001, "threads": 3001}


class Memory:
    """A store that keeps what it is given."""

    def __init__(self, turn_at: int = 0) -> None:
        self.chapter = 1
        self.lost: dict[str, int] = {}
        self.next_ids = dict(FIRST_IDS)
        self.batches: list[tuple[int, Recording]] = []
        self.turned = 0
        self._turn_at = turn_at

    @property
    def size_bytes(self) -> int:
        return 4242

    def append(self, rows: Recording) -> None:
        self.batches.append((self.chapter, rows))
        if len(self.batches) == self._turn_at:
            self.chapter += 1

    def turn(self) -> None:
        self.turned += 1
        self.chapter += 1

    def all(self, chapter: int = 0) -> Recording:
        whole = Recording(Node("n", "b", "6", "v1", 2))
        for of, rows in self.batches:
            if chapter in (0, of):
                whole.extend(rows)
        return whole


def fly(
    seconds: float, store: Memory, hz: int = 97, root: Root | None = None, profile: Profile = FLIGHT, strict: bool = True
) -> list[Status]:
    told: list[Status] = []
    options = Options(samples.Options(hz) if hz else None, strict=strict)
    with Recorder(root or Root(), profile, options) as it:
        it.run(store, int(seconds * SECOND), status=told.append)
    return told


NOTHING = reading(FLIGHT)
"""The cores alone."""


@pytest.fixture(scope="module")
def flown() -> tuple[Memory, list[Status]]:
    """Three seconds with everything on, and a new chapter after the first."""
    if os.geteuid() != 0:
        pytest.skip("system-wide samples need root")
    store = Memory(turn_at=1)
    return store, fly(3.2, store)


def test_three_seconds_have_everything_in_them(flown: tuple[Memory, list[Status]]) -> None:
    store, told = flown
    rows = store.all()
    assert len(store.batches) in (3, 4)
    moments = {*rows["cpu"].ints("time").tolist()}
    assert 16 <= len(moments) <= 45
    assert len(rows["anchors"]) >= 3
    assert len({*rows["memcg"].ints("time").tolist()}) >= 3
    assert {"cpu", "memcg", "clock", "samples", "vmstat", "kernel-log"} <= rows.sources().keys()
    assert rows.on("cpu")
    assert rows.on("samples")
    for name in ("own_cpu_ns", "own_rss_bytes", "own_disk_bytes", "samples_taken", "samples_lost", "side_band_lost"):
        assert rows.counter(name) is not None, name
    own = rows.counter("own_rss_bytes")
    assert own is not None
    assert own.last > 1 << 20
    taken = rows.counter("samples_taken")
    assert taken is not None
    assert taken.last == len(rows["samples"])
    assert sum(status.samples for status in told) == len(rows["samples"]) > 0
    assert [status.elapsed_ns for status in told] == sorted(status.elapsed_ns for status in told)
    assert told[-1].size_bytes == 4242


def test_everything_is_on_one_clock(flown: tuple[Memory, list[Status]]) -> None:
    rows = flown[0].all()
    anchors = rows["anchors"].ints("time")
    for table in ("cpu", "samples", "memcg"):
        times = rows[table].ints("time")
        assert len(times)
        assert times.min() > anchors.min() - 2 * SECOND
        assert times.max() < anchors.max() + 2 * SECOND


@pytest.mark.parametrize("chapter", [1, 2])
def test_each_chapter_of_the_store_has_every_name_in_it(flown: tuple[Memory, list[Status]], chapter: int) -> None:
    rows = flown[0].all(chapter)
    assert len(rows["samples"])
    assert {*rows["samples"].ints("stack").tolist()} <= {*rows["stacks"].ints("id").tolist()}
    assert {*rows["samples"].ints("thread").tolist()} <= {*rows["threads"].ints("id").tolist()}
    frames = {frame for stack in rows["stacks"].lists("frames") for frame in stack}
    assert frames <= {*rows["frames"].ints("id").tolist()}


def test_a_recording_that_goes_on_gets_numbers_that_it_has_not_used(flown: tuple[Memory, list[Status]]) -> None:
    store = flown[0]
    for table, first in FIRST_IDS.items():
        ids = store.all()[table].ints("id")
        assert ids.min() == first
        assert ids.max() < store.next_ids[table]  # whoever goes on with this store begins there


@needs_root
def test_a_chapter_is_turned_when_too_many_stacks_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.sources.sampling.profiler.MOST_STACKS", 1)
    store = Memory()
    fly(1.2, store, profile=NOTHING)
    assert store.turned >= 1


def test_it_stops_when_it_is_told_to() -> None:
    store = Memory()
    with Recorder(Root(), NOTHING) as it:
        it.run(store, stop=lambda: len(store.batches) >= 1)
    assert len(store.batches) == 2


def test_without_samples_the_rest_is_recorded_and_it_is_said_why() -> None:
    store = Memory()
    fly(1.2, store, hz=0, profile=NOTHING)
    rows = store.all()
    assert rows.why_off("samples") == "not asked for"
    assert len(rows["cpu"])
    assert rows.counter("samples_taken") is None


def test_where_samples_are_refused_the_rest_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise Unreadable("stack samples cannot be read: it takes root")

    monkeypatch.setattr(samples, "Sampler", refuse)
    store = Memory()
    with Recorder(Root(), NOTHING, Options(samples.Options())) as it:
        assert it.off == "stack samples cannot be read: it takes root"
        assert it.about["hz"] == 0
        it.run(store, SECOND)
    assert store.all().why_off("samples") == it.off


def test_another_nodes_files_are_recorded_without_the_samples_of_this_one(tmp_path: Path) -> None:
    store = Memory()
    tree = incident(tmp_path)
    with Moving(tree, cpus=96, saturated=39, process=4242):
        fly(1.2, store, root=Root(str(tmp_path)))
    rows = store.all()
    assert "not" in rows.why_off("samples")
    assert {*rows["cpu"].ints("core").tolist()} == set(range(96))


def test_a_node_whose_cores_cannot_be_read_is_waited_for_and_not_spun_for(tmp_path: Path) -> None:
    turns = 0

    def stop() -> bool:
        nonlocal turns
        turns += 1
        return False

    store = Memory()
    with Recorder(Root(str(tmp_path)), NOTHING, Options(samples.Options())) as it:
        it.run(store, SECOND, stop)
    assert turns < 100
    assert "proc/stat" in store.all().why_off("cpu")


def test_cores_that_are_dear_to_read_are_read_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what five readings take: 2 % of a core and no more."""
    monkeypatch.setattr("exhume.sources.cpu.DEAREST", 1e-6)
    store = Memory()
    fly(1.2, store, hz=0, profile=NOTHING)
    rows = store.all()
    assert "read every" in rows.why_partial("cpu")
    assert len({*rows["cpu"].ints("time").tolist()}) <= 3


def test_quiet_is_judged_by_what_is_read_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    monkeypatch.setattr(Quiet, "see", lambda quiet, raw, now: seen.append(raw))
    fly(0.8, Memory(), hz=0, profile=NOTHING)
    assert seen
    assert all(raw.startswith(b"cpu ") for raw in seen)


def test_a_reader_that_hangs_costs_its_own_source_and_is_taken_back_when_it_is_well() -> None:
    released = threading.Event()
    hung, fine = Made("hung", released, every_ns=100_000_000), Made("fine", every_ns=100_000_000)
    store = Memory()

    def told(_: Status) -> None:
        if len(store.batches) == 2:  # in the first it is found stuck, in the second the others go on
            released.set()

    with Recorder(Root(), reading(FLIGHT, hung, fine, stuck_ns=150_000_000)) as it:
        it.run(store, 6 * SECOND, status=told)
    before, after = Recording(it.node), Recording(it.node)
    for at, (_, rows) in enumerate(store.batches):
        (before if at < 2 else after).extend(rows)
    assert "no answer within" in before.why_off("hung")
    assert before.counter("hung") is None
    assert before.counter("half") is None
    assert before.counter("fine") is not None
    assert before.on("cpu")
    assert after.on("hung")
    assert after.counter("hung") is not None
    assert after.counter("fine") is not None


def test_a_reader_that_never_comes_back_does_not_keep_it_from_ending() -> None:
    released = threading.Event()
    store = Memory()
    try:
        slow = reading(FLIGHT, Made("hung", released), Made("fine"), grace_ns=500_000_000, stuck_ns=150_000_000)
        fly(1.2, store, hz=0, profile=slow)
    finally:
        released.set()
    assert "no answer within" in store.all().why_off("hung")
    assert store.all().on("fine")


def test_readers_go_on_in_the_next_window_and_one_that_hangs_is_not_asked_again_beside_itself() -> None:
    released = threading.Event()
    hung, fine, made = Made("hung", released), Made("fine"), 0

    def readers(*_: object) -> list[Reader]:
        nonlocal made
        made += 1
        return [hung, fine]

    profile = replace(LATENCY, latency=None, needs_latency=False, readers=readers, stuck_ns=10**8, grace_ns=5 * 10**8)
    windows = [Memory(), Memory()]
    try:
        with Recorder(Root(), profile) as it:
            for store in windows:
                it.run(store, 3 * 10**8)
    finally:
        released.set()
    assert (made, hung.reads, fine.reads) == (1, 1, 4)
    for store in windows:
        assert store.all().source("hung") == SourceState.off(Timeout(100))
        assert store.all().on("fine")


def test_a_walk_of_zombies_may_be_blocked_for_longer_than_other_readers() -> None:
    class Slow(Made):
        def read(self, recording: Recording, time: int) -> Reasons:
            threading.Event().wait(FLIGHT.stuck_ns / 1e9 + 0.3)
            return super().read(recording, time)

    store = Memory()
    with Recorder(Root(), reading(ZOMBIES, Slow("zombies"))) as it:
        it.run(store)
    assert store.all().on("zombies")


def test_a_dear_reader_is_read_less_often() -> None:
    class Dear(Made):
        def read(self, recording: Recording, time: int) -> Reasons:
            sum(range(300_000))
            return super().read(recording, time)

    dear, cheap = Dear("dear", every_ns=50_000_000), Made("cheap", every_ns=50_000_000)
    fly(1.5, Memory(), hz=0, profile=reading(FLIGHT, dear, cheap))
    assert dear.reads < cheap.reads / 2


@needs_root
def test_a_storm_of_side_band_is_let_go_and_counted() -> None:
    it = Samples(Root(), True, samples.Options())
    try:
        it._held = [Taken(b"s" * 80, b"t" * 12_800), Taken(b"", b"t" * 1280)]
        it._shed()
        assert it._held == [Taken(b"s" * 80, b""), Taken(b"", b"")]
        assert it._held_bytes == 80
        assert it.profiler.side_band_lost == 110
    finally:
        it.close()


def anchor(seconds: float, real: float, asleep: float = 0.0) -> Anchor:
    """Perf clock and monotonic stand still in suspend, the boot clock does not."""
    base = int(seconds * SECOND)
    return Anchor(base, base, base + int(asleep * SECOND), int(real * SECOND), 1)


def test_a_wall_clock_that_was_set_is_told_by_how_much() -> None:
    told = Anchors(Clock())
    assert told.step(anchor(1, 1000)) is None
    assert told.step(anchor(2, 1001.0001)) is None
    assert told.step(anchor(3, 4602)) == pytest.approx(3600 * SECOND, rel=1e-3)
    assert told.step(anchor(4, 4603)) is None
    step = told.step(anchor(5, 1004))
    assert step is not None
    assert step == pytest.approx(-3600 * SECOND, rel=1e-3)


def test_time_asleep_is_not_a_step() -> None:
    told = Anchors(Clock())
    assert told.step(anchor(1, 1000)) is None
    assert told.step(anchor(2, 1601, asleep=600)) is None
    assert told.boot_offset_ns == 600 * SECOND


def test_a_step_is_an_event_in_the_recording() -> None:
    class Stepped:
        """A clock whose wall time jumps back an hour after the first reading."""

        def __init__(self) -> None:
            self.reads = 0

        def anchor(self) -> Anchor:
            self.reads += 1
            return anchor(self.reads, 10_000 + self.reads - (3600 if self.reads > 1 else 0))

    rows = Recording(Node("n", "b", "6", "v1", 2))
    anchors = Anchors(Stepped())  # type: ignore[arg-type]
    for _ in range(3):
        anchors.add(rows)
    (event,) = rows["events"].rows()
    assert event["kind"] == "clock-step"
    assert event["message"] == "the wall clock was set back by 1 h"
    assert dict(event["fields"]) == {"step_ns": str(-3600 * SECOND)}
    assert len(rows["anchors"]) == 3


def test_cpu_time_is_monotonic_per_core(flown: tuple[Memory, list[Status]]) -> None:
    rows = flown[0].all()
    for core in {*rows["cpu"].ints("core").tolist()}:
        mine = rows["cpu"].ints("core") == core
        assert (np.diff(rows["cpu"].ints("time")[mine]) > 0).all()
        assert (np.diff(rows["cpu"].ints("user")[mine]) >= 0).all()


def test_what_is_not_asked_for_is_told_as_off() -> None:
    """Whoever reads on from a recorder that had it would take it for on."""
    store = Memory()
    with Recorder(Root(), replace(NOTHING, latency=None), Options(strict=True)) as it:
        it.run(store, SECOND // 10)
    rows = store.all()
    for name in ("samples", "latency", "latency-stacks", "latency-windows", "latency-reclaim"):
        assert not rows.on(name)
        assert rows.why_off(name) == "not asked for"
