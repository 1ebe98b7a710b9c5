"""The text of perf script: every field choice, every odd name, every sample; and no text that breaks it."""

import gzip
import os
import shutil
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.imports import perf_script, script_frames, script_header, script_sample
from exhume.imports.incoming import Ids, Import, Input, Wanted, memory
from tests.examples import examples


class Row(NamedTuple):
    comm: str
    pid: int
    tid: int
    core: int
    time: int
    frames: tuple[str, ...]


class Read(NamedTuple):
    source: Import
    rows: list[Row]
    frames: dict[int, dict[str, Any]]
    stacks: dict[int, dict[str, Any]]
    threads: dict[int, dict[str, Any]]
    classes: list[str]


def read(text: bytes | Input, event: str = "", forgetful: bool = False) -> Read:
    source = text if isinstance(text, Input) else memory(text)
    with closing(source):
        return _read(source, event, forgetful)


def _read(source: Input, event: str, forgetful: bool) -> Read:
    found = perf_script.opened(source, Wanted(event))
    frames: dict[int, dict[str, Any]] = {}
    stacks: dict[int, dict[str, Any]] = {}
    threads: dict[int, dict[str, Any]] = {}
    rows, classes = [], []
    for batch in found.batches(Ids()):
        for name, known in (("frames", frames), ("stacks", stacks), ("threads", threads)):
            for row in batch[name].rows():
                assert row["id"] not in known
                known[row["id"]] = row
        for row in batch["samples"].rows():
            who, stack = threads[row["thread"]], stacks[row["stack"]]
            names = tuple(frames[one]["name"] for one in stack["frames"])
            rows.append(Row(who["comm"], who["pid"], who["tid"], row["core"], row["time"], names))
            classes.append(stack["class"])
        if forgetful:
            found.forget()
    return Read(found, rows, frames, stacks, threads, classes)


STACK = b"""\
\tffffffff81a0b0c0 __schedule+0x2e8 ([kernel.kallsyms])
\tffffffffc0345678 nf_hook_slow+0x12 ([nf_conntrack])
\t    7f1060856240 main+0x10 (/usr/bin/my app (deleted))
"""


@pytest.mark.parametrize(
    "comm",
    [
        "python3",
        "Web Content",
        "kworker/u8:3-ev",
        "foo [bar] 12 34",
        ":1234",
        "a: b",
        "a 5 1.000000:",
        "1 [0] 2.000000:",
        "12 34",
        "[000]",
        "x/y 7/8",
        "K",
        "#hash",
        "a  b",
        "kworker/u8:3-events_unbound",
    ],
)
@pytest.mark.parametrize("fields", ["{c} {t:>7} [{n:03}] ", "{c:>16} {p:>5}/{t:<5} [{n:03}] ", "{c} {t:>7} "])
def test_a_comm_may_hold_whatever_threads_are_called(comm: str, fields: str) -> None:
    pid, tid = (70, 71) if "{p" in fields else (71, 71)
    core = 3 if "[" in fields else -1
    front = fields.format(c=comm, t=71, p=70, n=3)
    other = fields.format(c="other", t=9, p=9, n=1)
    text = "".join(
        f"{who}{i + 5:>5}.000123:      10101 cycles:ppp: \n{STACK.decode()}\n" for i, who in enumerate([front, other, front])
    )
    found = read(text.encode())
    frames = ("main", "nf_hook_slow", "__schedule")
    assert found.rows[::2] == [Row(comm, pid, tid, core, (i * 1_000_000 + 123) * 1000, frames) for i in (5, 7)]
    assert found.rows[1].comm == "other"
    assert not any("nothing that perf" in note for note in found.source.notes)


@pytest.mark.parametrize(
    ("line", "period", "event", "address"),
    [
        ("    100010 cpu-clock:pppH: ", 100010, "cpu-clock:pppH", ""),
        (
            "cycles:u:  ffffffff821f5618 __schedule ([kernel.kallsyms])",
            0,
            "cycles:u",
            "ffffffff821f5618 __schedule ([kernel.kallsyms])",
        ),
        (" 1 sched:sched_switch: prev_comm=a b prev_pid=1 ==> next_comm=x", 1, "sched:sched_switch", ""),
        ("cpu_core/cycles/P: ", 0, "cpu_core/cycles/P", ""),
        ("     250000 raw 0x1a8: ", 250000, "raw 0x1a8", ""),
        ("  ffffffff821f5618 __schedule", 0, "", "ffffffff821f5618 __schedule"),
        ("         1 ", 1, "", ""),
        ("", 0, "", ""),
        ("probe:f: (ffffffff81) add fd", 0, "probe:f", ""),
        ("syscalls:sys_enter_read: fd: 0x00000003, buf: 0x7f", 0, "syscalls:sys_enter_read", ""),
        ("ftrace:print: add me", 0, "ftrace:print", ""),
        ("    99 cycles:            1933 f+0x3 (/bin/a)", 99, "cycles", "1933 f+0x3 (/bin/a)"),
    ],
)
def test_what_is_behind_the_time(line: str, period: int, event: str, address: str) -> None:
    tail = script_sample.tail(line.encode())
    assert (tail.period, tail.event, script_sample.address(tail.rest).decode()) == (period, event, address)


