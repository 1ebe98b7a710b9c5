"""A profile for profiler.firefox.com: whole, and as its own command line reads it where that is installed."""

import json
from pathlib import Path
from typing import Any

import pytest

from exhume.exports import firefox
from exhume.exports.subject import Subject
from exhume.recording.chosen import loaded
from exhume.recording.folder import Folder
from tests.render.made import BEGIN, HZ, NODE, REAL, SECOND, write

# Columns of the tables of version 48 (docs-developer/CHANGELOG-formats.md and the types before it).
COLUMNS = {
    "stackTable": {"frame", "prefix", "category", "subcategory"},
    "frameTable": {
        *("address", "inlineDepth", "category", "subcategory", "func", "nativeSymbol"),
        *("innerWindowID", "implementation", "line", "column"),
    },
    "funcTable": {"name", "isJS", "relevantForJS", "resource", "fileName", "lineNumber", "columnNumber"},
    "resourceTable": {"lib", "name", "host", "type"},
    "nativeSymbols": {"libIndex", "address", "name", "functionSize"},
    "markers": {"data", "name", "startTime", "endTime", "phase", "category"},
    "samples": {"stack", "time", "weight", "weightType"},
}


def check(document: Any) -> None:
    """Every table has its columns, all as long as it says, and every index leads somewhere."""
    categories = len(document["meta"]["categories"])
    mains = [thread["pid"] for thread in document["threads"] if thread["isMainThread"]]
    assert len(mains) == len(set(mains)), "the page shows one main thread a process, and hides the others"
    for thread in document["threads"]:
        for name, columns in COLUMNS.items():
            table = thread[name]
            assert set(table) == columns | {"length"}, name
            assert all(len(table[column]) == table["length"] for column in columns if isinstance(table[column], list))
        strings = len(thread["stringArray"])
        functions, frames, stacks = thread["funcTable"], thread["frameTable"], thread["stackTable"]
        assert all(0 <= one < strings for one in (*functions["name"], *thread["resourceTable"]["name"]))
        assert all(-1 <= one < thread["resourceTable"]["length"] for one in functions["resource"])
        assert all(0 <= one < functions["length"] for one in frames["func"])
        assert all(0 <= one < categories for one in (*frames["category"], *stacks["category"]))
        assert all(0 <= one < frames["length"] for one in stacks["frame"])
        assert all(above is None or 0 <= above < place for place, above in enumerate(stacks["prefix"]))
        assert all(0 <= one < stacks["length"] for one in thread["samples"]["stack"])
        assert thread["samples"]["time"] == sorted(thread["samples"]["time"])
        assert isinstance(thread["pid"], str)


def names(thread: Any, stack: int | None) -> list[str]:
    found = []
    while stack is not None:
        function = thread["frameTable"]["func"][thread["stackTable"]["frame"][stack]]
        found.append(thread["stringArray"][thread["funcTable"]["name"][function]])
        stack = thread["stackTable"]["prefix"][stack]
    return found[::-1]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = Folder(write(tmp_path_factory.mktemp("firefox") / "recording"))
    parts: list[bytes] = []
    subject = Subject(NODE, HZ, "cpu-clock", BEGIN, BEGIN + 12 * SECOND, REAL)
    total = firefox.write(parts.append, *loaded(folder, BEGIN, BEGIN + 12 * SECOND), subject)
    assert total == 4800
    return json.loads(b"".join(parts))


def test_it_is_whole(document: Any) -> None:
    check(document)
    assert document["meta"]["preprocessedProfileVersion"] == 48
    assert document["meta"]["startTime"] == REAL / 1e6
    assert document["meta"]["interval"] == 10


def test_every_sample_is_in_the_thread_that_it_is_of(document: Any) -> None:
    counts = {(thread["processName"], thread["name"]): thread["samples"]["length"] for thread in document["threads"]}
    assert counts == {
        ("kubelet", "kubelet"): 300,
        ("sshd", "sshd"): 240,
        ("idle cores", "swapper/0"): 1200,
        ("idle cores", "swapper/1"): 960,
        ("idle cores", "swapper/2"): 1200,
        ("idle cores", "swapper/3"): 900,
    }


def test_stacks_times_and_categories(document: Any) -> None:
    kubelet = next(thread for thread in document["threads"] if thread["name"] == "kubelet")
    assert names(kubelet, kubelet["samples"]["stack"][0]) == ["main", "read", "mem_cgroup_nr_lru_pages"]
    assert (kubelet["samples"]["time"][0], kubelet["samples"]["time"][-1]) == (5000, 7990)
    colours = [document["meta"]["categories"][one]["name"] for one in kubelet["stackTable"]["category"]]
    assert colours == ["User", "Kernel", "Kernel"]
    idle = next(thread for thread in document["threads"] if thread["name"] == "swapper/0")
    assert {document["meta"]["categories"][one]["name"] for one in idle["stackTable"]["category"]} == {"Idle"}


def test_firefoxs_own_command_line_finds_the_hot_function(document: Any, tmp_path: Path) -> None:
    """`npm install -g @firefox-devtools/profiler-cli`: it keeps a process for a session, which is stopped here."""
    import os
    import shutil
    import subprocess

    tool = shutil.which("profiler-cli")
    if tool is None:
        pytest.skip("needs profiler-cli, the npm package @firefox-devtools/profiler-cli")
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(document))
    environment = {**os.environ, "PROFILER_CLI_SESSION_DIR": str(tmp_path / "sessions")}

    def ask(*words: str) -> str:
        done = subprocess.run([tool, *words], capture_output=True, text=True, timeout=300, env=environment, check=False)
        return done.stdout + done.stderr

    try:
        told = ask("load", str(file))
        if "did not become ready" in told:  # it gives itself half a second to start
            told = ask("load", str(file))
        thread = [one["name"] for one in document["threads"]].index("kubelet")
        ask("thread", "select", f"t-{thread}")
        assert "mem_cgroup_nr_lru_pages - total: 300 (100.0%)" in ask("thread", "samples"), told
    finally:
        ask("stop", "--all")
