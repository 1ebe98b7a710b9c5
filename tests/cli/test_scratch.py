"""What is made of a file while somebody looks at it goes with the process, however that ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exhume import scratch
from exhume.cli.main import main
from tests.recorders import Begun, exhume

HELD = "import sys; from exhume.cli.scratch import until_exit; print(until_exit('import'), flush=True); sys.stdin.read()"


def held(within: Path) -> "tuple[subprocess.Popen[str], Path]":
    environment = {**os.environ, "TMPDIR": str(within)}
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", HELD], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment, text=True
    )
    assert process.stdout is not None
    place = Path(process.stdout.readline().strip())
    (place / "segment").write_bytes(b"x")
    return process, place


def end(process: "subprocess.Popen[str]", how: signal.Signals | None) -> int:
    if how is not None:
        process.send_signal(how)
    process.communicate(timeout=300)
    return process.returncode


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (None, 0)])
def test_a_directory_goes_when_we_do(tmp_path: Path, how: signal.Signals | None, code: int) -> None:
    process, place = held(tmp_path)
    assert place.parent == tmp_path
    assert place.stat().st_mode & 0o777 == 0o700
    assert end(process, how) == code
    assert list(tmp_path.iterdir()) == []


def test_one_of_a_killed_command_goes_with_the_next_and_one_in_use_stays(tmp_path: Path) -> None:
    killed, gone = held(tmp_path)
    end(killed, signal.SIGKILL)
    assert (gone / "segment").exists()
    running, used = held(tmp_path)
    assert not gone.exists()
    with scratch.scratch("view", str(tmp_path)) as place:
        assert {*map(str, tmp_path.iterdir())} == {str(used), place}
        assert scratch.left(str(tmp_path)) == []
    assert (used / "segment").exists()
    end(running, None)


FORKED = """
import os, signal, sys
from exhume.cli.scratch import until_exit
place = until_exit("import")
if os.fork():
    print(place, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
sys.stdin.read()
os._exit(0)
"""


def test_a_child_made_by_fork_keeps_the_directory(tmp_path: Path) -> None:
    environment, pipe = {**os.environ, "TMPDIR": str(tmp_path)}, subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", FORKED], stdin=pipe, stdout=pipe, env=environment, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        place = process.stdout.readline().strip()
        assert process.wait(120) == -signal.SIGKILL
        assert scratch.left(str(tmp_path)) == []
        process.stdin.close()
        assert process.stdout.read() == ""  # the child has ended
    assert scratch.left(str(tmp_path)) == [place]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory to somebody else")
def test_nothing_else_is_removed(tmp_path: Path) -> None:
    names = (
        "exhume-import-7-abcdefgh",
        "exhume-import-abcdefgh",
        "exhume-import-7-abcdefghi",
        "exhume-new-7-abcdefgh",
        "other",
    )
    for name in names:
        (tmp_path / name).mkdir()
    os.chown(tmp_path / names[0], 65534, 65534)
    (tmp_path / "exhume-view-7-file0000").touch()
    (tmp_path / "exhume-view-7-link0000").symlink_to("other")
    before = {path.name for path in tmp_path.iterdir()}
    with scratch.scratch("bundle", str(tmp_path)):
        pass
    assert {path.name for path in tmp_path.iterdir()} == before
    assert scratch.left(str(tmp_path), everybody=True) == [str(tmp_path / names[0])]


def made_in(within: Path, process: "subprocess.Popen[bytes]") -> Path:
    """Waits for the directory that a command makes."""
    while process.poll() is None:
        if found := [path for path in within.glob("exhume-*") if any(path.iterdir())]:
            return found[0]
        time.sleep(0.01)
    raise AssertionError(f"it ended with {process.returncode}")


@pytest.mark.ci
@pytest.mark.parametrize(
    "arguments",
    [
        ["view", "stacks", "stacks", "--no-open"],
        pytest.param(
            ["diagnose", "--for", "60s", "--host", "/"], marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
        ),
    ],
    ids=lambda words: words[0],
)
def test_kill_9_leaves_nothing_for_long(arguments: list[str], tmp_path: Path) -> None:
    stacks, temporary = tmp_path / "stacks", tmp_path / "tmp"
    stacks.write_text("main;work 5\nmain;rest 3\n")
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    it = Begun(*(str(stacks) if word == "stacks" else word for word in arguments), environment=environment)
    try:
        left = made_in(temporary, it.process)
        it.end(signal.SIGKILL)
        assert left.exists()
    finally:
        it.close()
    assert exhume("flame", stacks, environment={"TMPDIR": str(temporary)}).returncode == 0
    assert list(temporary.iterdir()) == []


def test_uninstall_finds_what_was_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in (
        "tmp/exhume-import-7-abcdefgh",
        "var/tmp/exhume-score-8-abcdefgh",
        "tmp/exhume-diagnose-9-01234567/20261117T000000Z",
    ):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "tmp/other").mkdir()
    assert main(["uninstall", "--host", str(tmp_path), "--dry-run"]) == 0
    told = capsys.readouterr().out
    for name in ("/tmp/exhume-import-7-abcdefgh", "/var/tmp/exhume-score-8-abcdefgh", "/tmp/exhume-diagnose-9-01234567"):
        assert name in told
    assert told.count("of a command that was killed") == 3
    assert main(["uninstall", "--host", str(tmp_path), "--yes"]) == 0
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["other"]
    assert list((tmp_path / "var/tmp").iterdir()) == []
    assert main(["uninstall", "--host", str(tmp_path), "--yes"]) == 0
    assert "exhume left nothing on this node." in capsys.readouterr().out


def test_uninstall_leaves_what_is_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tmp").mkdir()
    with scratch.scratch("import", str(tmp_path / "tmp")) as place:
        assert main(["uninstall", "--host", str(tmp_path), "--yes"]) == 0
        assert "exhume left nothing on this node." in capsys.readouterr().out
        assert os.path.isdir(place)
