"""The journal of the running node, as far as it is about units: of a real journald, and of a journalctl that fails."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import sentences
from exhume.sources import journal
from exhume.sources.journal import UnitJournal
from tests import systemd
from tests.waiting import wait_for

LOOP = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sh -c 'exit 5'\nRestart=always\nRestartSec=100ms\n"
SCRIPT = """
import json, sys, time
sys.path.insert(0, sys.argv[1])
from exhume.sources.journal import UnitJournal
from exhume.host.root import Root
from exhume.recording.recording import Node, Recording
reader, told = UnitJournal(Root()), []
for _ in range(2):
    recording = Recording(Node("", "", "", "", 1))
    note = reader.read(recording, time.monotonic_ns())
    rows = recording["events"].rows()
    told.append([note, time.monotonic_ns(), [[row["time"], row["kind"], row["subject"], dict(row["fields"])] for row in rows]])
    time.sleep(1)
print(json.dumps(told))
"""


def test_a_real_journal_tells_of_restarts_and_how_they_came_and_each_only_once() -> None:
    if why := systemd.unavailable():
        pytest.skip(why)
    source = str(Path(journal.__file__).parents[2])
    for needed in (source, sys.prefix, os.path.realpath(sys.executable)):
        if os.stat(needed).st_dev != os.stat("/").st_dev:
            pytest.skip(f"{needed} is on another file system than /, so the container does not have it")
    with systemd.boot({"loop.service": LOOP}) as machine:
        machine.run(["systemctl", "start", "--no-block", "loop.service"])
        wait_for(lambda: int(machine.run(["systemctl", "show", "--value", "-p", "NRestarts", "loop.service"]).stdout) >= 5)
        machine.run(["journalctl", "--sync"])
        first, second = json.loads(machine.run([sys.executable, "-c", SCRIPT, source]).stdout)
    assert first[0] == second[0] == []
    events = first[2]
    assert {subject for _, _, subject, _ in events} == {"loop.service"}
    counted = [int(fields["restarts"]) for _, kind, _, fields in events if kind == "unit-restart"]
    assert counted == list(range(1, len(counted) + 1))
    assert len(counted) >= 5
    assert {tuple(fields.items()) for _, kind, _, fields in events if kind == "unit-exited"} == {
        (("code", "exited"), ("status", "5"))
    }
    # On the clock that was given, and none of them later than when all had been read.
    assert all(first[1] - 120 * 10**9 < moment <= first[1] for moment, *_ in events)
    again = [int(fields["restarts"]) for _, kind, _, fields in second[2] if kind == "unit-restart"]
    assert again[0] == counted[-1] + 1


def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Callable[[], str]:
    """A journalctl of ours in a node that has a journal."""
    program = tmp_path / "journalctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(journal, "_PLACES", ("proc",))
    return lambda: sentences(UnitJournal(Root()).read(Recording(Node("", "", "", "", 1)), time.monotonic_ns()))


def test_a_journalctl_that_hangs_or_complains_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "DEADLINE_S", 0.2)
    with pytest.raises(Unreadable, match=r"did not answer within 200 ms"):
        fake(tmp_path, monkeypatch, "exec sleep 60")()
    monkeypatch.setattr(journal, "DEADLINE_S", 30)
    with pytest.raises(Unreadable, match=r"could not read the journal: No\\x1b permission"):
        fake(tmp_path, monkeypatch, "printf 'No\\033 permission' >&2; exit 1")()


def test_whatever_journalctl_prints_is_an_entry_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fake(tmp_path, monkeypatch, "head -c 100000 /dev/urandom; echo; echo '{}'; echo '[1]'; echo '{\"UNIT\":7'")() == ""


def test_without_a_journal_or_another_s_kernel_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = Recording(Node("", "", "", "", 1))
    with pytest.raises(Unreadable, match="this root is another's"):
        UnitJournal(Root(str(tmp_path))).read(recording, 1)
    monkeypatch.setattr(journal, "_PLACES", ("no/such/place",))
    with pytest.raises(Unreadable, match=r"there is no journal here|journalctl is not there"):
        UnitJournal(Root()).read(recording, 1)
