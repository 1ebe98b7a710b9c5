"""exhume zombies as people see it."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from typing import Any

import pytest

from exhume.cli.terminal import Style
from exhume.cli.zombies_text import render
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.zombies import MILESTONES, ZombieReport, as_json, zombie_report
from exhume.recording.recording import Node, Recording
from tests import zombies
from tests.diagnosis.findings.test_leak import walked


def exhume(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "exhume", "zombies", *argv], capture_output=True, text=True, check=False)


@pytest.fixture
def real() -> None:
    if why := zombies.unavailable():
        pytest.skip(why)


def group(document: dict[str, Any], path: str) -> dict[str, Any]:
    found = [one for one in document["groups"] if one["path"] == path]
    assert found, [one["path"] for one in document["groups"]]
    return dict(found[0])


HOME = f"/{zombies.PARENT.name}"


@pytest.mark.usefixtures("real")
def test_every_real_zombie_is_in_exactly_one_group() -> None:
    with zombies.zombies(700, "one", held=True), zombies.zombies(300, "two", tmpfs=True):
        done = exhume("--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert (document["schema"], document["method"]) == ("exhume.zombies/1", "bpf-walk")
    assert sum(one["zombies"] for one in document["groups"]) == document["zombies"]
    cache, tmpfs = group(document, f"{HOME}/one/z*"), group(document, f"{HOME}/two/z*")
    assert (cache["zombies"], tmpfs["zombies"]) == (700, 300)
    assert cache["pinned_bytes"]["file"] > 0 == cache["pinned_bytes"]["anon"]
    assert tmpfs["pinned_bytes"]["anon"] > 0 == tmpfs["pinned_bytes"]["file"]
    assert cache["leak_probability"] > 0.9
    assert document["cost_bytes"] > 700 * 4096


_LEAK = """
import sys, time
from pathlib import Path
from tests import zombies
parent, fd, page = Path(sys.argv[1]), int(sys.argv[2]), 0
while True:
    zombies.one(parent, f"run{page}", fd, page)
    page += 1
    time.sleep(0.01)