@pytest.mark.parametrize(
    ("line", "name", "module", "space"),
    [
        ("ffffffff81a0b0c0 __schedule+0x2e8 ([kernel.kallsyms])", "__schedule", "[kernel]", "kernel"),
        ("ffffffff81a0b0c0 __schedule ([kernel])", "__schedule", "[kernel]", "kernel"),
        ("ffffffff81a0b0c0 f+0x1 ([guest.kernel.kallsyms.77])", "f", "[guest.kernel]", "kernel"),
        ("ffffffff81a0b0c0 f+0x1 (/usr/lib/debug/boot/vmlinux-6.1.0)", "f", "[kernel]", "kernel"),
        ("ffffffffc0345678 f+0x1 ([nf_conntrack])", "f", "nf_conntrack", "kernel"),
        ("ffffffffc0345678 f+0x1 (/lib/modules/6.1/kernel/net/nf-conn.ko.xz)", "f", "nf_conn", "kernel"),
        ("ffffffffc0345678 f+0x1 (bpf_prog_6deef7357e7b4530_sd_fw)", "f", "bpf", "kernel"),
        ("ffffffffc0345678 f+0x1 ([bpf])", "f", "bpf", "kernel"),
        ("7fff1234 __vdso_gettimeofday+0x1 ([vdso])", "__vdso_gettimeofday", "[vdso]", "user"),
        (
            "1234 std::vector<int, a (*)(b)>::f(int, char) const+0x1f (/usr/lib/a b (1).so)",
            "std::vector<int, a (*)(b)>::f(int, char) const",
            "/usr/lib/a b (1).so",
            "user",
        ),
        ("1234 f(int) (/usr/lib/x.so (deleted))", "f(int)", "/usr/lib/x.so", "user"),
        ("1234 <T as core::fmt::Debug>::fmt+0x3 (/bin/r)", "<T as core::fmt::Debug>::fmt", "/bin/r", "user"),
        ("1234 py::f:/x/y z.py+0x1 (/tmp/perf-12.map)", "py::f:/x/y z.py", "[jit]", "user"),
        ("1234 operator()(int)", "operator()(int)", "", "user"),
        ("1234 f+0x12 (/bin/a+0x1234)", "f", "/bin/a", "user"),
        ("ffffffff81a0b0c0 __schedule", "__schedule", "[kernel]", "kernel"),
        ("1234 (/bin/a)", "", "/bin/a", "user"),
        ("1234 f+0x2", "f", "", "user"),
    ],
)
def test_a_frame(line: str, name: str, module: str, space: str) -> None:
    found = script_frames.parse(b"\t    " + line.encode())
    assert found is not None
    assert found[:3] == (name, module, space)
    assert found.offset == (0x1234 if not name else -1)


def test_a_frame_without_a_name_has_its_address_and_one_in_no_file_leads_nowhere() -> None:
    stack = b"""\tffffffff81000010 [unknown] ([kernel.kallsyms])
\t            12ab [unknown] (/bin/a)
\t    7f10600da9c0 [unknown] ([unknown])
\t    7f1060856240 [unknown] ([unknown])
"""
    found = read(
        b"a 1 [000] 1.000001: 1 cycles: \n" + stack + b"\na 1 [000] 1.000002: 1 cycles: \n" + stack.replace(b"da9c0", b"da9c8")
    )
    assert {(row["module"], row["offset"]) for row in found.frames.values()} == {
        ("", -1),
        ("/bin/a", 0x12AB),
        ("[kernel]", 0xFFFFFFFF81000010 - 2**64),
    }
    assert len(found.stacks) == 1
    assert found.rows[0].frames == ("", "", "")


