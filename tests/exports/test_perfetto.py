"""A Perfetto trace has the samples, the cores, the counters and the events, on one clock, by the numbers of its schema."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from exhume.exports import perfetto
from exhume.exports.subject import Subject
from exhume.recording.choice import Choice
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording, labels
from exhume.recording.writer import Writer
from tests.exports import trace_processor
from tests.exports.wire import Message
from tests.render.made import BEGIN, HZ, IDLE, NODE, REAL, SECOND, Dictionaries, Ran, write

SHIFT = 7 * SECOND
"""How far CLOCK_BOOTTIME is ahead of the recording's clock in the one that is made here."""
SAMPLE, EVENT, TRACK, CLOCKS, TREE, INTERNED = 66, 11, 60, 6, 2, 12


def written(path: str, start: int = BEGIN, end: int = BEGIN + 12 * SECOND, choice: Choice | None = None) -> bytes:
    parts: list[bytes] = []
    subject = Subject(NODE, HZ, "cpu-clock", start, end, REAL + start - BEGIN)
    perfetto.write(parts.append, Folder(path), subject, choice or Choice())
    return b"".join(parts)


def exported(path: str, start: int = BEGIN, end: int = BEGIN + 12 * SECOND, choice: Choice | None = None) -> list[Message]:
    return Message(written(path, start, end, choice)).messages(1)


