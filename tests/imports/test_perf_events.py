"""Whose samples are taken of a perf.data with several events, what they stand for, and what is said of the others."""

import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.imports import event_names, perf_layout
from exhume.imports.perf_layout import Event, choose
from tests.imports import made_perf as made
from tests.imports.reading import seen
from tests.imports.test_perf_data import needs_perf
from tests.imports.test_perf_script import read
from tests.sources.sampling.made_records import record
from tests.sources.sampling.symbol_processes import compiled

BUSY = ("sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; for i in 1 2 3 4 5; do /bin/true; done")
NO_USER, NO_KERNEL = 1 << 4, 1 << 5


def recorded(path: Path, *options: str, command: tuple[str, ...] = BUSY) -> str:
    done = subprocess.run(["perf", "record", "-q", *options, "-o", str(path), "--", *command], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"perf cannot record that here: {done.stderr.strip().splitlines()[-1]}")
    return str(path)


def counted(path: str) -> dict[str, int]:
    """By perf itself."""
    told = subprocess.run(["perf", "script", "-i", path, "-G", "-F", "event"], check=True, capture_output=True, text=True)
    names = [line.strip().removesuffix(":") for line in told.stdout.splitlines() if line.strip()]
    return {name: names.count(name) for name in names}


def event(name: str, kind: int = 1, config: int = 0, bits: int = 0, period: int = 99) -> Event:
    return Event(kind, config, period, made.USUAL, 0, bits, 0, (1,), name)


@pytest.mark.ci
@needs_perf
def test_tracepoints_of_one_subsystem_are_not_one_event(tmp_path: Path) -> None:
    path = recorded(tmp_path / "sched.data", "-a", "-e", "sched:sched_switch,sched:sched_wakeup")
    theirs = counted(path)
    found, opened = seen(path)
    assert opened.about["event"] == "sched:sched_switch"
    assert opened.about["hz"] == 0
    assert len(found) == theirs["sched:sched_switch"] > 10
    assert any(f"sched:sched_wakeup ({theirs['sched:sched_wakeup']:,})" in note for note in opened.notes)
    assert len(seen(path, event="sched:sched_wakeup")[0]) == theirs["sched:sched_wakeup"]
    with pytest.raises(ExhumeError, match=r"no event sched: it has sched:sched_switch, sched:sched_wakeup"):
        seen(path, event="sched")


@pytest.mark.ci
@needs_perf
def test_what_is_counted_twice_is_taken_once(tmp_path: Path) -> None:
    path = recorded(tmp_path / "twice.data", "-a", "-e", "cpu-clock:u,cpu-clock", "-F", "499")
    theirs = counted(path)
    found, opened = seen(path)
    assert len(found) == theirs["cpu-clock"]
    assert any(f"cpu-clock:u ({theirs['cpu-clock:u']:,})" in note for note in opened.notes)
    assert len(seen(path, event="cpu-clock:u")[0]) == theirs["cpu-clock:u"]
    text = subprocess.run(["perf", "script", "-i", path], check=True, capture_output=True).stdout
    same = read(text)
    assert len(same.rows) == theirs["cpu-clock"]
    assert any(f"cpu-clock:u: {theirs['cpu-clock:u']:,}" in note for note in same.source.notes)


@pytest.mark.ci
@needs_perf
def test_what_is_counted_apart_is_taken_together(tmp_path: Path) -> None:
    path = recorded(tmp_path / "apart.data", "-a", "-e", "cpu-clock:u,cpu-clock:k", "-F", "499")
    found, opened = seen(path)
    assert len(found) == sum(counted(path).values()) > 50
    assert opened.about["event"] == "cpu-clock"
    assert not any("--event" in note for note in opened.notes)
    text = subprocess.run(["perf", "script", "-i", path], check=True, capture_output=True).stdout
    assert len(read(text).rows) == len(found)


@pytest.mark.ci
@needs_perf
def test_terms_are_no_names(tmp_path: Path) -> None:
    path = recorded(tmp_path / "terms.data", "-e", "page-faults/period=1/", "-e", "cpu-clock/freq=199/")
    theirs = counted(path)
    found, opened = seen(path)
    assert (opened.about["event"], opened.about["hz"]) == ("cpu-clock", 199)
    assert len(found) == theirs["cpu-clock/freq=199/"]
    assert len(seen(path, event="page-faults")[0]) == theirs["page-faults/period=1/"]
    assert len(seen(path, event="page-faults/period=1/")[0]) == theirs["page-faults/period=1/"]
    text = subprocess.run(["perf", "script", "--header", "-i", path], check=True, capture_output=True).stdout
    same = read(text)
    assert (same.source.about["event"], same.source.about["hz"]) == ("cpu-clock", 199)
    assert len(same.rows) == len(found)


