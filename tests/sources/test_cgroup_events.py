"""cgroups coming and going on the real kernel, and what their events tell: zombies, rates, lifetimes, the rhythm of a loop."""

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.kernel.bpf.tracefs import Field, TracefsError, parse_format
from exhume.kernel.clock import Clock
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import sentences
from exhume.sources.cgroup_events import (
    CgroupEvents,
    Churn,
    Layout,
    Life,
    churn,
    lives,
    memory_hierarchy,
    parent,
    parse_hierarchies,
)
from tests import systemd
from tests.trees import Tree
from tests.waiting import wait_for
from tests.zombies import MEMORY, OWN, unavailable, zombies

HOME = f"/exhume-test-events-{OWN}"
PARENT = Path(f"{MEMORY}{HOME}")
SECOND = 1_000_000_000


def empty() -> Recording:
    return Recording(Node("node", "boot", "6.18", "v1", 2))


class Listener:
    """The reader on this kernel, and what it has seen so far."""

    def __init__(self, events: CgroupEvents, clock: Clock) -> None:
        self.events, self.clock = events, clock
        self.recording = empty()
        self.note = ""

    def rows(self, below: str) -> list[dict[str, Any]]:
        """What happened below a path, everything that others do on this machine left out."""
        self.note = sentences(self.events.read(self.recording, self.clock.now()))
        return [row for row in self.recording["cgroup_events"].rows() if row["path"].startswith(below)]

    def kinds(self, below: str) -> list[str]:
        return [row["kind"] for row in self.rows(below)]

    def lives(self, below: str) -> list[Life]:
        self.rows(below)
        return [life for life in lives(self.recording["cgroup_events"]) if life.path.startswith(below)]


@pytest.fixture
def listener() -> Iterator[Listener]:
    if why := unavailable():
        pytest.skip(why)
    with listening() as found:
        yield found