class Sequences:
    """Reads packets as trace processor does: names count from their packet on, until the sequence begins again."""

    def __init__(self, packets: list[Message]) -> None:
        self.samples: list[tuple[int, int, int, tuple[str, ...]]] = []
        """time, core, pid, names of functions."""
        names: dict[int, str] = {}
        frames: dict[int, int] = {}
        mappings: set[int] = set()
        stacks: dict[int, list[int]] = {}
        begun: set[int] = set()
        for packet in packets:
            sequence, flags = packet.number(10), packet.number(13)
            assert sequence in (1, 2)
            if flags & 1:
                begun.add(sequence)
                if sequence == 1:
                    names, frames, mappings, stacks = {}, {}, set(), {}
            assert not flags & 2 or sequence in begun
            interned = packet.message(INTERNED)
            names.update({one.number(1): one.text(2) for one in interned.messages(5)})
            paths = {one.number(1) for one in interned.messages(17)}
            for one in interned.messages(19):
                assert one.number(7) in paths
                mappings.add(one.number(1))
            for one in interned.messages(6):
                assert one.number(2) in names
                assert one.number(3) in mappings
                frames[one.number(1)] = one.number(2)
            stacks.update({one.number(1): one.ints(2) for one in interned.messages(7)})
            if SAMPLE in packet:
                sample = packet.message(SAMPLE)
                stack = tuple(names[frames[one]] for one in stacks[sample.number(4)])
                assert stack
                self.samples.append((packet.number(8), sample.number(1), sample.number(2), stack))


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("perfetto") / "recording")


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> str:
    """With readings of everything: two cores, core 1 half busy, a counter that grows, an event; in two chapters."""
    path = str(tmp_path_factory.mktemp("perfetto") / "full")
    for chapter in range(2):
        writer = Writer(path, NODE, {"hz": HZ, "event": "cpu-clock"}, budget_bytes=1 << 30, segment_ns=5 * SECOND)
        ids = Dictionaries(Recording(NODE))
        for second in range(6 * chapter, 6 * chapter + 6):
            rows = ids.into = Recording(NODE)
            begin = BEGIN + second * SECOND
            rows["anchors"].add(begin, begin + 1, begin + SHIFT, REAL + second * SECOND, 0)
            ticks = 100 * second
            rows["cpu"].add(begin, 0, 0, 0, 0, ticks, 0, 0, 0, 0, 0, 0)
            rows["cpu"].add(begin, 1, ticks // 4, 0, ticks // 4, ticks // 2, 0, 0, 0, 0, 0, 0)
            rows.count(begin, "vmstat_pgscan", second * 10)
            if not second:
                rows.count(begin, "own_rss_bytes", 50 << 20)
                rows.count(begin, "nic_packets", 5, labels(device="eth0", queue=3))
            if second == 4:
                rows["events"].add(begin + 5, "nic-reset-done", "eth0", "critical", "eth0: reset", labels(queue=3))
            for tick in range(100):
                ran = (
                    Ran(1, "kubelet", "kubelet:main k:read", 1, "system", 4242)
                    if tick >= 50
                    else Ran(1, "swapper", IDLE, 1, "idle", 0)
                )
                who, where = ids.thread(ran.process, ran.pid, ran.cgroup), ids.stack(ran.stack, ran.kind)
                rows["samples"].add(begin + tick * SECOND // 100, 1, who, where)
            writer.append(rows)
        writer.close()
    return path


def test_every_sample_has_its_time_core_process_and_stack(recording: str) -> None:
    found = Sequences(exported(recording)).samples
    assert len(found) == 4800
    kubelet = [one for one in found if one[2] == 4242]
    assert len(kubelet) == 300
    assert kubelet[0] == (BEGIN + 5 * SECOND, 3, 4242, ("main", "read", "mem_cgroup_nr_lru_pages"))
    assert Counter(core for _, core, _, _ in found) == dict.fromkeys(range(4), 1200)
    assert [time for time, *_ in found if BEGIN <= time < BEGIN + SECOND] == sorted(
        time for time, *_ in found if time < BEGIN + SECOND
    )


def test_filters_and_window(recording: str) -> None:
    assert len(Sequences(exported(recording, choice=Choice(cores=[3], idle=False))).samples) == 300
    assert len(Sequences(exported(recording, choice=Choice(pids=[77]))).samples) == 240
    assert len(Sequences(exported(recording, BEGIN + 5 * SECOND, BEGIN + 6 * SECOND)).samples) == 400


def test_names_are_told_anew_in_every_chapter_and_times_are_those_since_boot(full: str) -> None:
    packets = exported(full)
    found = Sequences(packets).samples
    assert len(found) == 1200
    assert {stack for *_, pid, stack in found if pid} == {("main", "read")}
    assert (found[0][0], found[-1][0]) == (BEGIN + SHIFT, BEGIN + SHIFT + 11 * SECOND + 990_000_000)
    assert sum(1 for packet in packets if packet.number(13) & 1 and packet.number(10) == 1) == 3
    clocks = {one.number(1): one.number(2) for one in packets[0].message(CLOCKS).messages(1)}
    assert clocks == {6: BEGIN + SHIFT, 3: BEGIN + 1, 1: REAL}


def tracks(packets: list[Message]) -> dict[int, tuple[str, str]]:
    """By number the name of a track, and of the one that it is below of."""
    told = {one.number(1): one for packet in packets for one in packet.messages(TRACK)}
    return {uuid: (one.text(2), told[one.number(5)].text(2) if 5 in one else "") for uuid, one in told.items()}


def events(packets: list[Message]) -> list[tuple[int, tuple[str, str], Message]]:
    known = tracks(packets)
    return [(packet.number(8), known[one.number(11)], one) for packet in packets for one in packet.messages(EVENT)]


def test_a_core_has_a_slice_for_each_stretch_that_it_was_busy(full: str) -> None:
    found = [(time, one) for time, track, one in events(exported(full)) if track == ("core 1", "cores")]
    begins = [(time, one.text(23), one.text(22)) for time, one in found if one.number(9) == 1]
    ends = [time for time, one in found if one.number(9) == 2]
    first = BEGIN + SHIFT + SECOND // 2
    assert begins == [(first + second * SECOND, "kubelet", "system") for second in range(12)]
    assert ends == [first + second * SECOND + SECOND // 2 for second in range(12)]


def test_counters_have_tracks_with_every_change(full: str) -> None:
    values: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for time, track, one in events(exported(full)):
        if one.number(9) == 4:
            values.setdefault(track, []).append((time - SHIFT, one.number(30)))
    assert values["vmstat_pgscan", "counters"] == [(BEGIN + second * SECOND, second * 10) for second in range(12)]
    assert [value for _, value in values["own_rss_bytes", "counters"]] == [50 << 20]
    assert [value for _, value in values["nic_packets device=eth0, queue=3", "counters"]] == [5]
    assert [value for _, value in values["core 0 busy %", "busy cores"]] == [0] * 11
    assert [value for _, value in values["core 1 busy %", "busy cores"]] == [50] * 11


def test_a_counter_that_did_not_change_has_its_value_at_the_begin_of_the_window(full: str) -> None:
    start = BEGIN + 3 * SECOND
    found = [(time, one.number(30)) for time, track, one in events(exported(full, start)) if track[0] == "own_rss_bytes"]
    assert found == [(start + SHIFT, 50 << 20)]


def test_an_event_is_an_instant_with_all_that_is_known(full: str) -> None:
    found = [(time, one) for time, track, one in events(exported(full)) if track == ("events", "")]
    assert [(time, one.number(9), one.text(23)) for time, one in found] == [
        (BEGIN + SHIFT + 4 * SECOND + 5, 3, "nic-reset-done")
    ]
    assert {one.text(10): one.text(6) for one in found[0][1].messages(4)} == {
        "subject": "eth0",
        "severity": "critical",
        "message": "eth0: reset",
        "queue": "3",
    }


def test_processes_are_named(recording: str) -> None:
    trees = [packet.message(TREE) for packet in exported(recording) if TREE in packet]
    assert {one.number(1): one.text(3) for tree in trees for one in tree.messages(1)} == {4242: "kubelet", 77: "sshd"}
    assert {one.number(1): one.number(3) for tree in trees for one in tree.messages(2)} == {4242: 4242, 77: 77}


def test_without_an_anchor_the_recordings_clock_is_taken(tmp_path: Path) -> None:
    boot = perfetto._Boot(Folder(write(tmp_path / "recording", 2)), 0, 1)
    assert boot(np.array([5, -5])).tolist() == [5, 0]


COMPLAINTS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
needs_trace_processor = pytest.mark.skipif(bool(trace_processor.missing()), reason=trace_processor.missing())


@pytest.mark.ci
@needs_trace_processor
def test_perfettos_own_trace_processor_reads_samples_and_stacks(recording: str) -> None:
    leaf = "join stack_profile_callsite c on s.callsite_id = c.id join stack_profile_frame f on c.frame_id = f.id"
    complaints, cores, functions, threads, bounds, deepest = trace_processor.asked(
        written(recording),
        COMPLAINTS,
        "select cpu, count(*) from perf_sample group by cpu order by cpu",
        f"select f.name, count(*) from perf_sample s {leaf} group by 1 order by 2 desc",
        "select t.tid, count(*) from perf_sample s join thread t using (utid) where t.tid != 0 group by 1 order by 1",
        "select min(ts), max(ts) from perf_sample",
        f"select max(c.depth) from perf_sample s {leaf} where f.name = 'mem_cgroup_nr_lru_pages'",
    )
    assert complaints == []
    assert cores == [(core, 1200) for core in range(4)]
    assert functions == [("default_idle", 4260), ("mem_cgroup_nr_lru_pages", 300), ("main", 240)]
    assert threads == [(77, 240), (4242, 300)]
    assert bounds == [(BEGIN, BEGIN + 11 * SECOND + 990_000_000)]
    assert deepest == [(2,)]


@pytest.mark.ci
@needs_trace_processor
def test_perfettos_own_trace_processor_reads_cores_counters_and_events(full: str) -> None:
    complaints, slices, events, counters, clock = trace_processor.asked(
        written(full),
        COMPLAINTS,
        "select t.name, s.name, count(*), sum(dur) from slice s join track t on s.track_id = t.id where dur > 0 group by 1, 2",
        "select s.ts, s.name from slice s where s.dur <= 0",
        "select t.name, count(*), cast(max(c.value) as int) from counter c join counter_track t on c.track_id = t.id "
        "where t.name like '%pgscan%' group by 1",
        f"select to_realtime({BEGIN + SHIFT})",
    )
    assert complaints == []
    assert slices == [("core 1", "kubelet", 12, 12 * SECOND // 2)]
    assert events == [(BEGIN + SHIFT + 4 * SECOND + 5, "nic-reset-done")]
    assert counters == [("vmstat_pgscan", 12, 110)]
    assert clock == [(REAL,)]
