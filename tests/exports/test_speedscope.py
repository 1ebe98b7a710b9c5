"""A speedscope file has every sample, and is what the published schema asks for."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.exports import speedscope
from exhume.exports.subject import Subject
from exhume.recording.tally import Tally
from tests.exports.made import ROWS, SUBJECT, TOTAL
from tests.render.made import NODE, Ran, idle, recorded

MODULES = Path(__file__).parents[2] / "requirements" / "page" / "node_modules"
SCHEMA = MODULES / "speedscope" / "dist" / "release" / "file-format-schema.json"
UNITS = {"bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds"}


def check(document: Any) -> None:
    """The rules of file-format-schema.json for sampled profiles, and those of the importer behind it."""
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert all(isinstance(frame["name"], str) and set(frame) <= {"name", "file", "line", "col"} for frame in frames)
    assert 0 <= document["activeProfileIndex"] < max(1, len(document["profiles"]))
    for profile in document["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert profile["type"] == "sampled"
        assert profile["unit"] in UNITS
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] - profile["startValue"] == sum(profile["weights"])
        assert all(0 <= frame < len(frames) for stack in profile["samples"] for frame in stack)


def written(rows: Tally, *more: Any, **options: Any) -> tuple[Any, int]:
    parts: list[bytes] = []
    total = speedscope.write(parts.append, rows, *more, **options)
    document = json.loads(b"".join(parts))
    check(document)
    return document, total


def test_a_profile_for_each_core_with_the_process_first() -> None:
    document, total = written(*recorded(*ROWS), SUBJECT)
    assert total == TOTAL
    assert [profile["name"] for profile in document["profiles"]] == ["core 0", "core 1", "core 2", "core 3"]
    core = document["profiles"][3]
    names = [[document["shared"]["frames"][frame]["name"] for frame in stack] for stack in core["samples"]]
    assert names == [["kubelet", "main", "read", "mem_cgroup_nr_lru_pages"]]
    assert core["weights"] == [300 * 10_000_000]
    assert core["unit"] == "nanoseconds"


def test_a_profile_for_each_process() -> None:
    document, _ = written(*recorded(*ROWS), Subject(NODE, 0, "", 0, 1, 0), by="process")
    weights = {profile["name"]: profile["endValue"] for profile in document["profiles"]}
    assert weights == {"kubelet": 320, "sshd": 80, "python": 7, "swapper": 540}
    assert {profile["unit"] for profile in document["profiles"]} == {"none"}


def test_idle_can_be_left_out() -> None:
    document, total = written(*recorded(*ROWS), SUBJECT, idle=False)
    assert total == 407
    assert "idle" not in [frame["name"] for frame in document["shared"]["frames"]]


def test_the_order_of_time_is_kept_and_neighbours_are_merged() -> None:
    _, dictionaries = recorded(Ran(0, "a", "x:f"), Ran(0, "a", "x:g"), idle(0, 1))
    stacks = np.array([1, 1, 2, 3, 1], dtype=np.int64)
    threads = np.array([1, 1, 1, 2, 1], dtype=np.int64)
    ones = np.ones(5, dtype=np.int64)
    document, total = written(Tally(0 * ones, threads, stacks, ones), dictionaries, SUBJECT)
    core = document["profiles"][0]
    assert total == 5
    assert [document["shared"]["frames"][stack[-1]]["name"] for stack in core["samples"]] == ["f", "g", "idle", "f"]
    assert core["weights"] == [20_000_000, 10_000_000, 10_000_000, 10_000_000]


@given(
    st.lists(
        st.builds(
            Ran,
            st.integers(-2, 3),
            st.text(max_size=5),
            st.sampled_from(["", "x:f", "k:g k:g", "j:h", "x:"]),
            st.integers(1, 9),
            st.sampled_from(["idle", "user", "irq", ""]),
            st.integers(-1, 9),
            st.just("/"),
        ),
        max_size=8,
    ),
    st.sampled_from(["core", "process"]),
    st.booleans(),
)
def test_whatever_there_is_all_of_it_is_counted(rows: list[Ran], by: str, idle: bool) -> None:
    _, total = written(*recorded(*rows), SUBJECT, by=by, idle=idle)
    assert total == sum(ran.samples for ran in rows if idle or ran.kind != "idle")


def refused(document: Any) -> str:
    """What speedscope's published schema has against a document; "" if nothing."""
    command = ["node", str(Path(__file__).with_name("schema.mjs")), str(MODULES), str(SCHEMA)]
    done = subprocess.run(command, input=json.dumps(document).encode(), capture_output=True, check=False)
    return done.stderr.decode() if done.returncode else ""


@pytest.mark.skipif(
    not shutil.which("node") or not SCHEMA.exists(), reason="speedscope is not there: npm ci in requirements/page"
)
def test_the_schema_that_speedscope_publishes_agrees() -> None:
    for by in ("core", "process"):
        document, _ = written(*recorded(*ROWS), SUBJECT, by=by)
        assert not refused(document)
    document, _ = written(*recorded(*ROWS), Subject(NODE, 0, "", 0, 1, 0))
    assert not refused(document)
    document["profiles"][0]["unit"] = "samples"
    assert "unit" in refused(document)