def test_inlined_frames_are_where_their_caller_is() -> None:
    text = b"a 1 [000] 1.000001: 1 cycles: \n\t 12 inner (inlined)\n\t 12 outer+0x2 (/bin/a)\n"
    text += b"\t 13 k (inlined)\n\tffffffff81000010 x+0x1 ([kernel.kallsyms])\n\n"
    found = read(text + text)
    assert [row.frames for row in found.rows] == [("x", "k", "outer", "inner")] * 2
    assert {row["name"]: (row["module"], row["space"]) for row in found.frames.values()} == {
        "x": ("[kernel]", "kernel"),
        "k": ("[kernel]", "kernel"),
        "outer": ("/bin/a", "user"),
        "inner": ("/bin/a", "user"),
    }


def test_samples_without_stacks_are_kept() -> None:
    text = b"""\
            perf  2887 [001] 24820.479983:     100 cycles:  ffffffff821f5618 __schedule+0x8 ([kernel.kallsyms])
         swapper     0 [000] 24820.480167:     100 cycles:  ffffffff821f5619 default_idle+0x9 ([kernel.kallsyms])
         swapper     0 [000] 24820.480168:     100 cycles:
              :5     5 [000] 24820.480169:     100 cycles:              12ab f+0x1 (/bin/a b)
            perf    -1 [000] 24820.480170:     100 cycles:
"""
    found = read(text)
    assert [(row.comm, row.pid, row.core, row.frames) for row in found.rows] == [
        ("perf", 2887, 1, ("__schedule",)),
        ("swapper", 0, 0, ("default_idle",)),
        ("swapper", 0, 0, ()),
        (":5", 5, 0, ("f",)),
        ("perf", -1, 0, ()),
    ]
    assert found.classes == ["system", "idle", "idle", "user", "user"]


@pytest.mark.parametrize("stacks", [True, False])
def test_dos_line_ends_nanoseconds_and_blank_lines_change_nothing(stacks: bool) -> None:
    text = b"".join(b"a b 1/2 [000] %d.%06d: 9 cycles: \n%b" % (i, i, STACK + b"\n" if stacks else b"") for i in range(50))
    plain = read(text)
    assert len(plain.rows) == 50
    assert read(text.replace(b"\n", b"\r\n")).rows == plain.rows
    assert read(text.replace(b"\n\n", b"\n\n\n\n")).rows == plain.rows
    assert read(text.replace(b": 9", b"000: 9")).rows == plain.rows
    assert read(text.removesuffix(b"\n")).rows == plain.rows


def test_srclines_and_records_of_tasks_are_no_samples_and_no_damage() -> None:
    text = b"swapper 0 [000] 0.000000: PERF_RECORD_COMM: a:1/1\nswapper 0 [000] 0.000000: PERF_RECORD_FORK(1:1):(0:0)\n" + (
        b"a 1 [000] 1.000001: K 1 cycles: \n".replace(b" K", b"")
        + b"\t 12 f+0x2 (/bin/a)\n  file.c:12\n\t 13 main+0x2 (/bin/a)\n  ??:0\n\n"
    )
    found = read(text)
    assert [row.frames for row in found.rows] == [("main", "f")]
    assert len(found.source.notes) == 1  # one number a thread


def test_time_may_go_backwards_and_all_of_it_is_kept() -> None:
    capture = b"".join(b"a 1 [000] %d.000000: 1 cycles: \n%b\n" % (i, STACK) for i in range(100, 200))
    found = read(b"# ========\n# captured on    : x\n#\n" + capture + b"# ========\n#\n" + capture)
    assert len(found.rows) == 200
    assert found.rows[100:] == found.rows[:100]


def test_the_process_is_named_by_its_first_thread() -> None:
    lines = ["worker 5/6", "server 5/5", "worker 5/6", "renamed 5/5", "worker 5/6", "worker 5/6"]
    text = "".join(f"{who} [000] {i}.000000: 1 cycles: \n{STACK.decode()}\n" for i, who in enumerate(lines))
    with closing(memory(text.encode())) as source:
        (batch,) = perf_script.opened(source, Wanted()).batches(Ids())
    threads = {row["id"]: row["process"] for row in batch["threads"].rows()}
    assert [threads[row["thread"]] for row in batch["samples"].rows()] == [
        "worker",
        "server",
        "server",
        "renamed",
        "renamed",
        "renamed",
    ]


TWO = b"".join(
    b"a 1 [000] %d.000001: 1 sched:sched_switch: prev=x\n%b\na 1 [000] %d.000002: %d cycles:P: \n%b\n" % (i, STACK, i, i, STACK)
    for i in range(30)
)


