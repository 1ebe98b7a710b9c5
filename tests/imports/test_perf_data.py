"""perf.data: what perf recorded comes back sample by sample; what is cut or damaged is said, with the byte."""

import gzip
import os
import platform
import shutil
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exhume import budget
from exhume.errors import ExhumeError
from exhume.imports import perf_data, perf_kernel, perf_order, perf_stream
from exhume.imports.ahead import ahead
from exhume.imports.importing import bring_in
from exhume.imports.incoming import Anchor, Damaged, Ids, Wanted, memory
from exhume.imports.perf_layout import CALLCHAIN, CGROUP, CPU, IDENTIFIER, IP, TID, TIME
from exhume.recording.folder import Folder
from exhume.recording.summary import Summary
from exhume.sources.sampling import chains, tasks
from tests.examples import examples
from tests.imports import made_perf as made
from tests.imports.perf_script import said
from tests.imports.reading import Seen, agreement, looked, seen
from tests.sources.sampling.made_records import record

WORK = """
import hashlib, json, os, subprocess, time
open("/proc/self/comm", "w").write("perf-data-work")
while time.process_time() < 0.6:
    for _ in range(50):
        json.loads(json.dumps(list(range(300)))); hashlib.sha256(b"x" * 99999).digest()
    open("/dev/null", "w").write("x" * 5000)
    subprocess.run(["/bin/true"]); os.stat("/")
    time.sleep(0.01)
"""
needs_perf = pytest.mark.skipif(
    not shutil.which("perf") or os.geteuid() != 0, reason="perf is not installed, or may not record without root"
)


def captured(path: Path, *options: str, work: str = WORK) -> str:
    command = [
        "perf",
        "record",
        "-q",
        "-e",
        "cpu-clock",
        "-F",
        "499",
        *options,
        "-o",
        str(path),
        "--",
        sys.executable,
        "-c",
        work,
    ]
    subprocess.run(command, check=True, capture_output=True)
    return str(path)


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> str:
    return captured(tmp_path_factory.mktemp("perf") / "perf.data", "-a", "-g")


def same_samples(path: str, *options: str, symbols: bool = False, cpu: bool = True) -> tuple[int, int]:
    theirs = sorted(said(path, *options, cpu=cpu), key=lambda one: (one.time, one.cpu, one.tid))
    ours, _ = seen(path, symbols)
    assert len(theirs) > 100
    assert [one[1:5] for one in ours] == [one[1:5] for one in theirs]
    # Others on this machine may rename themselves, begin and end at any moment.
    known = ("perf-data-work", "swapper")
    assert not [(one, other) for one, other in zip(ours, theirs, strict=True) if one.comm != other.comm in known]
    return agreement(theirs, ours, known)


@needs_perf
def test_every_sample_is_what_perf_script_says_it_is(capture: str) -> None:
    named, same = same_samples(capture, symbols=True)
    assert named > 50
    assert same >= 0.99 * named