@pytest.mark.ci
@needs_perf
def test_a_clock_is_one_whatever_it_is_called_and_whatever_sets_its_pace(tmp_path: Path) -> None:
    mine = seen(recorded(tmp_path / "mine.data", "-a", "-e", "cpu-clock/freq=199,name=mine/"))[1]
    assert (mine.about["event"], mine.about["hz"]) == ("mine", 199)
    assert seen(recorded(tmp_path / "fixed.data", "-a", "-e", "cpu-clock", "-c", "5000000"))[1].about["hz"] == 200


FAULTS = """
#include <sys/mman.h>
#include <unistd.h>
static void touch(long pages) {
  char *place = mmap(0, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(place, pages * 4096, MADV_NOHUGEPAGE);
  for (long i = 0; i < pages; i++) place[i * 4096] = 1;
  munmap(place, pages * 4096);
}
int main(void) {
  for (int i = 0; i < 300; i++) { touch(2); usleep(500); }
  for (int i = 0; i < 2; i++) touch(50000);
  return 0;
}
"""


@pytest.mark.ci
@needs_perf
def test_samples_that_stand_for_different_numbers_are_told(tmp_path: Path) -> None:
    program = str(compiled(tmp_path, FAULTS))
    path = recorded(tmp_path / "faults.data", "-e", "page-faults", "-F", "999", command=(program,))
    assert any("shares are of samples, not of page-faults" in note for note in seen(path)[1].notes)
    text = subprocess.run(["perf", "script", "-F", "+period", "-i", path], check=True, capture_output=True).stdout
    assert any("shares are of samples, not of page-faults" in note for note in read(text).source.notes)
    path = recorded(tmp_path / "each.data", "-e", "page-faults", "-c", "1000", command=(program,))
    assert len(seen(path)[0]) > 50
    assert not any("shares are of samples" in note for note in seen(path)[1].notes)
    path = recorded(tmp_path / "clock.data", "-e", "cpu-clock", "-F", "999", command=(program,))
    assert not any("shares are of samples" in note for note in seen(path)[1].notes)


def test_what_the_kernel_and_perf_both_count_as_lost_counts_once() -> None:
    def lost_samples(count: int, misc: int = 0) -> bytes:
        return record(13, struct.pack("=Q", count) + made.trailer(0, 1, 0), misc)

    one = made.sample(1, 5, user=[1])
    for records, told in (
        (one + made.lost(40) + made.lost(2) + lost_samples(42), "lost 42 records"),
        (one + made.lost(40) + lost_samples(42), "lost 42 records"),
        (one + made.lost(40) + lost_samples(500, misc=1 << 15), "lost 40 records"),
        (one + made.lost(1), "lost 1 record:"),
    ):
        assert any(told in note for note in seen(made.file(records))[1].notes)


@pytest.mark.parametrize(
    ("events", "wanted", "taken"),
    [
        # Two kinds of cores: config has the unit above 32 bits.
        ([event("cpu_atom/cycles/", 0, 10 << 32), event("cpu_core/cycles/", 0, 4 << 32)], "", [0, 1]),
        ([event("cpu_atom/cycles/P", 0, 10 << 32), event("cpu_core/cycles/P", 0, 4 << 32)], "cycles", [0, 1]),
        ([event("a53/cpu_cycles/", 8, 0x11), event("a72/cpu_cycles/", 9, 0x11)], "", [0, 1]),
        ([event("cycles:P", 0, 0), event("cpu/cycles/", 4, 0x3C)], "", [0]),
        ([event("cycles:u", 0, 0, NO_KERNEL), event("cycles:ku", 0, 0)], "", [1]),
        ([event("cycles:u", 0, 0, NO_KERNEL), event("cycles:k", 0, 0, NO_USER), event("cycles:k", 0, 0, NO_USER)], "", [0, 1]),
        ([event("cpu-clock", 1, 0), event("task-clock", 1, 1)], "", [0]),
        ([event("task-clock", 1, 1), event("cpu-clock", 1, 0)], "task-clock", [0]),
        ([event("page-faults", 1, 2), event("context-switches", 1, 3)], "", [0]),
        ([event("cpu_core/instructions/", 0, 4 << 32 | 1), event("cpu_atom/instructions/", 0, 10 << 32 | 1)], "", [0, 1]),
        ([event("cpu/event=0x3c/", 4, 0x3C), event("cpu/event=0xc0/", 4, 0xC0)], "", [0]),
        ([event("cpu/event=0x3c/", 4, 0x3C), event("cpu/event=0xc0/", 4, 0xC0)], "cpu/event=0xc0/", [1]),
        ([event("dummy:HG", 1, 9), event("sched:sched_switch", 2, 300)], "", [1]),
        ([event("dummy:HG", 1, 9)], "", [0]),
        ([event("mine", 1, 0), event("page-faults", 1, 2)], "cpu-clock", [0]),
        ([event("cycles", 2, 77), event("cpu-clock", 1, 0)], "", [1]),
    ],
)
def test_which_events_are_taken(events: list[Event], wanted: str, taken: list[int]) -> None:
    assert choose(events, wanted) == taken


