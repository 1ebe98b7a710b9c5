"""The last sample of a perf.data that does not say when it was: looked for at its end, as a guess at the time of day."""

import os
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.imports import perf_end
from exhume.imports.incoming import memory
from exhume.imports.perf_data import PerfData
from tests.imports import made_perf as made
from tests.imports.reading import looked, seen
from tests.imports.test_perf_data import needs_perf
from tests.imports.test_perf_events import BUSY


def untold(raw: bytes, tmp_path: Path, real: int) -> PerfData:
    path = tmp_path / "perf.data"
    path.write_bytes(raw)
    os.utime(path, ns=(real, real))
    return looked(str(path))


@pytest.mark.ci
@needs_perf
@pytest.mark.parametrize("options", [("-z",), ("-B",), ("--buildid-mmap",), ("-o", "-")])
def test_where_the_file_does_not_say_its_last_sample_is_looked_for(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = tmp_path / "perf.data"
    with open(path, "wb") as out:
        command = ["perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", "499", "-o", str(path), *options, "--", *BUSY]
        subprocess.run(command, check=True, stdout=out if "-" in options else subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    opened = looked(str(path))
    (anchor,) = opened.anchors
    assert not anchor.sure
    assert "guessed" in anchor.how
    assert anchor == (max(one.time for one in seen(str(path))[0]), path.stat().st_mtime_ns, *anchor[2:])


@pytest.mark.parametrize("cut", [0, 5])
def test_the_last_sample_of_a_long_file_is_found_at_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int) -> None:
    monkeypatch.setattr(perf_end, "_END", 1 << 14)
    monkeypatch.setattr(perf_end, "_LARGEST_RECORD", 1 << 12)
    # Chains whose addresses look like records.
    users = [9 | 40 << 48, 3 | 16 << 48, 10 | 88 << 48]
    samples = [made.sample(7, 1000 + at, user=users[: at % 4]) for at in range(2000)]
    real = 1_800_000_000_000_000_000
    raw = made.file(b"".join(samples))
    (anchor,) = untold(raw[: len(raw) - cut], tmp_path, real).anchors
    assert anchor[:2] == (2998 if cut else 2999, real)
    assert not untold(made.file(b""), tmp_path, real).anchors
    assert not untold(made.file(made.sample(7, real + 1)), tmp_path, real).anchors


@given(st.binary(max_size=400), st.booleans())
def test_no_end_of_a_file_does_harm(raw: bytes, begins: bool) -> None:
    whole = b"".join(made.sample(7, at, user=[at]) for at in range(80))
    perf_end._whole(raw + whole, begins)
    with closing(memory(whole + raw)) as source:
        assert perf_end.last_time(source, 0, -1, 3) >= 79