@pytest.mark.ci
@needs_perf
def test_what_perf_wrote_to_a_pipe_is_the_same(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe.data")
    with open(path, "wb") as out:
        command = [
            "perf",
            "record",
            "-q",
            "-e",
            "cpu-clock",
            "-F",
            "499",
            "-a",
            "-g",
            "-o",
            "-",
            "--",
            sys.executable,
            "-c",
            WORK,
        ]
        subprocess.run(command, check=True, stdout=out, stderr=subprocess.DEVNULL)
    same_samples(path)
    _, opened = seen(path)
    assert opened.node.hostname == platform.node()
    assert opened.about["event"] == "cpu-clock"
    with open(path, "rb") as file:
        packed = tmp_path / "pipe.data.gz"
        packed.write_bytes(gzip.compress(file.read()))
    assert [one[:5] for one in seen(str(packed))[0]] == [one[:5] for one in seen(path)[0]]


@pytest.mark.ci
@needs_perf
def test_what_zstd_packed_is_the_same(tmp_path: Path) -> None:
    path = captured(tmp_path / "z.data", "-a", "-g", "-z")
    assert b"\x28\xb5\x2f\xfd" in Path(path).read_bytes(), "perf did not pack it"
    same_samples(path)
    assert not [note for note in seen(path)[1].notes if "packed" in note or "cut" in note]
    raw = Path(path).read_bytes()
    begin, size = struct.unpack_from("=QQ", raw, 40)
    whole = {one[1:5] for one in seen(path)[0]}
    for cut in (begin + size - 9, begin + size - 3000, begin + size // 2):
        found, opened = seen(raw[:cut])
        assert {one[1:5] for one in found} <= whole
        assert any("the file is cut" in note and "byte" in note for note in opened.notes)


@pytest.mark.ci
@needs_perf
@pytest.mark.parametrize("options", [("-a",), (), ("-g",), ("-g", "-d", "--sample-cpu")])
def test_other_layouts_are_the_same(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = captured(tmp_path / "other.data", *options)
    cpu = "-a" in options or "--sample-cpu" in options
    named, same = same_samples(path, symbols=True, cpu=cpu)
    assert named > 50
    if "-d" not in options:  # with it, perf takes data for functions where a chain leads into it
        assert same >= 0.95 * named  # a few: what is left of the caller in an exec, and assembly without a size
    assert any("which CPU" in note for note in seen(path)[1].notes) is not cpu


@pytest.mark.ci
@needs_perf
def test_of_several_events_one_is_chosen_and_the_others_are_told(tmp_path: Path) -> None:
    path = captured(tmp_path / "events.data", "-a", "-g", "-e", "page-faults")
    same_clock = [one for one in said(path, "-F", "-event") if one]
    ours, opened = seen(path)
    assert opened.about["event"] == "cpu-clock"
    other, opened_other = seen(path, event="page-faults")
    assert opened_other.about["event"] == "page-faults"
    assert len(ours) + len(other) == len(same_clock)
    assert len(other) > 10
    assert any(f"page-faults ({len(other):,})" in note for note in opened.notes)
    with pytest.raises(ExhumeError, match=r"no event nonsense: it has cpu-clock.*page-faults"):
        seen(path, event="nonsense")


@pytest.mark.ci
@needs_perf
def test_a_group_that_is_read_with_every_sample_is_passed_over(tmp_path: Path) -> None:
    path = str(tmp_path / "group.data")
    events = "{cpu-clock,page-faults,context-switches}:S"
    command = ["perf", "record", "-q", "-e", events, "-F", "499", "-g", "-a", "-o", path, "--", sys.executable, "-c", WORK]
    subprocess.run(command, check=True, capture_output=True)
    told = said(path)
    theirs = [one for one in told if one.frames]
    ours = [one for one in seen(path)[0] if one.frames]
    assert len(ours) > 100
    assert {one.time for one in ours} <= {one.time for one in told}
    # A chain with a mark in it that is none (-1, from memory that was followed) perf gives up whole; its first frame is right.
    assert len({one.time for one in ours} - {one.time for one in theirs}) <= len(ours) // 100
    assert all(0 <= one.cpu < (os.cpu_count() or 1) for one in ours)


@needs_perf
def test_who_and_when_is_in_the_file(capture: str) -> None:
    opened = looked(capture)
    assert opened.axis == "boot"
    assert opened.node.hostname == platform.node()
    assert opened.node.kernel == platform.release()
    assert opened.node.cpus == os.cpu_count()
    assert opened.about["hz"] == 499
    (anchor,) = opened.anchors
    assert not anchor.sure
    assert anchor.real == os.stat(capture).st_mtime_ns
    assert max(one.time for one in seen(capture)[0]) == anchor.time


@needs_perf
def test_both_clocks_are_a_sure_anchor(tmp_path: Path) -> None:
    path = captured(tmp_path / "clock.data", "-a", "-g", "-k", "CLOCK_MONOTONIC", work="pass")
    opened = looked(path)
    assert [anchor.sure for anchor in opened.anchors] == [True]
    assert any("CLOCK_MONOTONIC" in note for note in opened.notes)


@needs_perf
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_cut_file_gives_what_is_whole(capture: str, share: float) -> None:
    raw = Path(capture).read_bytes()
    whole, _ = seen(raw)
    begin = struct.unpack_from("=Q", raw, 40)[0]
    cut = begin + int((len(raw) - begin) * share)
    found, opened = seen(raw[:cut])
    assert {one[1:5] for one in found} <= {one[1:5] for one in whole}
    assert len(found) >= len(whole) * (share - 0.5)
    assert any(f"byte {cut}" in note or "cut" in note for note in opened.notes) == (
        cut < begin + struct.unpack_from("=Q", raw, 48)[0]
    )


@pytest.mark.ci
@needs_perf
@pytest.mark.parametrize("cut", [1.0, 0.6, 0.0])
@pytest.mark.parametrize("pipe", [False, True])
def test_another_process_takes_it_apart_with_the_same_result(
    capture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: float, pipe: bool
) -> None:
    path, raw = str(tmp_path / "perf.data"), Path(capture).read_bytes()
    if pipe:
        raw = subprocess.run(["perf", "inject", "-i", capture], check=True, capture_output=True).stdout
    Path(path).write_bytes(raw[: int(len(raw) * cut) or 200])
    started = []

    def counted(*given: Any) -> Any:
        started.append(given)
        return ahead(*given)

    monkeypatch.setattr(perf_data, "ahead", counted)
    monkeypatch.setattr(perf_data, "worth_it", lambda: True)
    here, alone = _read(path)
    monkeypatch.setattr(perf_data, "_LARGE", 0)
    there, elsewhere = _read(path)
    assert len(started) == (not isinstance(elsewhere, str))
    assert (there, elsewhere) == (here, alone)
    assert cut < 0.5 or len(here) > 100


def _read(path: str) -> tuple[list[Seen], object]:
    try:
        found, opened = seen(path)
    except ExhumeError as error:
        return [], str(error)
    return found, (opened.notes, opened.axis, opened.node, opened.about)


@needs_perf
def test_a_file_that_perf_could_not_finish_is_read_to_its_end(capture: str) -> None:
    raw = bytearray(Path(capture).read_bytes())
    begin, size = struct.unpack_from("=QQ", raw, 40)
    whole, _ = seen(bytes(raw))
    struct.pack_into("=Q", raw, 48, 0)
    found, opened = seen(bytes(raw[: begin + size]))
    assert [one[:5] for one in found] == [one[:5] for one in whole]
    assert any("perf was ended" in note for note in opened.notes)


@needs_perf
def test_it_becomes_a_recording(capture: str, tmp_path: Path) -> None:
    brought = bring_in([capture], str(tmp_path / "rec"), Wanted(symbols=False))
    assert brought.files == [(capture, "perf.data")]
    assert brought.samples == len(said(capture))


@pytest.mark.ci
@needs_perf
def test_what_the_cores_did_is_the_same_without_who_did_it(capture: str, tmp_path: Path) -> None:
    bring_in([capture], str(tmp_path / "all"))
    bring_in([capture], str(tmp_path / "cores"), Wanted(whose=False))
    whole, cores = (Folder(str(tmp_path / name)) for name in ("all", "cores"))
    for name in Summary._fields:
        assert (getattr(whole.summary(), name) == getattr(cores.summary(), name)).all()
    assert cores.count("threads") <= 2
    assert set(cores.load()["frames"].texts("space")) <= {"kernel"}


def test_a_mapping_that_comes_later_in_the_file_is_there_for_samples_after_it_in_time() -> None:
    # The second CPU's ring is written after the first one's: the fork and the names are of before the sample.
    late = made.fork(20, 10, 50) + made.comm(20, b"child", 60, by_exec=True) + made.mmap2(20, 0x1000, 0x1000, b"/lib/x", 70)
    records = (
        made.comm(10, b"parent", 0)
        + made.sample(20, 100, core=0, user=[0x1234])
        + late
        + made.sample(20, 65, core=1, user=[0x1234])
        + made.sample(20, 55, core=1, user=[0x1234])
        + made.end_of_round()
    )
    found, _ = seen(made.file(records))
    assert [(one.comm, one.modules) for one in found] == [("parent", [""]), ("child", ["/lib/x"]), ("child", ["/lib/x"])]


def test_what_is_held_back_for_order_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_order, "_BATCH", 1 << 12)
    monkeypatch.setattr(perf_stream, "_READ", 1 << 12)
    parts, times = [], []
    for around in range(300):
        for core in (0, 1):
            for step in range(20):
                times.append(around * 1000 + step * 40 + core * 500 - 700 * core)
                parts.append(made.sample(30 + core, times[-1] + 10_000, core, user=[0x1000 + step]))
        parts.append(made.end_of_round())
    raw = made.file(b"".join(parts))
    with closing(memory(raw)) as file:
        batches = list(perf_data.opened(file, Wanted(symbols=False)).batches(Ids()))
    assert len(batches) > 10
    found, _ = seen(raw)
    assert [one.time for one in found] == sorted(time + 10_000 for time in times)


def test_a_child_of_a_process_without_samples_has_its_name_and_mappings() -> None:
    records = (
        made.fork(10, 1, 0, bare=True)
        + made.comm(10, b"shell", 0)
        + made.mmap2(10, 0x1000, 0x1000, b"/bin/sh", 0)
        + made.fork(11, 10, 5)
        + made.fork(12, 11, 6)
        + made.sample(12, 10, user=[0x1100])
    )
    (one,) = seen(made.file(records))[0]
    assert (one.comm, one.modules) == ("shell", ["/bin/sh"])


def test_a_process_that_perf_tells_of_has_nothing_of_its_parent() -> None:
    records = (
        made.mmap2(10, 0x1000, 0x1000, b"/bin/sh", 0)
        + made.fork(11, 10, 0, bare=True)
        + made.sample(11, 10, user=[0x1100])
        + made.sample(10, 11, user=[0x1100])
    )
    assert [one.modules for one in seen(made.file(records))[0]] == [[""], ["/bin/sh"]]


def test_samples_without_a_chain_have_their_address() -> None:
    fields = IP | TID | TIME | CPU
    records = made.mmap2(9, 0x1000, 0x1000, b"/bin/x", 0) + made.sample(9, 5, user=[0x1010], fields=fields)
    attr = made.Attr(sample=fields)
    raw = made.file(records.replace(made.trailer(9, 0, 0), made.trailer(9, 0, 0, fields)), [attr])
    assert [one.modules for one in seen(raw)[0]] == [["/bin/x"]]


def test_the_cgroup_of_samples_is_the_one_that_was_told() -> None:
    fields = IP | TID | TIME | CALLCHAIN | CGROUP
    group = record(19, struct.pack("=Q", 77) + b"/pods/a\0" + made.trailer(0, 0, 0, fields))
    one = made.sample(9, 5, user=[0x1010], fields=fields)
    one = record(9, one[8:] + struct.pack("=Q", 77), misc=2)
    (found,) = seen(made.file(group + one, [made.Attr(sample=fields)]))[0]
    assert found.cgroup == "/pods/a"
    assert found.cpu == -1


def test_samples_of_other_events_are_told_apart_by_their_id() -> None:
    fields = made.USUAL | IDENTIFIER
    attrs = [
        made.Attr(config=2, sample=fields, ids=(5, 6)),
        made.Attr(sample=fields, ids=(7, 8)),
        made.Attr(sample=fields, ids=()),
    ]
    told = b"".join(
        made.sample(1, time, user=[1], fields=fields, number=number) for time, number in enumerate((5, 7, 8, 6, 5, 99))
    )
    found, opened = seen(made.file(told, attrs))
    assert [one.time for one in found] == [1, 2]
    assert any("cpu-clock (2) were taken" in note and "page-faults (3)" in note for note in opened.notes)
    assert any("1 sample is of no event" in note for note in opened.notes)


def test_what_was_lost_is_said() -> None:
    raw = made.file(made.sample(1, 5, user=[1]) + made.lost(1234) + record(5, struct.pack("=QQQ", 9, 1, 1)))
    notes = " ".join(seen(raw)[1].notes)
    assert "lost 1,234 records" in notes
    assert "paused sampling once" in notes


def test_a_hardware_trace_is_passed_over() -> None:
    trace = record(71, struct.pack("=QQQIIII", 1000, 0, 0, 0, 0, 0, 0)) + b"\xff" * 1000
    found, opened = seen(made.file(made.sample(1, 5, user=[1]) + trace + made.sample(1, 6, user=[1])))
    assert [one.time for one in found] == [5, 6]
    assert any("AUXTRACE, 1000 B" in note for note in opened.notes)


def test_damage_in_the_middle_is_said_with_its_byte() -> None:
    before = made.sample(1, 5, user=[1]) + made.sample(1, 6, user=[1])
    raw = made.file(before + b"\0" * 64 + made.sample(1, 7, user=[1]))
    place = raw.index(before) + len(before)
    found, opened = seen(raw)
    assert [one.time for one in found] == [5, 6]
    assert any(f"damaged at byte {place}" in note for note in opened.notes)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"2ELIFREP" + bytes(96), "other byte order"),
        (b"PERFFILE" + bytes(96), "older than"),
        (b"PERFILE2" + bytes(4), "byte 12"),
        (b"PERFILE2" + struct.pack("=Q", 104) + bytes(40), "byte 56"),
        (b"PERFILE2" + struct.pack("=Q", 105) + bytes(96), "header of 105 bytes"),
        (made.file(b"", features={24: bytes(8)}), "--threads"),
        (made.file(b"")[:200], "ends at byte 200"),
        (made.pipe(b"", attrs=[]), "no event"),
    ],
)
def test_what_cannot_be_read_is_a_sentence(raw: bytes, reason: str) -> None:
    assert perf_data.looks(raw)
    with pytest.raises(ExhumeError, match=reason):
        looked(raw)