@pytest.mark.parametrize(
    ("text", "plain", "unit"),
    [
        ("cycles", "cycles", ""),
        ("cycles:ppp", "cycles", ""),
        ("cpu_core/cycles/P", "cycles", "cpu_core"),
        ("cpu/cycles,period=1000/u", "cycles", "cpu"),
        ("cpu/period=1000,cycles/", "cycles", "cpu"),
        ("cpu-clock/freq=199,call-graph=fp/", "cpu-clock", ""),
        ("page-faults/period=1/u", "page-faults", ""),
        ("cpu/event=0x3c,umask=0x0/", "cpu/event=0x3c,umask=0x0/", ""),
        ("sched:sched_switch", "sched:sched_switch", ""),
        ("sched:sched_switch:u", "sched:sched_switch", ""),
        ("//", "//", ""),
        (":u", ":u", ""),
        ("", "", ""),
    ],
)
def test_the_parts_of_a_name(text: str, plain: str, unit: str) -> None:
    assert event_names.parse(text)[:2] == (plain, unit)


def test_modes_tell_what_cannot_be_counted_twice() -> None:
    name = event_names.parse
    assert name("cycles:u").apart(name("cycles:k"))
    assert not name("cycles:u").apart(name("cycles"))
    assert not name("cycles:uk").apart(name("cycles:k"))
    assert name("cycles:G").apart(name("cycles:H"))
    assert name("cpu_core/cycles/").apart(name("cpu_atom/cycles/"))
    assert not name("cpu_core/cycles/").apart(name("cycles"))


NAMES = st.lists(st.sampled_from(["cycles", "cpu", "/", ":", "u", "=", ",", "period", "freq", "1", "é"]), max_size=8).map(
    "".join
)


@given(st.lists(st.tuples(NAMES, st.integers(0, 9), st.integers(0, 1 << 40), st.integers(0, 1 << 26)), min_size=1), NAMES)
def test_whatever_events_there_are_some_are_taken_and_none_twice(events: list[tuple[str, int, int, int]], wanted: str) -> None:
    made_of = [event(*one) for one in events]
    taken = choose(made_of)
    assert taken
    for each in (taken, choose(made_of, wanted)):
        assert all(made_of[at].apart(made_of[other]) for at in each for other in each if at < other)
        assert each == sorted(set(each))
    assert all(perf_layout.period_at(one) == 5 for one in made_of)


def test_samples_of_virtual_machines_are_theirs() -> None:
    def guest(mode: int, address: int, time: int) -> bytes:
        raw = made.sample(7, time, kernel=[address])
        marks = struct.pack("=3Q", 2, (1 << 64) - 128, (1 << 64) - 512)  # a chain of nothing but marks
        return record(9, raw[8:-24] + marks, misc=mode)

    records = (
        guest(4, 0xFFFFFFFF81000100, 5)
        + guest(5, 0x401000, 6)
        + made.mmap2(7, 0x401000, 0x1000, b"/usr/bin/qemu", 0)
        + made.sample(7, 7, user=[0x401100])
    )
    assert [one.modules for one in seen(made.file(records))[0]] == [["[guest.kernel]"], ["[guest]"], ["/usr/bin/qemu"]]
    text = b"qemu 7 [000] 5.000000: 1 cycles: \n\tffffffff81000100 [unknown] ([guest.kernel.kallsyms])\n\n"
    text += b"qemu 7 [000] 6.000000: 1 cycles: \n\t          401000 [unknown] ([guest/77])\n\n"
    assert {(frame["module"], frame["space"]) for frame in read(text).frames.values()} == {
        ("[guest.kernel]", "kernel"),
        ("[guest]", "user"),
    }


def test_a_text_without_cores_has_none() -> None:
    found = read(b"a 7 5.000000: 1 cycles: \n\t401000 f+0x1 (/bin/a)\n\n" * 3)
    assert {row.core for row in found.rows} == {-1}
    assert any("which core" in note and "-1" in note for note in found.source.notes)