"""


@pytest.mark.usefixtures("real")
def test_following_a_leak_gives_its_rate_and_how_long_until_it_hurts() -> None:
    """The leaking process makes them on tmpfs, a page of the file each: so many there are at most."""
    with (
        zombies.zombies(0, "leak") as parent,
        tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="exhume-test-") as file,
        subprocess.Popen([sys.executable, "-c", _LEAK, str(parent), str(file.fileno())], pass_fds=[file.fileno()]) as leaking,
    ):
        try:
            while made(file.fileno()) < 5:
                assert leaking.poll() is None
                time.sleep(0.01)
            done = exhume("--follow", "2s", "--json")
            at_most = made(file.fileno())
        finally:
            leaking.kill()
            leaking.wait()
            zombies.remove(parent)
            parent.mkdir(parents=True)
    document = json.loads(done.stdout)
    assert document["followed_s"] >= 2
    found = group(document, f"{HOME}/leak/run*")
    assert found["per_second"] > 0
    told = re.search(r"(\d+) of (\d+) removed while we looked were not released", found["because"])
    assert told is not None, found["because"]
    unreleased, removed = map(int, told.groups())
    assert 0 < unreleased <= removed <= at_most
    assert found["leak_probability"] >= (unreleased + 1) / (removed + 2) - 0.001
    # Others on this node make zombies, and free theirs: it may have fewer in the end.
    marks = [mark for mark in MILESTONES if mark > document["zombies"] and document["per_second"] > 0]
    assert [one["zombies"] for one in document["until"]] == marks


def made(fd: int) -> int:
    return os.fstat(fd).st_size // zombies.PAGE


def test_the_table_names_place_owner_and_what_pins_them() -> None:
    report = zombie_report(walked({"/system.slice/ecs.service": 68_000, "/x": 4}, unit="ecs.service"), Thresholds())
    text = render(report, Style(sys.stdout, colour=False), 120)
    assert "68,004 zombie memory cgroups, 100 live" in text
    line = next(line for line in text.splitlines() if "/system.slice/ecs.service" in line)
    assert "68,000" in line
    assert "100%" in line
    assert "page cache 266 MiB" in line
    assert line.rstrip().endswith("ecs.service")


def held(**columns: int | str) -> ZombieReport:
    """Ten zombies in one place, with these columns of the walk."""
    recording = Recording(Node("n", "", "6.1", "v1", 2))
    row: dict[str, int | str] = {"time": 1, "path": "/x/*", "home": "/x", "zombies": 10, "method": "bpf-walk", **columns}
    table = recording["memcg_walk"]
    table.add(*(row.get(one.name, "" if one.kind == "text" else 0) for one in table.schema.columns))
    recording.count(1, "memcg_walk_zombies", 10)
    recording.count(1, "memcg_walk_live", 100)
    return zombie_report(recording, Thresholds())


def test_zombies_held_by_swap_are_told_so_with_what_frees_them() -> None:
    report = held(swap=10 << 21)
    text = render(report, Style(sys.stdout, colour=False), 120)
    assert "swap 20 MiB" in text
    assert "kernel 20" not in text
    assert "swapoff DEVICE" in text
    assert as_json(report)["groups"][0]["pinned_bytes"] == {"file": 0, "anon": 0, "swap": 10 << 21, "kernel": 0}


def test_zombies_held_by_unreaped_processes_are_told_with_the_parent() -> None:
    parent: dict[str, int | str] = {
        "parent_pid": 4711,
        "parent_comm": "shim\x1b[2J",
        "parent_cgroup": "/system.slice/shim.service",
    }
    report = held(empty=10, unreaped=9, **parent)
    text = render(report, Style(sys.stdout, colour=False), 120)
    assert "unreaped processes" in next(line for line in text.splitlines() if "/x/*" in line)
    assert "[4711] of shim.service has not reaped" in text
    assert "exhume fix defunct-processes" in text
    assert "purge --dry-run" not in text
    assert "\x1b" not in text
    unreaped = as_json(report)["groups"][0]["unreaped"]
    assert (unreaped["zombies"], unreaped["parent"]["pid"], unreaped["parent"]["unit"]) == (9, 4711, "shim.service")
    assert as_json(held(file=4096))["groups"][0]["unreaped"] == {"zombies": 0, "parent": None}


def test_hostile_paths_are_shown_safely() -> None:
    recording = walked({"/\x1b[2J\n" + "x" * 4000: 5_000})
    report = zombie_report(recording, Thresholds())
    text = render(report, Style(sys.stdout, colour=False), 80)
    assert all(character == "\n" or character.isprintable() for character in text)
    assert max(len(line) for line in text.splitlines()) < 120
    assert json.dumps(as_json(report)).isascii()


def test_no_zombies_is_one_line() -> None:
    report = zombie_report(walked({}), Thresholds())
    assert render(report, Style(sys.stdout, colour=False), 80).startswith("No zombie memory cgroups, 100 live")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--follow", "1ms"], "--follow"),
        (["--baseline", "-3"], "--baseline"),
        (["purge", "--under", "x"], "--under"),
        (["--host", "/no"], "--host"),
    ],
)
def test_wrong_usage_is_a_sentence(argv: list[str], says: str) -> None:
    done = exhume(*argv)
    assert done.returncode == 64
    assert says in done.stderr


AS_NOBODY = """
import contextlib, io, os, sys
from exhume.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["zombies", "--json"])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(["zombies", "--json"]))
"""


def test_without_privileges_it_counts_and_says_why_it_cannot_name() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become nobody")
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    assert document["method"] in ("count", "cgroup-stat")
    assert "not named" in document["note"]


@pytest.mark.usefixtures("real")
def test_without_bpf_what_events_have_shown_is_named_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    from exhume.errors import Unreadable
    from exhume.host.root import Root
    from exhume.recorder.recorder import record_zombies

    def refused() -> None:
        raise Unreadable("BPF is not allowed here")

    monkeypatch.setattr("exhume.sources.memcg_walk.walk", refused)
    made: list[int] = []

    def leak(part: float) -> None:
        """Called while it listens."""
        if part > 0.1 and not made:
            made.append(1)
            for i in range(25):
                zombies.one(parent, f"seen{i}", file.fileno(), 100 + i)
            (home / "tasks").write_text("0")

    home = zombies.own_cgroup()
    with (
        zombies.zombies(40, "events", tmpfs=True) as parent,
        tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="exhume-test-") as file,
    ):
        recording = record_zombies(Root(), 1_500_000_000, leak)
    if not recording.on("cgroup-events"):
        pytest.skip(recording.why_off("cgroup-events"))
    document = as_json(zombie_report(recording, Thresholds()))
    assert document["method"] == "events"
    assert group(document, f"{HOME}/events/seen*")["zombies"] == 25
    assert sum(one["zombies"] for one in document["groups"]) == document["zombies"]
    assert group(document, "/*")["zombies"] >= 40