def test_packed_records_that_unpack_to_far_too_much_end_there(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    bomb = pa.compress(b"".join([record(12, bytes(65520))] * 3000), "zstd", asbytes=True)
    assert len(bomb) < 1 << 17
    parts = [record(81, bomb[at : at + 60000]) for at in range(0, len(bomb), 60000)]
    monkeypatch.setattr(budget, "_current", budget.Budget(0.01))
    with pytest.raises(budget.Exhausted, match="unpacks to more than"):
        seen(made.file(made.sample(1, 5, user=[1]) + b"".join(parts)))


def own_code() -> tuple[bytes, int, int, bytes, os.stat_result]:
    """A library with names: its path, the offset of a function and its place in memory, its build id."""
    path = next(
        line.split()[5] for line in Path("/proc/self/maps").read_text().split("\n") if "libc.so" in line or "ld-linux" in line
    )
    told = subprocess.run(["readelf", "-n", path], capture_output=True, text=True).stdout
    build_id = bytes.fromhex(told.split("Build ID: ")[1].split()[0])
    symbols = subprocess.run(["readelf", "--dyn-syms", "-W", path], capture_output=True, text=True).stdout
    address = next(int(line.split()[1], 16) for line in symbols.split("\n") if " qsort@" in line or "_dl_find_object@" in line)
    return path.encode(), address, 0x7F0000000000, build_id, os.stat(path)


@pytest.mark.skipif(not shutil.which("readelf"), reason="readelf is not installed")
@pytest.mark.parametrize(
    ("how", "named"), [("right", True), ("wrong", False), ("mmap2", True), ("mmap2 wrong", False), ("inode", True)]
)
def test_only_the_recorded_file_gives_names(how: str, named: bool) -> None:
    path, address, start, build_id, told = own_code()
    wrong = bytes(byte ^ 0xFF for byte in build_id)
    features = {2: made.build_id(path, wrong if "wrong" in how else build_id)} if how in ("right", "wrong") else {}
    if how.startswith("mmap2"):
        mapped = made.mmap2_by_build_id(9, start, 1 << 24, path, 0, wrong if "wrong" in how else build_id)
    else:
        device = os.major(told.st_dev) << 8 | os.minor(told.st_dev) if how == "inode" else 99
        mapped = made.mmap2(9, start, 1 << 24, path, 0, device=device, inode=told.st_ino if how == "inode" else 12345)
    raw = made.file(mapped + made.sample(9, 5, user=[start + address + 4]), features=features)
    (one,), opened = seen(raw, symbols=True)
    assert bool(one.frames[0]) is named
    assert one.modules == [path.decode()]
    if not named:
        assert any("build id is not the one" in note for note in opened.notes)


def test_kernel_names_are_of_the_recorded_kernel_alone(tmp_path: Path) -> None:
    from exhume.host.root import Root

    build_id = bytes(range(20))
    (tmp_path / "sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "sys/kernel/notes").write_bytes(
        struct.pack("=III", 6, 4, 256) + b"Linux\0\0\0" + bytes(4) + struct.pack("=III", 4, 20, 3) + b"GNU\0" + build_id
    )
    (tmp_path / "proc/sys/kernel/osrelease").write_text("6.1.0-9\n")
    (tmp_path / "proc/kallsyms").write_text("ffffffff81000000 T _text\nffffffff81000000 T _stext\n")
    root = Root(str(tmp_path))
    there = 0xFFFFFFFF81000000
    assert perf_kernel.why_other(build_id, "", b"_text", there, root) == ""
    assert perf_kernel.why_other(b"", "6.1.0-9", b"_stext", there, root) == ""
    assert "build id" in perf_kernel.why_other(bytes(20), "6.1.0-9", b"_text", there, root)
    assert "6.1.0-9" in perf_kernel.why_other(b"", "5.10", b"_text", there, root)
    # What perf could not finish names no kernel: one that was moved at boot can be told by where it is, others cannot.
    assert "which kernel" in perf_kernel.why_other(b"", "", b"_text", there, root)
    moved = there + (1 << 24)
    (tmp_path / "proc/kallsyms").write_text(f"{moved:x} T _text\n")
    assert perf_kernel.why_other(b"", "", b"_text", moved, root) == ""
    assert "booted again" in perf_kernel.why_other(b"", "", b"_text", moved + (1 << 21), root)
    (tmp_path / "proc/kallsyms").write_text("ffffffff81000000 T _text\nffffffff81000000 T _stext\n")
    assert "booted again" in perf_kernel.why_other(build_id, "", b"_text", there + (1 << 21), root)
    assert "where the kernel was" in perf_kernel.why_other(build_id, "", b"", 0, root)


def test_frames_of_another_kernel_stay_without_names_and_the_note_says_what_to_do() -> None:
    raw = made.file(
        made.kernel_map(b"_text", 0xFFFFFFFF80000000) + made.sample(9, 5, kernel=[0xFFFFFFFF80001000]),
        features={4: made.string("0.1")},
    )
    (one,), opened = seen(raw, symbols=True)
    assert one.frames == [""]
    assert one.modules == ["[kernel]"]
    assert any("without names" in note and "perf script" in note for note in opened.notes)


@pytest.mark.parametrize(
    ("command", "every_core"),
    [
        (("-a", "-g", "--", "top", "-p", "1"), True),
        (("--sample-cpu", "-e", "cpu-clock", "-p", "4242", "--", "sleep", "1"), False),
        (("--sample-cpu", "--uid=root"), False),
    ],
)
def test_samples_of_some_processes_are_not_of_every_core(command: tuple[str, ...], every_core: bool) -> None:
    features = {11: made.words("/usr/bin/perf", "record", *command)}
    sample = made.sample(1, 5, user=[1])
    for raw in (made.file(sample, features=features), made.pipe(sample, features=features)):
        assert looked(raw).about["every_core"] is every_core


def test_the_wall_clock_is_another_axis() -> None:
    raw = made.file(made.sample(1, 5, user=[1]), [made.Attr(bits=made.SAMPLE_ID_ALL | 1 << 25, clockid=0)])
    assert looked(raw).axis == "wall"
    both = struct.pack("=IiQQ", 1, 1, 5000, 400)
    opened = looked(made.pipe(b"", [made.Attr(bits=made.SAMPLE_ID_ALL | 1 << 25, clockid=1)], {29: both}))
    assert opened.anchors == [Anchor(400, 5000, "perf wrote both clocks down (perf record -k)")]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("sample", "sample", "sample", "fork", "exec", "map", "comm")),
        st.integers(1, 4),
        st.integers(1, 4),
        st.integers(0, 40),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=40,
)


