"""exhume record as people run it: real processes, real signals, real systemd."""

import os
import re
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from exhume.cli.main import main
from exhume.cli.stopping import Stopping
from exhume.recording.folder import Folder
from tests import systemd
from tests.recorders import exhume, recorder

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a recorder with everything on needs root")
HOSTILE = b"\x1b[31mred\xff"
SECRET = "Hunter2-" + "z" * 20


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[bytes]]:
    """Two seconds, in which a process with a hostile name was busy."""
    if os.geteuid() != 0:
        pytest.skip("a recorder with everything on needs root")
    path = tmp_path_factory.mktemp("record") / "r"
    script = f"import ctypes; ctypes.CDLL(None).prctl(15, {HOSTILE!r}, 0, 0, 0)\nwhile True: pass"
    busy = subprocess.Popen([sys.executable, "-S", "-c", script, SECRET], env={**os.environ, "PASSWORD": SECRET})
    try:
        before = os.umask(0)
        try:
            done = exhume("record", path, "--for", "2s", "--quiet")
        finally:
            os.umask(before)
    finally:
        busy.kill()
        busy.wait()
    return path, done


def test_it_ends_when_its_time_is_over_and_says_nothing_when_asked_to(
    recorded: tuple[Path, subprocess.CompletedProcess[bytes]],
) -> None:
    _, done = recorded
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_what_it_wrote_is_sealed_and_holds_every_kind_of_row(recorded: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    folder = Folder(str(recorded[0]))
    assert folder.notes == []
    assert [segment.sealed for segment in folder.segments] == [True]
    assert folder.about["hz"] == 97
    for table in ("samples", "cpu", "anchors", "memcg", "counters", "sources", "stacks", "frames", "threads"):
        assert folder.count(table) > 0, table


def test_the_directory_is_readable_by_its_owner_alone(recorded: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    """Whatever the umask is."""
    path = recorded[0]
    for each in [path, *path.rglob("*")]:
        assert stat.S_IMODE(each.lstat().st_mode) & 0o077 == 0, each


def test_no_command_line_and_no_environment_is_in_it(recorded: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    rows = Folder(str(recorded[0])).load()
    assert len(rows["processes"])
    for table in rows.tables.values():
        for row in table.rows():
            assert SECRET not in repr(row)


def names(path: Path) -> list[str]:
    return list(Folder(str(path)).load(tables=("samples", "threads"))["threads"].texts("process"))


def test_a_hostile_name_is_recorded(recorded: tuple[Path, subprocess.CompletedProcess[bytes]]) -> None:
    assert "\x1b[31mred\\xff" in names(recorded[0])


@pytest.mark.parametrize(
    "command", [["info"], ["flame"], ["flame", "--folded"], ["flame", "--by", "thread"], ["flame", "-o", "-"], ["heat"]]
)
def test_a_hostile_name_is_never_printed_as_it_is(
    recorded: tuple[Path, subprocess.CompletedProcess[bytes]], command: list[str]
) -> None:
    path, _ = recorded
    if "\x1b[31mred\\xff" not in names(path):
        pytest.skip("the node was too busy to name it, as another test says")
    done = exhume(command[0], path, *command[1:])
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"\xff" not in done.stdout + done.stderr


@needs_root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with recorder(tmp_path / "r", segment_s=60) as it:
        it.begun()
        assert it.end(number) == 0, it.text
        assert it.process.stdout is not None
        closing = it.process.stdout.read().decode()
    assert re.search(r"recorded 0:0\d:\d\d to \S+: [\d,]+ samples", closing)
    assert "exhume info" in closing
    folder = Folder(str(tmp_path / "r"))
    assert all(segment.sealed for segment in folder.segments)
    assert folder.count("cpu") > 0


@needs_root
def test_a_second_recorder_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    with recorder(tmp_path / "r", "--hz", "0") as it:
        it.begun()
        second = exhume("record", tmp_path / "r", "--for", "1s")
        assert second.returncode == 2
        assert second.stderr.decode().count("\n") == 1
        assert b"another recorder writes into" in second.stderr
        assert it.end(signal.SIGINT) == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--hz", "1000"], "--hz must be between 1 and 999"),
        (["--hz", "-1"], "--hz must be between 1 and 999"),
        (["--hz", "often"], "invalid int value"),
        (["--budget", "1MiB"], "--budget must be 16 MiB or more"),
        (["--budget", "much"], "is not a size"),
        (["--on", "bad-luck"], "'bad-luck' is not a kind of finding"),
        (["--on", ","], "--on needs kinds of findings"),
        (["--for", "10ms"], "--for must be 1s or more"),
        (["--for", "0s"], "--for must be 1s or more"),
        (["--for", "soon"], "is not a duration"),
        (["--around", "3m"], "name their kinds with --on"),
        (["--around", "soon"], "is not a duration"),
    ],
)
def test_wrong_usage_is_a_sentence_and_64(
    tmp_path: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code: object
    try:
        code = main(["record", str(tmp_path / "r"), *options])
    except SystemExit as stop:
        code = stop.code
    assert code == 64
    assert says in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_a_host_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", str(tmp_path / "r"), "--host", str(tmp_path)]) == 3
    assert "is not the root of a node: there is no" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_hours_that_are_there_do_not_go_for_a_trigger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.recording.made import second, writer

    store = writer(tmp_path / "r")
    store.append(second(0, names=True))
    store.append(second(3600))
    store.close()
    assert main(["record", str(tmp_path / "r"), "--on", "core-saturated", "--for", "1s"]) == 2
    said = capsys.readouterr().err
    assert "holds 1 h of a recording, of which --on would keep the last 15 minutes" in said
    assert len(list((tmp_path / "r").glob("*Z/0*"))) == 2


def test_a_directory_that_cannot_be_had_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").touch()
    for path, says in (
        (tmp_path / "file" / "below", "make it first (mkdir -p)"),
        (tmp_path / "file", "cannot record into"),
        (tmp_path / "other", "is not a recording"),
        (Path("/proc/nowhere/r"), "there is no /proc/nowhere"),
    ):
        assert main(["record", str(path), "--for", "1s", "--hz", "0"]) in (2, 3)
        said = capsys.readouterr().err
        assert says in said
        assert said.count("\n") == 1
    assert os.listdir(tmp_path / "other") == ["precious"]


NOBODY = """
import sys
sys.path[:] = sys.argv[3:]
import os, re, encodings.idna, json, select, shutil, subprocess, numpy, pyarrow, pyarrow.parquet, pyarrow.ipc
import tomllib, exhume.config, exhume.recorder.policy, exhume.recorder.samples
import exhume.cli.record, exhume.cli.record_text, exhume.recorder.recorder, exhume.recording.writer, exhume.cli.record_trigger
from exhume.cli.main import main
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
sys.exit(main(["record", sys.argv[1], "--for", sys.argv[2]]))
"""


@needs_root
def test_without_root_the_rest_is_recorded_and_it_is_said_that_samples_are_off(tmp_path: Path) -> None:
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 1:
        pytest.skip("kernel.perf_event_paranoid lets everybody")
    place = Path(f"/tmp/exhume-test-nobody-{os.getpid()}")  # tmp_path is below a directory of root alone
    place.mkdir()
    try:
        os.chown(place, 65534, 65534)
        command = [sys.executable, "-c", NOBODY, str(place / "r"), "1s", *sys.path]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "no stack samples: stack samples cannot be read: it takes root or CAP_PERFMON" in done.stderr
        folder = Folder(str(place / "r"))
        rows = folder.load()
        assert "it takes root" in rows.why_off("samples")
        assert rows.on("cpu")
        assert len(rows["cpu"])
        assert len(rows["samples"]) == 0
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", place], check=True)


def test_detach_without_systemd_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if os.path.isdir("/run/systemd/system"):
        pytest.skip("systemd runs here")
    assert main(["record", str(tmp_path / "r"), "--detach"]) in (2, 3)
    said = capsys.readouterr().err
    assert "--detach needs systemd; without it: setsid exhume record" in said


@needs_root
def test_detach_is_a_unit_that_runs_and_stops() -> None:
    if why := systemd.unavailable():
        pytest.skip(why)
    with systemd.boot() as machine:
        inside = os.path.join(machine.root, sys.executable.lstrip("/"))
        if not os.path.exists(inside):
            pytest.skip("this Python is not to be seen inside")
        command = ["env", f"PYTHONPATH={os.pathsep.join(filter(None, sys.path))}", sys.executable, "-m", "exhume"]
        done = machine.run([*command, "record", "/var/tmp/r", "--detach", "--hz", "49", "--for", "1h"], timeout=300)
        assert "exhume-record.service" in done.stdout
        again = machine.run([*command, "record", "/var/tmp/r", "--detach"], check=False, timeout=300)
        assert again.returncode in (2, 3)
        assert "systemd did not start it" in again.stderr
        for _ in range(150):
            if list(Path(machine.root, "var/tmp/r").glob("*/open-*/cpu.arrows")):
                break
            time.sleep(0.1)
        assert machine.run(["systemctl", "is-active", "exhume-record"]).stdout.strip() == "active"
        machine.run(["systemctl", "stop", "exhume-record"], timeout=300)
        assert machine.run(["systemctl", "is-active", "exhume-record"], check=False).stdout.strip() == "inactive"
        assert list(Path(machine.root, "var/tmp/r").glob("*/*-*/cpu.parquet"))
        assert not list(Path(machine.root, "var/tmp/r").glob("*/open-*"))


@needs_root
@pytest.mark.ci
def test_an_incident_is_pinned_while_the_recorder_waits_for_one(tmp_path: Path) -> None:
    """A core that is kept busy in the kernel for some seconds."""
    with recorder(tmp_path / "r", "--on", "core-saturated", "--around", "1s") as it:
        it.begun()
        core = max(os.sched_getaffinity(0))
        script = (
            f"import os; os.sched_setaffinity(0, {{{core}}}); fd = os.open('/dev/zero', 0)\nwhile True: os.read(fd, 1 << 20)"
        )
        busy = subprocess.Popen([sys.executable, "-S", "-c", script])
        try:
            with suppress(AssertionError):
                it.until_said("pinned: core-saturated")
        finally:
            busy.kill()
            busy.wait()
        assert it.end(signal.SIGINT) == 0
    if "pinned:" not in it.text:
        pytest.skip("others had the core as well, and nothing saturated it")
    assert any(segment.pinned.startswith("core-saturated") for segment in Folder(str(tmp_path / "r")).segments)


def test_the_first_signal_is_noted_the_second_interrupt_ends_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stopping() as stopping:
        assert not stopping()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before
