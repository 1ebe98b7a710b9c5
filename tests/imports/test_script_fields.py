"""The text of perf script in odd dress: other clocks, other fields, no times; from a real perf where it can print that."""

import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.quantities import SECOND
from exhume.imports import perf_script, script_clock, script_frames, script_sample
from exhume.imports.incoming import Damaged, Wanted, memory
from tests.examples import examples
from tests.imports.test_perf_script import STACK, Read, needs_perf, read

Script = Callable[..., bytes]
HEADER = b"""\
# ========
# captured on    : Mon Nov 16 05:00:17 2026
# cmdline : perf record -a -- sh -c echo a
import this
# time of first sample : 1000.500000
# time of last sample : 1002.500000
# ========
#
"""


def text(times: list[int], line: str = "a 1 [000] {}: 1 cycles: \n") -> bytes:
    return b"".join(line.format(f"{at // 10**6:>5}.{at % 10**6:06}").encode() + STACK + b"\n" for at in times)


def notes(found: Read) -> str:
    return "\n".join(found.source.notes)


def odd(found: Read) -> int:
    """Lines that were passed over."""
    told = re.search(r"([\d,]+) lines? (?:is|are) nothing that perf script prints", notes(found))
    return int(told[1].replace(",", "")) if told is not None else 0


def test_times_since_the_first_sample_are_told() -> None:
    found = read(text([0, 500_000, 2_000_000]))
    assert [row.time for row in found.rows] == [0, 500_000_000, 2_000_000_000]
    assert "--reltime), and when that was is not known" in notes(found)
    assert not found.source.anchors


def test_the_header_puts_times_since_the_first_sample_back() -> None:
    found = read(HEADER + text([0, 500_000, 2_000_000]))
    assert [row.time for row in found.rows] == [1000_500_000_000, 1001_000_000_000, 1002_500_000_000]
    assert "which its header tells" in notes(found)
    assert "nothing that perf" not in notes(found)  # the command's second line
    assert [(one.time, one.sure) for one in found.source.anchors] == [(1002_500_000_000, False)]


def test_a_part_of_a_capture_is_not_put_where_the_whole_began() -> None:
    found = read(HEADER + text([0, 500_000, 900_000]))
    assert found.rows[-1].time == 900_000_000
    assert "when that was is not known" in notes(found)
    assert found.source.anchors[0].time == 900_000_000


def test_what_passed_between_samples_is_summed_up() -> None:
    passed = [0, 7000, 3000, 9000, 1000, 5000]
    found = read(text(passed))
    assert [row.time // 1000 for row in found.rows] == [0, 7000, 10_000, 19_000, 20_000, 25_000]
    assert "--deltatime): they were summed up" in notes(found)
    mixed = text(passed).replace(b"cycles", b"page-faults", 2)
    assert [row.time // 1000 for row in read(mixed).rows] == [10_000, 19_000, 20_000, 25_000]  # also over other events


def test_several_captures_in_one_text_are_not_taken_for_sums() -> None:
    assert script_clock.since([0, 10, 20, 30, 0, 10, 20, 30]) == "first"
    assert script_clock.since([1000, 1010, 1020, 500, 510, 520]) == "boot"
    assert script_clock.since([]) == "boot"


@settings(max_examples=examples(200))
@given(st.lists(st.integers(1, 10**9), min_size=2, max_size=50))
def test_times_that_grow_are_never_taken_for_sums(steps: list[int]) -> None:
    grown = [sum(steps[:at]) for at in range(len(steps))]
    assert script_clock.since(grown) == "first"
    assert script_clock.since([at + 1 for at in grown]) == "boot"


@settings(max_examples=examples(200))
@given(st.lists(st.integers(0, 9_000_000_000_000_000_000 - 1), min_size=1, max_size=20))
def test_clocks_come_back(times: list[int]) -> None:
    assert script_clock.nanoseconds([b"%d.%09d" % divmod(at, SECOND) for at in times]).tolist() == times


def test_without_times_it_is_refused_and_says_what_to_print() -> None:
    body = b"swapper     0 \n" + STACK + b"\nbash 12 \n" + STACK + b"\n"
    assert perf_script.looks(body)
    with closing(memory(body, "s")) as source, pytest.raises(Damaged, match=r"^s has stacks of perf script, but no times"):
        perf_script.opened(source, Wanted())


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (b"# To display the perf.data header info, please use --header/--header-only options.\n#\n", "perf report"),
        (b"# captured on    : x\n# Samples: 417  of event 'cpu-clock'\n", "perf report"),
        (b"\n0x1a8@perf.data [0x90]: event: 69\n.\n. ... raw event: size 144 bytes\n", "perf script -D"),
        (b"# tracer: nop\n#\n  bash-1 [000] d..1. 1.000000: sched_switch: x\n", "ftrace"),
    ],
)
def test_what_else_perf_prints_is_named(head: bytes, what: str) -> None:
    assert perf_script.looks(head)
    with closing(memory(head)) as source, pytest.raises(Damaged, match=what):
        perf_script.opened(source, Wanted())