def played(steps: list[tuple[str, int, int, int, int]]) -> bytes:
    parts = []
    for what, pid, other, time, which in steps:
        time = 2 * time + (what == "sample")  # who is told of at the very time of a sample is not said
        if what == "sample":
            parts.append(
                made.sample(pid, time, which % 2, [0xFFFFFFFF81000000 + other] * (which > 1), [0x1000 * which + other])
            )
        elif what == "fork":
            parts.append(made.fork(pid, other, time))
        elif what == "map":
            parts.append(made.mmap2(pid, 0x1000 * which, 0x1000, b"/lib/%d" % other, time))
        else:
            parts.append(made.comm(pid, b"name%d" % other, time, by_exec=what == "exec"))
    return made.file(b"".join(parts))


@settings(max_examples=examples(150))
@given(STEPS)
def test_many_samples_at_once_are_folded_as_one_by_one(steps: list[tuple[str, int, int, int, int]]) -> None:
    raw = played(steps)
    before = chains.MANY
    try:
        chains.MANY = 1
        many, _ = seen(raw)
        chains.MANY = 1 << 30
        few, _ = seen(raw)
    finally:
        chains.MANY = before
    key = lambda one: (one.time, one.cpu, one.pid, one.modules)  # noqa: E731
    assert sorted(many, key=key) == sorted(few, key=key)


