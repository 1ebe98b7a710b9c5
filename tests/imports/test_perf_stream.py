"""The records of a perf.data as they lie in it: those of perf itself have any size, and rounds end after their data."""

import os
import shutil
import struct
import subprocess
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

from exhume.imports import perf_file, perf_order, perf_stream
from exhume.imports.incoming import Wanted, memory
from exhume.imports.perf_apart import Apart
from tests.imports import made_perf as made
from tests.imports.reading import seen
from tests.imports.test_perf_data import same_samples
from tests.sources.sampling.made_records import record

needs_perf = pytest.mark.skipif(
    not shutil.which("perf") or os.geteuid() != 0, reason="perf is not installed, or may not record without root"
)
WORK = "import os, time\nfor _ in range(300): time.sleep(0.0002); os.stat('/')\nwhile os.times().user < 0.4: pass"


@pytest.mark.parametrize("header", [struct.pack("=IHHI", 66, 0, 12, 24), struct.pack("=IHHII", 66, 0, 16, 24, 0)])
def test_the_formats_of_tracepoints_are_passed_over_whatever_their_header(header: bytes) -> None:
    # struct perf_record_header_tracing_data had 12 bytes before it was padded.
    records = made.sample(1, 5, user=[1]) + header + b"\xff" * 24 + made.sample(1, 6, user=[1])
    found, opened = seen(made.pipe(records))
    assert [one.time for one in found] == [5, 6]
    assert not [note for note in opened.notes if "damaged" in note or "cut" in note]


def test_build_ids_between_samples_are_read_and_end_nothing() -> None:
    told = made.build_id(b"/lib/x", b"\x11" * 20)
    assert len(told) % 8 == 4
    records = b"".join(made.sample(1, 5 + at, user=[1]) + told for at in range(9))
    raw = made.pipe(records + made.build_id(b"/lib/" + b"y" * 70, b"\x22" * 20) + made.sample(1, 50, user=[1]))
    found, opened = seen(raw)
    assert [one.time for one in found] == [*range(5, 14), 50]
    assert not [note for note in opened.notes if "damaged" in note or "cut" in note]
    with closing(memory(raw)) as source:
        apart = Apart(source, Wanted(symbols=False))
        list(apart.batches())
        assert apart.known.described.build_ids == {b"/lib/x": b"\x11" * 20, b"/lib/" + b"y" * 70: b"\x22" * 20}


def test_the_largest_record_of_any_size_fits() -> None:
    odd = struct.pack("=IHH", 67, 0, 0xFFFF) + b"\1" * (0xFFFF - 8)
    found, _ = seen(made.pipe(made.sample(1, 5, user=[1]) + odd + made.sample(1, 6, user=[1])))
    assert [one.time for one in found] == [5, 6]


def test_a_kernel_record_of_such_a_size_is_damage_and_so_is_one_of_no_kind() -> None:
    for kind in (9, 1 << 20):
        raw = made.pipe(made.sample(1, 5, user=[1]) + struct.pack("=IHH", kind, 0, 100) + bytes(92) + made.sample(1, 6))
        found, opened = seen(raw)
        assert [one.time for one in found] == [5]
        assert any("damaged at byte" in note for note in opened.notes)


def test_many_small_traces_are_passed_over_at_once() -> None:
    trace = record(71, struct.pack("=QQQIIII", 8, 0, 0, 0, 0, 0, 0)) + b"\xff" * 8
    found, opened = seen(made.file(made.sample(1, 5, user=[1]) + trace * 30_000 + made.sample(1, 6, user=[1])))
    assert [one.time for one in found] == [5, 6]
    assert any("AUXTRACE, 234 KiB" in note for note in opened.notes)


def _packed_in_rounds(rounds: int) -> bytes:
    """As perf record -z writes it: what each CPU's ring held, packed, and after all of them the end of the round. What
    the second has is from before what the first has, by up to a round."""
    stream, found = pa.BufferOutputStream(), []
    packer, begin = pa.CompressedOutputStream(stream, "zstd"), 0
    for one in range(rounds):
        for core in (0, 1):
            times = range(10_000 + one * 1000 - 900 * core, 10_800 + one * 1000 - 900 * core, 40)
            packer.write(b"".join(made.sample(30 + core, time, core, user=[0x1000 + time % 7]) for time in times))
            packer.flush()
            found.append((begin, stream.tell()))
            begin = stream.tell()
    packer.close()
    packed = stream.getvalue().to_pybytes()
    each = [record(perf_file.COMPRESSED, packed[first:last]) for first, last in found]
    records = b"".join(part + made.end_of_round() * (at % 2) for at, part in enumerate(each))
    return made.file(records, features={27: struct.pack("=IIIII", 1, 1, 1, 1, 1)})


def test_what_is_packed_comes_in_order_of_time_across_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_READ", 1 << 12), ("_READ_PACKED", 1 << 9), ("_STEP", 1 << 10), ("_UNPACKED", 1 << 12)):
        monkeypatch.setattr(perf_stream, name, size)
    monkeypatch.setattr(perf_order, "_BATCH", 1 << 13)
    with closing(memory(_packed_in_rounds(900))) as source:
        batches = [batch.samples.time for batch in Apart(source, Wanted(symbols=False)).batches()]
    batches = [times for times in batches if len(times)]
    assert sum(map(len, batches)) == 900 * 40
    assert len(batches) > 5
    for before, after in pairwise(batches):
        assert before.max() <= after.min()


@pytest.mark.ci
@needs_perf
def test_a_real_pipe_with_a_tracepoint_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pipe.data"
    command = ["perf", "record", "-q", "-e", "sched:sched_switch", "-g", "-o", "-", "--", sys.executable, "-c", WORK]
    with open(path, "wb") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        pytest.skip(f"perf cannot record tracepoints here: {done.stderr[-200:]!r}")
    same_samples(str(path))


@pytest.mark.ci
@needs_perf
def test_what_perf_inject_put_build_ids_into_is_read_to_its_end(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.data", tmp_path / "inject.data"
    command = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "-a", "-g", "-o", "-", "--", sys.executable, "-c", WORK]
    with open(whole, "wb") as out:
        subprocess.run(command, stdout=out, stderr=subprocess.DEVNULL, check=True)
    with open(whole, "rb") as source, open(path, "wb") as out:
        subprocess.run(["perf", "inject", "-b"], stdin=source, stdout=out, stderr=subprocess.DEVNULL, check=True)
    same_samples(str(path))
    with closing(memory(path.read_bytes())) as source:
        apart = Apart(source, Wanted(symbols=False))
        list(apart.batches())
        assert apart.known.described.build_ids