@pytest.mark.parametrize(
    "line",
    [
        "  file.c:12",
        "  ??:0",
        "  :0",
        "  file.c:12 (discriminator 3)",
        "  [kernel.kallsyms][ffffffff821ef72b]",
        "  libc.so.6[12ab]",
        "  malloc+24",
        "|12       int x;",
        " ilen: 3",
        " insn: 48 85 db",
        " ilen: 3 insn: 48 85 db",
        "  0x7f12/0x7f34/P/-/-/0  0x7f56/0x7f78/M/-/-/2 ",
        " main+0x12/f+0x0/P/-/-/1 ",
        " ABI:2    AX:0x1    BX:0x2",
        "               0",
        "        10a3b210 4K 2M",
        " /system.slice/a.service",
        "\t00007f8a42e4a1b0\tinsn: 48 89 e7",
    ],
)
def test_other_fields_below_a_stack_are_no_frames_and_no_damage(line: str) -> None:
    sample = b"a 1/1 [000] %d.000000: 1 cycles: \n"
    ends = (STACK + line.encode() + b"\n\n", STACK + line.encode() + b"\n")  # with or without a blank line behind it
    for end in ends:
        found = read(b"".join(sample % at + end for at in range(1, 4)))
        assert [row.frames for row in found.rows] == [("main", "nf_hook_slow", "__schedule")] * 3
        assert not found.source.notes
    assert script_frames.beside(line.encode())


@pytest.mark.parametrize(
    "rest",
    [
        "      7f47af844270 f+0x1 (/bin/a) ilen: 6",
        "      7f47af844270 f+0x1 (/bin/a) ilen: 6 insn: ff 25",
        "                0     7f47af844270 f+0x1 (/bin/a)",
        "     7f47af9b4c2d other+0x3 (/bin/b)     7f47af844270 f+0x1 (/bin/a)",
        "     7f47af9b4c2d [unknown] (/bin/b)               0     7f47af844270 f+0x1 (/bin/a)               0",
        "       1e05080021 |OP N/A|LVL N/A or N/A|BLK  N/A     7f47af844270 f+0x1 (/bin/a)",
        "      7f47af844270 f+0x1 (/bin/a)  0x7f12/0x7f34/P/-/-/0 ",
    ],
)
def test_other_fields_beside_an_address_do_not_hide_it(rest: str) -> None:
    assert script_sample.address(rest.encode()).strip() == b"7f47af844270 f+0x1 (/bin/a)"


def test_a_stack_tells_an_idle_core_where_no_thread_is_named() -> None:
    idle = b"\tffffffff81a0b0c0 default_idle+0x2 ([kernel.kallsyms])\n\tffffffff81a0b0c1 do_idle+0x2 ([kernel.kallsyms])\n"
    found = read(b"[000] 1.000000: cycles: \n" + idle + b"\n[000] 2.000000: cycles: \n" + STACK + b"\n")
    assert found.classes == ["idle", "system"]


@pytest.mark.parametrize(
    "leaf",
    [
        "intel_idle+0x8c ([kernel.kallsyms])",
        "mwait_idle_with_hints.constprop.0+0x42 ([kernel.kallsyms])",  # 6.1 on bare metal
        "acpi_safe_halt+0x1f ([kernel.kallsyms])",  # 6.6
        "acpi_idle_enter_bm+0x12c ([kernel.kallsyms])",
        "native_safe_halt+0xe ([kernel.kallsyms])",  # 4.14, 5.4
        "pv_native_safe_halt+0xb ([kernel.kallsyms])",
        "intel_idle_hlt+0x4 ([intel_idle])",
        "default_enter_idle+0x1b ([cpuidle_haltpoll])",
        "cpu_do_idle+0x8 ([kernel.kallsyms])",  # arm64
        "xen_safe_halt+0xc ([kernel.kallsyms])",
    ],
)
def test_kernels_idle_in_many_places(leaf: str) -> None:
    line = "         swapper     0 [000] 1.000000:     100 cycles:  ffffffff821f5619 {}\n"
    assert read(line.format(leaf).encode()).classes == ["idle"]
    assert read(line.format(leaf).replace("swapper     0", "   perf     7").encode()).classes == ["system"]


def test_a_flat_text_without_names_still_has_idle_cores() -> None:
    line = b"         swapper     0 [000] 1.000000:     100 cycles:  ffffffff821f5619\n"
    assert read(line + line.replace(b"swapper     0", b"   perf     7")).classes == ["idle", "system"]


@pytest.mark.parametrize("told", ["a 1/1 [000] {}:          0 cycles: \n", "a 1/1 [000] {}:  cycles: \n"])
def test_a_period_of_nothing_is_a_sample(told: str) -> None:
    found = read(text([1_000_000, 2_000_000], told))
    assert len(found.rows) == 2
    assert found.source.about["event"] == "cycles"