def _damaged(raw: bytes, changes: list[tuple[float, int]], cut: float) -> bytes:
    found = bytearray(raw)
    for place, byte in changes:
        found[int(place * (len(found) - 1))] = byte
    return bytes(found[: int(cut * len(found))])


def _packed_file() -> bytes:
    import pyarrow as pa

    inner = b"".join(made.sample(3, time, user=[0x1000, 0x2000]) for time in range(20))
    packed = pa.compress(inner, "zstd", asbytes=True)
    return made.file(made.comm(3, b"x", 0) + struct.pack("=IHH", 81, 0, 8 + len(packed)) + packed + made.end_of_round())


SEEDS = [
    made.file(
        made.kernel_map(b"_text", 1 << 63)
        + made.fork(20, 10, 0, bare=True)
        + made.mmap2(20, 0x1000, 0x1000, b"/lib/x", 0)
        + made.sample(20, 5, kernel=[1 << 63], user=[0x1100, 0x1200])
        + record(71, struct.pack("=QQQIIII", 64, 0, 0, 0, 0, 0, 0))
        + bytes(64)
        + made.end_of_round()
        + made.lost(5)
        + made.sample(20, 9, user=[0x1100]),
        [made.Attr(sample=made.USUAL), made.Attr(config=2, sample=made.USUAL, ids=(9,))],
        {
            2: made.build_id(b"/lib/x", bytes(20)),
            3: made.string("host"),
            11: made.words("/usr/bin/perf", "record", "-p", "20", "--sample-cpu"),
            12: struct.pack("=II", 1, 128) + bytes(136),
            21: bytes(16),
        },
    ),
    made.pipe(
        made.sample(20, 5, user=[0x1100, 0x1200])
        + record(66, struct.pack("=II", 16, 0))
        + bytes(16)
        + record(83, struct.pack("=Q", 5) + b"\x28\xb5\x2f\xfd\0\0\0\0")
        + made.sample(20, 6, user=[0x1100]),
        features={4: made.string("6.1"), 7: struct.pack("=II", 4, 4), 29: bytes(24)},
    ),
    _packed_file(),
    made.file(  # without times, and of a virtual machine
        made.sample(20, 0, user=[0x1100], fields=IP | TID | CALLCHAIN)
        + made.mmap2(20, 0x1000, 0x3000, b"/lib/x", 0)
        + made.mmap2(20, 0x2000, 0x1000, b"/lib/y", 0)
        + record(9, made.sample(20, 0, user=[0x1100], fields=IP | TID | CALLCHAIN)[8:], misc=4)
        + record(13, struct.pack("=QQ", 3, 0)),
        [made.Attr(sample=IP | TID | CALLCHAIN)],
    ),
    made.pipe(  # what perf writes itself has any size
        made.sample(20, 5, user=[0x1100])
        + struct.pack("=IHHI", 66, 0, 12, 16)
        + bytes(16)
        + made.build_id(b"/lib/x", bytes(20))
        + made.sample(20, 6, user=[0x1100])
    ),
]