@contextlib.contextmanager
def listening(memory_only: bool = True) -> Iterator[Listener]:
    events = CgroupEvents(Root(), memory_only)
    try:
        events.open()
    except Unreadable as error:
        pytest.skip(str(error))
    with Clock() as clock:
        yield Listener(events, clock)
    events.close()


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory of ours in the memory hierarchy, gone with all in it afterwards."""
    if why := unavailable():
        pytest.skip(why)
    PARENT.mkdir(exist_ok=True)
    yield PARENT
    for directory, _, _ in os.walk(os.fsencode(PARENT), topdown=False):
        os.rmdir(directory)


def test_a_group_that_comes_and_goes_is_seen_from_mkdir_to_release(listener: Listener, home: Path) -> None:
    before = listener.clock.now()
    (home / "inner").mkdir()
    number = (home / "inner").stat().st_ino
    (home / "inner").rmdir()
    wait_for(lambda: "release" in listener.kinds(f"{HOME}/inner"))
    rows = listener.rows(f"{HOME}/inner")
    assert [row["kind"] for row in rows] == ["mkdir", "rmdir", "release"]
    assert {row["path"] for row in rows} == {f"{HOME}/inner"}
    assert {row["id"] for row in rows} == {number}
    assert {row["level"] for row in rows} == {2}
    assert {row["hierarchy"] for row in rows} == {memory_hierarchy(Root())}
    assert before <= rows[0]["time"] <= rows[1]["time"] <= rows[2]["time"] <= listener.clock.now()
    assert [(row["pid"], row["comm"]) for row in rows[:2]] == [(os.getpid(), Path("/proc/self/comm").read_text().strip())] * 2
    (life,) = listener.lives(f"{HOME}/inner")
    assert life.lifetime_ns > 0
    assert not life.zombie(rows[2]["time"] + 60 * SECOND)
    assert listener.note == ""


def test_what_page_cache_pins_is_removed_and_not_released(listener: Listener) -> None:
    with zombies(20, below="events", held=True) as made_in:
        below = "/" + str(made_in.relative_to(MEMORY)) + "/"
        (made_in / "released").mkdir()
        (made_in / "released").rmdir()
        wait_for(lambda: "release" in listener.kinds(below + "released"))
        seen = listener.lives(below)
        later = listener.clock.now() + 60 * SECOND
        dead = [life for life in seen if life.zombie(later)]
        assert sorted(life.path for life in dead) == sorted(f"{below}z{i}" for i in range(20))
        worst = next(one for one in churn(seen, 0, later) if one.zombies)
        assert (worst.place, worst.made, worst.removed, worst.zombies) == (below + "z*", 20, 20, 20)
    # With the file that pinned them they go, and the events say so.
    wait_for(lambda: not any(life.zombie(later) for life in listener.lives(below)))


def test_only_the_hierarchy_of_the_memory_controller_is_kept_unless_asked(home: Path) -> None:
    other = MEMORY.parent / "pids"
    if not (other / "cgroup.procs").exists():
        pytest.skip("needs a second hierarchy of cgroup v1")
    with listening() as narrow, listening(memory_only=False) as wide:
        for hierarchy in (other, MEMORY):
            Path(f"{hierarchy}{HOME}-both").mkdir()
            Path(f"{hierarchy}{HOME}-both").rmdir()
        seen = {row["hierarchy"] for row in wide.rows(f"{HOME}-both")}
        numbers = parse_hierarchies(Path("/proc/cgroups").read_bytes())
        assert seen == {numbers["memory"], numbers["pids"]}
        assert {row["hierarchy"] for row in narrow.rows(f"{HOME}-both")} == {numbers["memory"]}


def test_hostile_names_are_carried_as_they_are(listener: Listener, home: Path) -> None:
    names = [b"esc\x1b[2J", b"\xff\xfe", "ünï".encode(), b"n" * 255, b"back\\slash", b" lead", b"tab\t"]
    for name in names:
        os.mkdir(os.fsencode(home) + b"/" + name)
        os.rmdir(os.fsencode(home) + b"/" + name)
    paths = [row["path"] for row in listener.rows(f"{HOME}/") if row["kind"] == "mkdir"]
    assert paths == [f"{HOME}/{name.decode('utf-8', 'backslashreplace')}" for name in names]


def test_a_path_that_the_kernel_cuts_is_short_of_its_level(listener: Listener, home: Path) -> None:
    deep = home
    for letter in "abcde":
        deep /= letter * 255
        deep.mkdir()
    deepest = [row for row in listener.rows(f"{HOME}/a") if row["kind"] == "mkdir"][-1]
    assert deepest["level"] == 6
    assert len(deepest["path"]) == 1023
    assert deepest["path"].count("/") < deepest["level"]


def test_the_name_of_a_program_that_is_gone_by_then_is_still_known(listener: Listener, home: Path) -> None:
    assert os.spawnlp(os.P_WAIT, "mkdir", "mkdir", str(home / "spawned")) == 0
    (row,) = listener.rows(f"{HOME}/spawned")
    assert row["comm"] == "mkdir"
    assert row["pid"] != os.getpid()


def test_it_follows_the_reader_protocol_and_counts_what_was_lost(listener: Listener) -> None:
    assert (CgroupEvents.name, CgroupEvents.every_ns) == ("cgroup-events", SECOND)
    listener.rows("/")
    series = listener.recording.counter("cgroup_events_lost")
    assert series is not None
    assert series.last == 0


def test_too_many_at_once_are_counted_and_said(listener: Listener, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.kernel.perf._LARGEST_RING", 4096)
    monkeypatch.setattr("exhume.kernel.perf._SMALLEST_RING", 4096)
    cpus = os.sched_getaffinity(0)
    with listening() as small:
        os.sched_setaffinity(0, {min(cpus)})  # what was lost is told with the next event of the same CPU
        try:
            for i in range(400):
                (home / f"g{i}").mkdir()
                (home / f"g{i}").rmdir()
            small.rows("/")
            (home / "one-more").mkdir()
            (home / "one-more").rmdir()
        finally:
            os.sched_setaffinity(0, cpus)
        small.rows("/")
        assert "events were lost" in small.note
        series = small.recording.counter("cgroup_events_lost")
        assert series is not None
        assert series.last > 0


def test_another_machines_root_has_no_events(tmp_path: Path) -> None:
    tree = Tree(tmp_path).facts().v1(["a"], total=3)
    with pytest.raises(Unreadable, match="running kernel"):
        CgroupEvents(Root(str(tree.path))).read(empty(), 1)


def test_the_nodes_own_root_mounted_elsewhere_has(tmp_path: Path) -> None:
    if why := unavailable():
        pytest.skip(why)
    tree = Tree(tmp_path).facts()
    tree.write("proc/sys/kernel/random/boot_id", Path("/proc/sys/kernel/random/boot_id").read_bytes())
    tree.write("proc/cgroups", Path("/proc/cgroups").read_bytes())
    events = CgroupEvents(Root(str(tree.path)))
    try:
        events.read(empty(), 1)
    finally:
        events.close()


def test_without_tracefs_it_is_off_with_the_reason_and_does_not_try_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def missing() -> None:
        tries.append(1)
        raise TracefsError("tracefs is not there")

    monkeypatch.setattr("exhume.kernel.bpf.tracefs.Tracefs", missing)
    monkeypatch.setattr("exhume.sources.cgroup_events.memory_hierarchy", lambda root: 0)
    events = CgroupEvents(Root())
    for _ in range(3):
        with pytest.raises(Unreadable, match="tracefs is not there"):
            events.read(empty(), 1)
    assert len(tries) == 1


LEAK = """\
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c 'head -c 8192 /dev/zero > /var/tmp/leak-$$$$; exit 1'
Restart=always
RestartSec=200ms
"""


def test_the_crash_loop_of_a_unit_is_seen_with_its_path_its_rhythm_and_its_zombies() -> None:
    if why := unavailable() or systemd.unavailable(memory=True):
        pytest.skip(why)
    with systemd.boot({"leak.service": LEAK}, memory=True) as machine, listening() as listener:
        start = listener.clock.now()
        machine.run(["systemctl", "start", "--no-block", "leak.service"])
        path = f"/{systemd.NAME}/system.slice/leak.service"
        wait_for(lambda: listener.kinds(path).count("rmdir") >= 6)
        machine.run(["systemctl", "stop", "leak.service"], check=False)
        seen = listener.lives(path)
        end = listener.clock.now()
        (loop,) = churn(seen, start, end + 60 * SECOND)
        hands = {(row["pid"], row["comm"]) for row in listener.rows(path) if row["kind"] == "mkdir"}
    assert loop.place == loop.example == path
    assert loop.zombies >= 5
    # systemd waits for RestartSec from the end of one run to the beginning of the next.
    assert 200_000_000 <= loop.rhythm_ns <= end - start
    assert 0 < loop.lifetime_ns < loop.rhythm_ns
    assert hands == {(machine.leader, "systemd")}


# What 5.4 and 6.18 have in tracefs for cgroup_mkdir: the number of a group grew in 5.5.
FORMAT = """\
name: cgroup_mkdir
ID: 544
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:int root;\toffset:8;\tsize:4;\tsigned:1;
{rest}
\tfield:__data_loc char[] path;\toffset:{path};\tsize:4;\tsigned:1;
"""
NEW = "\tfield:int level;\toffset:12;\tsize:4;\tsigned:1;\n\tfield:u64 id;\toffset:16;\tsize:8;\tsigned:0;"
OLD = "\tfield:int id;\toffset:12;\tsize:4;\tsigned:1;\n\tfield:int level;\toffset:16;\tsize:4;\tsigned:1;"


def layout(rest: str, path: int) -> Layout:
    return Layout(parse_format("cgroup:cgroup_mkdir", FORMAT.format(rest=rest, path=path).encode()).fields)


def raw(form: str, values: tuple[int, ...], path: bytes) -> bytes:
    head = struct.pack("=HBBi" + form, 544, 0, 0, 4711, *values)
    return head + struct.pack("=I", (len(path) + 1) << 16 | (len(head) + 4)) + path + b"\0"


@pytest.mark.parametrize("path", [b"/a", b"/", b"", b"/new\nline", b"/\xff\x1b[0m", b"/" + b"x" * 4095])
def test_the_fields_are_where_the_kernel_says(path: bytes) -> None:
    expected = (4, 99, 2, path.decode("utf-8", "backslashreplace"), 4711)
    assert layout(NEW, 24).read(raw("iiQ", (4, 2, 99), path)) == expected
    assert layout(OLD, 20).read(raw("iii", (4, 99, 2), path)) == expected


@given(st.binary(max_size=80), st.integers(0, 80))
def test_a_record_cut_short_or_made_of_garbage_says_nothing_or_something_and_raises_nothing(data: bytes, cut: int) -> None:
    new = layout(NEW, 24)
    whole = raw("iiQ", (4, 2, 99), b"/some/where")
    said = new.read(whole[:cut])
    assert said is None if cut < len(whole) else said is not None
    said = new.read(data)
    if said is not None:
        assert 0 <= said.id < 1 << 63
        assert "\0" not in said.path


def test_a_form_of_record_that_is_not_known_is_refused() -> None:
    fields = parse_format("cgroup:cgroup_mkdir", FORMAT.format(rest=NEW, path=24).encode()).fields
    for name, odd in (("id", Field(16, 3, False)), ("path", Field(24, 4, False, False)), ("level", Field(9, 4, True))):
        with pytest.raises(Unreadable, match="not known"):
            Layout({**fields, name: odd})


@given(st.binary(max_size=300))
def test_any_proc_cgroups_is_read(data: bytes) -> None:
    assert all(number >= 0 for number in parse_hierarchies(data).values())


def test_the_memory_controller_is_in_hierarchy_0_on_v2_even_where_its_row_is_gone(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.proc_cgroups(memory=9)
    assert memory_hierarchy(Root(str(tree.path))) == 4
    tree.proc_cgroups(memory=9, row=False)
    assert memory_hierarchy(Root(str(tree.path))) == 0


def told(*events: tuple[int, str, int, str]) -> list[Life]:
    recording = empty()
    for at, kind, number, path in events:
        recording["cgroup_events"].add(at, kind, 4, number, path.count("/"), path, 1, "systemd")
    return lives(recording["cgroup_events"])


def test_a_group_is_no_zombie_before_the_kernel_had_time_to_release_it() -> None:
    (life,) = told((0, "mkdir", 1, "/a"), (5 * SECOND, "rmdir", 1, "/a"))
    assert not life.zombie(5 * SECOND)
    assert not life.zombie(5 * SECOND + SECOND // 2)
    assert life.zombie(6 * SECOND)


def test_a_group_of_before_that_is_removed_now_is_a_zombie_and_one_released_now_is_none() -> None:
    removed, released = told((1, "rmdir", 1, "/a"), (2, "release", 2, "/b"))
    assert removed.zombie(9 * SECOND)
    assert removed.lifetime_ns == -1
    assert not released.zombie(9 * SECOND)
    assert [one.place for one in churn([removed, released], 0, 9 * SECOND)] == ["/a"]


def test_a_number_that_an_old_kernel_uses_again_is_a_new_life() -> None:
    first, second = told((1, "mkdir", 1, "/a"), (2, "rmdir", 1, "/a"), (3, "release", 1, "/a"), (4, "mkdir", 1, "/b"))
    assert (first.path, first.released, second.path, second.removed) == ("/a", 3, "/b", -1)


def test_events_out_of_order_tell_the_same() -> None:
    events = [(1, "mkdir", 1, "/a"), (2, "rmdir", 1, "/a"), (3, "mkdir", 2, "/a"), (4, "release", 1, "/a")]
    assert told(*events) == told(*reversed(events))


def test_a_crash_loop_has_a_rhythm_a_rate_and_lifetimes() -> None:
    events = []
    for i in range(10):
        start = i * 10 * SECOND + (SECOND if i == 4 else 0)  # one of them late: the median does not mind
        events += [(start, "mkdir", i, f"/docker/{i:064x}"), (start + 2 * SECOND, "rmdir", i, f"/docker/{i:064x}")]
    events += [(3, "mkdir", 99, "/system.slice/quiet.service")]
    loop, quiet = churn(told(*events), 0, 100 * SECOND)
    assert loop == Churn("/docker/<id>", f"/docker/{9:064x}", 10, 10, 10, 0.1, 0.1, 2 * SECOND, 10 * SECOND)
    assert (quiet.made, quiet.zombies, quiet.lifetime_ns, quiet.rhythm_ns) == (1, 0, -1, -1)


def test_by_parent_siblings_of_any_name_are_one_place() -> None:
    seen = told((1, "mkdir", 1, "/x/a"), (2, "mkdir", 2, "/x/b"), (3, "mkdir", 3, "/c"))
    assert {one.place: one.made for one in churn(seen, 0, SECOND, parent)} == {"/x": 2, "/": 1}


events_of_any_kind = st.tuples(
    st.integers(0, 1 << 40),
    st.sampled_from(["mkdir", "rmdir", "release"]),
    st.integers(1, 5),
    st.sampled_from(["/a1", "/b", "/c/2"]),
)


@given(st.lists(events_of_any_kind, max_size=40))
def test_whatever_is_told_adds_up(events: list[tuple[int, str, int, str]]) -> None:
    seen = told(*events)
    places = churn(seen, 0, 1 << 41)
    assert sum(one.made for one in places) == sum(kind == "mkdir" for _, kind, _, _ in events)
    assert sum(one.zombies for one in places) == sum(life.zombie(1 << 41) for life in seen)
    assert all(one.zombies <= one.removed for one in places)