def test_of_several_events_one_is_taken_and_the_others_are_told() -> None:
    found = read(TWO)
    assert len(found.rows) == 30
    assert found.rows[0].time == 2000
    assert found.source.about["event"] == "cycles"
    assert "samples of cycles:P were taken; --event takes others (sched:sched_switch: 30)" in found.source.notes
    assert read(TWO, "sched:sched_switch").rows[0].time == 1000
    assert read(TWO, "cycles:P").rows == found.rows
    none = read(TWO, "page-faults")
    assert not none.rows
    assert (
        "it has no sample of the event page-faults, only of others (sched:sched_switch: 30, cycles:P: 30)" in none.source.notes
    )


def test_cycles_of_two_kinds_of_cores_are_one_event() -> None:
    text = b"a 1 [000] 1.000001: 1 cpu_core/cycles/P: \n\na 1 [001] 1.000002: 1 cpu_atom/cycles/P: \n\n"
    text += b"a 1 [001] 1.000002: 1 instructions: \n\n"
    assert [row.core for row in read(text).rows] == [0, 1]


def test_what_does_not_parse_is_counted_with_its_place() -> None:
    first = b"a 1 [000] 1.000000: 1 cycles: \n" + STACK + b"\n"
    found = read(first + b"what is this\n\n" + first + b"\tnonsense\n\n" + first)
    assert len(found.rows) == 3
    assert f"2 lines are nothing that perf script prints, the first at byte {len(first)}" in found.source.notes
    found = read(first + b"a 1 [000] x.000000: 1 cycles: \n" + STACK + b"\n" + first)
    assert len(found.rows) == 2
    assert any("nothing that perf script prints" in note for note in found.source.notes)