@settings(max_examples=examples(700), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=12),
    st.one_of(st.just(1.0), st.floats(0, 1)),
)
def test_whatever_happens_to_a_file_it_is_read_or_a_sentence(raw: bytes, changes: list[tuple[float, int]], cut: float) -> None:
    data = _damaged(raw, changes, cut)
    try:
        found, opened = seen(data)
    except ExhumeError as error:
        sentence = str(error)
    else:
        sentence = "; ".join(opened.notes)
        assert all(0 <= one.time < 1 << 63 for one in found)
    assert sentence or cut == 1.0 or changes or raw in (SEEDS[1], SEEDS[-1])  # a pipe may end after any record


@settings(max_examples=examples(200))
@given(st.binary(max_size=400))
def test_records_of_nonsense_do_no_harm(records: bytes) -> None:
    for raw in (made.file(records), made.pipe(records)):
        try:
            found, opened = seen(raw)
        except Damaged:
            continue
        assert all(one.time >= 0 for one in found)
        assert all(isinstance(note, str) for note in opened.notes)


def test_a_side_band_that_is_too_large_to_keep_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_order, "_BATCH", 1 << 12)
    monkeypatch.setattr(perf_stream, "_READ", 1 << 12)
    monkeypatch.setattr(tasks, "LARGEST_ALONE", 1 << 14)
    parts = [made.comm(9, b"patient", 0), made.mmap2(9, 0x1000, 0x1000, b"/lib/x", 0)]
    for time in range(10, 3000):
        parts.append(made.comm(100 + time, b"others", time))
        if time % 10 == 0:
            parts += [made.sample(8, time, user=[0x1]), made.end_of_round()]
    parts.append(made.sample(9, 4000, user=[0x1100]))
    last = seen(made.file(b"".join(parts)))[0][-1]
    assert (last.comm, last.modules) == ("patient", ["/lib/x"])