def test_where_nobody_is_named_a_sample_without_a_stack_is_not_idle() -> None:
    idle = b"\tffffffff81000001 default_idle+0x1 ([kernel.kallsyms])\n"
    text = b"[000]  1.000000: cpu-clock: \n" + idle + b"\n[000]  2.000000: cpu-clock: \n\n"
    for body in (text, text + text.rstrip(b"\n")):
        classes = read(body).classes
        assert classes == ["idle", "user"] * (len(classes) // 2)
        assert classes


def test_the_time_of_day_beside_the_time_is_an_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    found = read(text([7_000_000, 8_000_000], "a 1/1 [000] 2026-11-16 07:19:52.052052 {}: 1 cycles: \n"))
    assert [row.comm for row in found.rows] == ["a", "a"]
    (anchor,) = found.source.anchors
    assert anchor[:2] == (7_000_000_000, 1_794_813_592_052_052_000)


def test_text_of_a_tracepoint_may_hold_anything() -> None:
    said = "a 1/1 [000] {}: ftrace:print: ffff81: {{x}}\n\nb: {{ 12\n"
    found = read(text([1_000_000, 2_000_000], said) + text([3_000_000]), event="ftrace:print")
    assert [row.time for row in found.rows] == [1_000_000_000, 2_000_000_000]
    assert "nothing that perf script prints" in notes(found)


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Script:
    """What perf script prints of one real capture."""
    place = tmp_path_factory.mktemp("script")
    data = str(place / "perf.data")
    load = place / "a\nb {c}"  # a command with newlines in the header
    shutil.copy("/bin/true", load)
    shell = f"i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done\n'{load}'; sleep 0.2; '{load}'"
    events = ["-e", "cpu-clock", "-e", "sched:sched_process_exec"]
    command = ["perf", "record", "-q", "-F", "499", *events, "-a", "-g", "-d", "-o", data, "--", "sh", "-c", shell]
    done = subprocess.run(command, stderr=subprocess.PIPE)
    if done.returncode:
        pytest.skip(f"perf cannot record here: {done.stderr.decode()[:200]}")

    def printed(*options: str) -> bytes:
        return subprocess.run(
            ["perf", "script", "-i", data, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ).stdout

    return printed


@pytest.mark.ci
@needs_perf
def test_real_clocks_all_come_to_the_same_times(script: Script) -> None:
    plain = [row.time for row in read(script("--ns")).rows]
    assert len(plain) > 20
    assert [row.time for row in read(script("--header", "--reltime", "--ns")).rows] == pytest.approx(plain, abs=1000)
    relative = [row.time for row in read(script("--reltime", "--ns")).rows]
    summed = read(script("--deltatime", "--ns", "--show-task-events"))
    began = summed.rows[0].time
    assert [at - relative[0] for at in relative] == [at - plain[0] for at in plain]
    assert [row.time - began for row in summed.rows] == [at - plain[0] for at in plain]
    assert [row.time for row in read(script("--deltatime", "--ns")).rows] == relative


@pytest.mark.ci
@needs_perf
@pytest.mark.parametrize(
    "fields",
    [
        "+period",
        "+insn",
        "+insnlen",
        "comm,tid,cpu,time,event,ip,sym,symoff,dso,srcline",
        "+brstack",
        "+misc",
        "+addr",
        "cpu,time,event,ip,sym,symoff,dso",
        "time,event,ip,sym",
    ],
)
def test_real_fields_change_no_sample_and_no_stack(script: Script, fields: str) -> None:
    plain = read(script("-F", "comm,pid,tid,cpu,time,event,ip,sym,symoff,dso"))
    found = read(script("-F", fields))
    count = len(plain.rows)
    if "srcline" in fields and len(found.rows) < count:  # perf gives up where addr2line does
        count = len(found.rows) - 1
        if count <= 5:
            pytest.skip("perf gave up at one of the first samples, where addr2line did")
    assert count > 5
    assert odd(found) <= odd(read(script()))  # where a name has newlines
    assert [row.time for row in found.rows[:count]] == [row.time for row in plain.rows[:count]]
    assert found.classes[:count] == plain.classes[:count]
    if "dso" in fields:
        assert [row.frames for row in found.rows[:count]] == [row.frames for row in plain.rows[:count]]


@pytest.mark.ci
@needs_perf
def test_a_real_text_without_times_is_refused(script: Script) -> None:
    body = script("-F", "comm,pid,ip,sym")
    assert perf_script.looks(body)
    with closing(memory(body)) as source, pytest.raises(Damaged, match="no times"):
        perf_script.opened(source, Wanted())
    dump = script("-D")
    with closing(memory(dump)) as source, pytest.raises(Damaged, match="-D"):
        perf_script.opened(source, Wanted())


@pytest.mark.ci
@needs_perf
def test_names_with_newlines_cost_no_sample(script: Script, tmp_path: Path) -> None:
    body = script("--header")
    found = read(body, event="sched:sched_process_exec")
    assert len(found.rows) >= 2  # sh itself may have been before
    assert "cmdline" not in notes(found)
    assert found.source.about["command"]
    assert len(read(body).rows) == len(read(script("--ns")).rows)
