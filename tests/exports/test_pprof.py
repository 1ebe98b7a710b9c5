"""A pprof profile is what the recording has: by its schema, and as Go's pprof reads it."""

import os
import re
import shutil
import subprocess
import zlib
from collections import Counter
from pathlib import Path

import pytest

from exhume.exports import pprof
from exhume.exports.subject import Subject
from tests.exports.made import ROWS, SUBJECT, TOTAL
from tests.exports.wire import Message
from tests.render.made import NODE, REAL, SECOND, Ran, recorded


def written(*rows: Ran, subject: Subject = SUBJECT, idle: bool = True) -> tuple[bytes, int]:
    parts: list[bytes] = []
    total = pprof.write(parts.append, *recorded(*rows), subject, idle)
    return b"".join(parts), total


def parsed(data: bytes) -> Message:
    return Message(zlib.decompress(data, 31))


def stacks(profile: Message) -> Counter[tuple[str, ...]]:
    """Count by stack, the function that ran first."""
    strings = profile.texts(6)
    functions = {one.number(1): strings[one.number(2)] for one in profile.messages(5)}
    locations = {one.number(1): functions[one.message(4).number(1)] for one in profile.messages(4)}
    found: Counter[tuple[str, ...]] = Counter()
    for sample in profile.messages(2):
        found[tuple(locations[one] for one in sample.ints(1))] += sample.ints(2)[0]
    return found


def test_every_sample_is_counted_by_its_stack() -> None:
    data, total = written(*ROWS)
    profile = parsed(data)
    assert total == TOTAL
    assert stacks(profile) == {
        ("mem_cgroup_nr_lru_pages", "read", "main"): 320,
        ("main",): 80,
        ("loop", "main"): 7,
        ("idle",): 540,
    }
    assert len(profile.messages(2)) == 4  # cores are not told apart


def test_idle_can_be_left_out() -> None:
    data, total = written(*ROWS, idle=False)
    assert total == 407
    assert ("idle",) not in stacks(parsed(data))


def test_the_types_the_time_and_the_period() -> None:
    profile = parsed(written(*ROWS)[0])
    strings = profile.texts(6)
    assert strings[0] == ""
    assert [(strings[one.number(1)], strings[one.number(2)]) for one in profile.messages(1)] == [
        ("samples", "count"),
        ("cpu", "nanoseconds"),
    ]
    assert all(sample.ints(2)[1] == sample.ints(2)[0] * 10_000_000 for sample in profile.messages(2))
    assert (profile.number(9), profile.number(10), profile.number(12)) == (REAL, 10 * SECOND, 10_000_000)
    assert strings[profile.number(14)] == "cpu"


def test_without_a_rate_samples_are_counted_only() -> None:
    profile = parsed(written(*ROWS, subject=Subject(NODE, 0, "", 0, 1, 0))[0])
    assert [profile.texts(6)[one.number(1)] for one in profile.messages(1)] == ["samples"]
    assert all(len(sample.ints(2)) == 1 for sample in profile.messages(2))
    assert 11 not in profile


def test_labels_say_who_it_was_and_mappings_where() -> None:
    profile = parsed(written(*ROWS)[0])
    strings = profile.texts(6)
    labels = {
        tuple(
            (strings[one.number(1)], strings[one.number(2)] if 2 in one else one.number(3)) for one in sample.messages(3)
        ): sample.ints(2)[0]
        for sample in profile.messages(2)
    }
    assert labels[("comm", "kubelet"), ("cgroup", "/system.slice/kubelet.service"), ("pid", 4242), ("tid", 4242)] == 320
    mappings = {one.number(1): strings[one.number(5)] for one in profile.messages(3)}
    assert set(mappings.values()) == {"[kernel]", "/usr/bin/kubelet", "/usr/bin/sshd", "/usr/bin/python", "[jit]"}
    assert all(one.number(7) == 1 for one in profile.messages(3))
    assert all(one.number(2) in mappings for one in profile.messages(4))


def test_hostile_names_stay_inside_of_their_strings() -> None:
    names = parsed(written(Ran(0, "a\x1b[31m\n\0", "x:é\udcff\x01", 1))[0]).texts(6)
    assert "a\x1b[31m\n\0" in names
    assert "é\\udcff\x01" in names


def flat_by_go(tmp_path: Path, *rows: Ran) -> dict[str, int]:
    """Samples by function, as `go tool pprof` tells them."""
    file = tmp_path / "cpu.pb.gz"
    file.write_bytes(written(*rows)[0])
    done = subprocess.run(
        ["go", "tool", "pprof", "-top", "-sample_index=samples", "-nodefraction=0", str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "GOTOOLCHAIN": "local", "PPROF_TMPDIR": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = re.findall(r"^ +(\d+) +[\d.]+% +[\d.]+% +\d+ +[\d.]+%  (\S.*)$", done.stdout, re.M)
    flat = {name: int(count) for count, name in found if int(count)}
    assert f"Total samples = {sum(flat.values())}" in done.stdout
    return flat


@pytest.mark.skipif(shutil.which("go") is None, reason="needs go")
def test_gos_pprof_finds_the_same_functions(tmp_path: Path) -> None:
    assert sum((flat := flat_by_go(tmp_path, *ROWS)).values()) == TOTAL
    assert flat == {
        "idle": 540,
        "mem_cgroup_nr_lru_pages": 320,
        "main": 80,
        "loop": 7,
    }


SHOWN = {
    "python:<module>": "<module>",
    "python:<lambda>": "<lambda>",
    "libc.so.6:": "[unknown] (libc.so.6)",
    "ld.so:": "[unknown] (ld.so)",
    "c++:std::vector<int>::at": "std::vector<int>::at",
}


def test_functions_have_no_system_name_by_which_a_reader_would_demangle_them() -> None:
    profile = parsed(written(*(Ran(0, "python", word) for word in SHOWN))[0])
    assert not any(3 in one for one in profile.messages(5))


@pytest.mark.skipif(shutil.which("go") is None, reason="needs go")
def test_gos_pprof_shows_names_in_brackets_whole(tmp_path: Path) -> None:
    rows = [Ran(0, "python", word, count) for count, word in enumerate(SHOWN, 1)]
    assert flat_by_go(tmp_path, *rows) == {name: count for count, name in enumerate(SHOWN.values(), 1)}