def test_a_cut_text_keeps_what_is_whole() -> None:
    text = b"".join(b"a 1 [000] %d.000000: 1 cycles: \n%b\n" % (i, STACK) for i in range(3))
    for end in range(len(text) // 3 + 1, len(text)):
        found = read(text[:end])
        assert len(found.rows) in (1, 2, 3)
        assert {name for row in found.rows for name in row.frames} <= {"main", "nf_hook_slow", "__schedule"}
        assert found.rows[0].frames == ("main", "nf_hook_slow", "__schedule")
    assert any("in the middle of a line" in note for note in read(text[:-8]).source.notes)


def test_a_cut_gzip_gives_what_is_there_and_says_so(tmp_path: Path) -> None:
    text = b"".join(b"a %d [000] %d.%06d: 1 cycles: \n%b\n" % (i * 7919 % 999, i, i * 31 % 1000, STACK) for i in range(5000))
    path = tmp_path / "s.gz"
    packed = gzip.compress(text)
    path.write_bytes(packed[: len(packed) // 2])
    found = read(Input(str(path)))
    assert 1000 < len(found.rows) < 5000
    assert any("gzip" in note for note in found.source.notes)
    path.write_bytes(packed[: len(packed) // 2] + b"\xff" * 200 + packed[len(packed) // 2 + 200 :])
    found = read(Input(str(path)))
    assert len(found.rows) < 5000
    assert any("gzip" in note for note in found.source.notes)


def test_the_header_tells_the_machine_the_rate_and_guesses_the_time() -> None:
    header = b"""\
# ========
# captured on    : Mon Nov 16 05:00:17 2026
# hostname : node-7
# os release : 6.1.0
# nrcpus online : 8
# nrcpus avail : 12
# cpudesc : A CPU
# cmdline : /usr/bin/perf record -F 49 -a -g
# event : name = cycles, , id = { 1 }, type = 0, size = 128, { sample_period, sample_freq } = 49, sample_type = IP, freq = 1
# event : name = dummy:HG, , id = { 2 }, type = 1
# ========
#
"""
    body = b"".join(b"a 1 [000] %d.500000: 1 cycles: \n%b\n" % (i, STACK) for i in range(90, 100))
    found = read(header + body).source
    assert (found.node.hostname, found.node.kernel, found.node.cpus) == ("node-7", "6.1.0", 12)
    assert found.about == {
        "hz": 49,
        "event": "cycles",
        "every_core": True,
        "command": "/usr/bin/perf record -F 49 -a -g",
        "cpu": "A CPU",
    }
    (anchor,) = found.anchors
    assert (anchor.time, anchor.sure) == (99_500_000_000, False)
    assert time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(anchor.real // 10**9)) == "Mon Nov 16 05:00:17 2026"
    with closing(memory(gzip.compress(header + body))) as packed:
        assert not perf_script.opened(packed, Wanted()).anchors
    assert script_header.parse(b"# cmdline : perf record -agF99 -- x\n").command == "perf record -agF99 -- x"
    assert script_header.frequency(script_header.parse(b"# cmdline : perf record -agF99 -- x\n"), []) == 99


@pytest.mark.parametrize(
    ("command", "every_core"),
    [
        ("-a -g -F 99", True),
        ("-ag -F 99 -- top -p 1", True),
        ("-a -F 99 top -p 1", True),
        ("--sample-cpu -p 4242 -F 99 -g", False),
        ("--sample-cpu --tid=4242 -- sleep 1", False),
        ("-gp4242 --sample-cpu -- sh -a", False),
        ("-u root --sample-cpu", False),
    ],
)
def test_samples_of_some_processes_are_not_of_every_core(command: str, every_core: bool) -> None:
    event = "# event : name = cycles, , id = { 1 }, type = 0, { sample_period, sample_freq } = 99, freq = 1\n"
    header = f"# ========\n# cmdline : /usr/bin/perf record {command} \n{event}# ========\n#\n".encode()
    assert read(header + b"a 1 [000] 1.000000: 1 cycles: \n\n").source.about["every_core"] is every_core


def test_a_reference_time_is_a_sure_anchor() -> None:
    line = b"# reference time: 2026-11-16 05:03:50.201586 = 1794805430.201586 (TOD) = 24820.426305347 (monotonic)\n"
    (anchor,) = read(line + b"a 1 [000] 1.000000: 1 cycles: \n\n").source.anchors
    assert anchor[:2] == (24820426305347, 1794805430201586000)
    assert anchor.sure


def test_a_new_chapter_tells_everything_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_script, "_BATCH", 1)
    text = b"".join(
        b"a %d [000] %d.000000: 1 cycles: \n%b\n" % (i % 7, i, STACK.replace(b"main", b"m%d" % (i % 9))) for i in range(9000)
    )
    found = read(text, forgetful=True)
    assert len(found.rows) == 9000
    assert found.rows == read(text).rows
    assert len(found.stacks) > 9
    monkeypatch.setattr(perf_script, "_REMEMBERED", 10)
    assert read(text).rows == found.rows


def test_what_it_looks_like() -> None:
    assert perf_script.looks(b"a 1 [000] 1.000000: 1 cycles: \n" + STACK)
    assert perf_script.looks(b"# ========\n# captured on    : Mon Nov 16 05:00:17 2026\n")
    assert perf_script.looks(b"warning: no symbols\n         swapper     0 [000]     0.000000: cycles: \n")
    for other in (
        b"[   12.345678] usb 1-1: new device\n[   12.345679] x\n",
        b"Nov 15 10:00:00 host kernel: [ 12.345678] foo 12: x\n",
        b"a;b;c 12\n",
        b"PERFILE2" + bytes(100),
        b"            bash-123   [000] d..1.   123.123456: sched_switch: prev_comm=bash\n",
        b"{}\n",
        b"",
    ):
        assert not perf_script.looks(other)


@settings(max_examples=examples(400))
@given(st.binary(max_size=600))
def test_no_bytes_break_it(data: bytes) -> None:
    perf_script.looks(data)
    try:
        found = read(data)
    except ExhumeError:
        return
    assert len(found.rows) <= data.count(b"\n") + 1


PIECES = st.sampled_from(
    [
        b"a 1 [000] ",
        b"1.000000: ",
        b"99999999999.000000: ",
        b"9999999999.000000: ",
        b"1 cycles: ",
        b"\n",
        b"\n\n",
        b"\r\n",
        b"\t",
        b" ",
        b"12ab ",
        b"f+0x1 ",
        b"([kernel.kallsyms])",
        b"(/a b)",
        b"(inlined)",
        b"[unknown] ([unknown])",
        b"#",
        b": ",
        b"-1/",
        b"0/0 ",
        b"PERF_RECORD_X",
        b"\xff\xfe",
        b"\0",
        STACK,
        b"(",
        b")",
        b"+0x",
        b"[999999] ",
        b"ffffffffffffffff ",
        b"# captured on    : Mon Nov 16 05:00:17 2026\n",
        b"# nrcpus avail : 99999999999\n",
        b"swapper 0 [000] 1.000000000: 1 cycles: \n",
    ]
)


@settings(max_examples=examples(800))
@given(st.lists(PIECES, max_size=40), st.booleans())
def test_no_text_made_of_what_perf_prints_breaks_it(pieces: list[bytes], packed: bool) -> None:
    text = b"".join(pieces)
    perf_script.looks(text)
    try:
        found = read(memory(gzip.compress(text)) if packed else text)
    except ExhumeError:
        return
    assert all(row.time >= 0 for row in found.rows)
    assert len(found.rows) <= text.count(b"\n") + 1


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), min_size=1, max_size=3).map(str.strip).filter(bool)


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.tuples(
            NAMES,
            st.integers(0, 4_000_000),
            st.integers(0, 4_000_000),
            st.integers(0, 999),
            st.integers(1, 10**15),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=20,
    ).map(lambda samples: sorted(samples, key=lambda sample: sample[4]))  # as perf prints them
)
def test_what_is_printed_comes_back(samples: list[tuple[str, int, int, int, int, int]]) -> None:
    text = ""
    for comm, pid, tid, core, micro, depth in samples:
        text += f"{comm} {pid:>7}/{tid:<7} [{core:03}] {micro // 10**6:>5}.{micro % 10**6:06}: {pid + 1:>10} cycles:u: \n"
        text += "".join(f"\t{7 + i:>16x} f{i}+0x{pid:x} (/bin/x)\n" for i in range(depth)) + "\n"
    rows = [
        Row(comm, pid, tid, core, micro * 1000, tuple(f"f{i}" for i in reversed(range(depth))))
        for comm, pid, tid, core, micro, depth in samples
    ]
    assert read(text.encode()).rows == rows


def test_hostile_lines_take_no_longer_than_others() -> None:
    """Nothing here is quadratic: a megabyte each, which would take minutes if it were."""
    for piece in (b" ", b"(", b")", b"+0x0 (", b"1.000000: ", b"\t", b"\n\n", b"a 1 [000] 1.000000: ", b" 12 [000]"):
        text = b"a 1 [000] 1.000000: 1 cycles: \n\t 12 " + piece * ((1 << 20) // len(piece)) + b"\n\n" + piece * 9000
        assert len(read(text).rows) >= 1


needs_perf = pytest.mark.skipif(shutil.which("perf") is None or os.geteuid() != 0, reason="perf and root are needed")


@pytest.mark.ci
@needs_perf
def test_a_real_capture_is_read_whole_whatever_fields_are_printed(tmp_path: Path) -> None:
    data = tmp_path / "perf.data"
    command = [
        "perf",
        "record",
        "-q",
        "-F",
        "999",
        "-e",
        "cpu-clock",
        "-a",
        "-g",
        "-o",
        str(data),
        "--",
        "sh",
        "-c",
        "for i in 1 2 3 4 5 6 7 8; do ls -R /usr/lib/python3 >/dev/null 2>&1; done; sleep 0.3",
    ]
    done = subprocess.run(command, stderr=subprocess.PIPE)
    if done.returncode:
        pytest.skip(f"perf cannot record here: {done.stderr.decode()[:200]}")

    def script(*more: str) -> bytes:
        return subprocess.run(
            ["perf", "script", "-i", str(data), *more], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        ).stdout

    count = len(script("-F", "time").splitlines())
    assert count > 20
    whole = read(script("--header", "-F", "comm,pid,tid,cpu,time,period,event,ip,sym,symoff,dso"))
    assert len(whole.rows) == count
    assert whole.source.about["hz"] == 999
    assert whole.source.anchors
    assert not whole.source.notes
    assert any("kernel" in row["space"] for row in whole.frames.values())
    for fields in (
        "comm,tid,cpu,time,event,ip,sym,dso",
        "comm,pid,tid,time,ip,sym",
        "comm,pid,cpu,time,period,event,ip,sym,symoff,dso",
        "comm,tid,cpu,misc,time,event,ip,sym",
    ):
        found = read(script("-F", fields))
        assert [(row.comm, row.time) for row in found.rows] == [(row.comm, row.time) for row in whole.rows]
        if "symoff" in fields:
            assert [row.frames for row in found.rows] == [row.frames for row in whole.rows]
    bare = read(script("-F", "comm,tid,cpu,time,event"))
    assert [(row.comm, row.tid, row.core, row.time) for row in bare.rows] == [
        (row.comm, row.tid, row.core, row.time) for row in whole.rows
    ]
    precise = read(script("--ns"))
    assert [row.time // 1000 for row in precise.rows] == [row.time // 1000 for row in whole.rows]
    flat = read(script("-G"))
    assert any(row.frames for row in flat.rows)
    assert len(flat.rows) == count
