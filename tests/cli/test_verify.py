"""exhume verify of recordings that were really written, and of this node: what is printed, and the exit code that says it."""

import json
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.cli.main import main
from exhume.cli.terminal import Style
from exhume.cli.verify_text import escaped, markdown, number, progress_lines, render, sure
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.remedy import proof_gathered, proof_live
from exhume.remedy.criteria import Criterion
from exhume.remedy.proof import from_json, prove
from tests.remedy.made_proof import Made, node
from tests.render.told import write

CAPTURE = pytest.CaptureFixture[str]
SICK = Made(1, seconds=240, cpus=5)
CURED = replace(SICK, seed=2, seconds=300, leak=0, walk_s=0, zombies=60)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("sick") / "recording", node(SICK))


@pytest.fixture(scope="module")
def cured(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("cured") / "recording", node(CURED))


def test_two_recordings_are_compared_without_looking_at_a_node(sick: str, cured: str, capsys: CAPTURE) -> None:
    assert main(["verify", "--before", sick, "--after", cured]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("PASSED  The causes are gone")
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) <= 100
    assert main(["verify", "--before", sick, "--after", sick]) == 2
    printed = capsys.readouterr().out
    assert printed.startswith("FAILED  It is not cured: rate of the leak")
    assert re.search(r"failed +rate of the leak +6\.\d → 6\.\d zombies a minute, at most 1, 99\.9 % sure", printed)


def test_json_is_a_proof_that_can_be_read_again(sick: str, cured: str, capsys: CAPTURE) -> None:
    assert main(["verify", "--before", sick, "--after", cured, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "exhume.proof/2"
    assert document["passed"] is True
    assert from_json(document).criteria[0].id == "leak-rate"


def test_markdown_goes_to_the_file_that_is_named(sick: str, cured: str, tmp_path: Path, capsys: CAPTURE) -> None:
    file = tmp_path / "proof.md"
    assert main(["verify", "--before", sick, "--after", cured, "--markdown", "-o", str(file)]) == 0
    assert capsys.readouterr().out == ""
    assert file.read_text().startswith("# Passed: the causes are gone")
    assert main(["verify", "--before", sick, "--after", sick, "-o", str(file)]) == 2
    assert file.read_text().startswith("FAILED")


def test_a_part_of_the_flight_recorders_folder_is_before(sick: str, capsys: CAPTURE) -> None:
    """The recording has four minutes: its first and its second two leak alike, and ten seconds are too few."""
    assert main(["verify", "--dir", sick, "--before", "+0s..+120s", "--after", "+120s..+240s"]) == 2
    assert "2 min after, against 2 min before" in capsys.readouterr().out
    assert main(["verify", "--dir", sick, "--before", "-240s..-120s", "--after", "-120s..-0s"]) == 2
    assert main(["verify", "--dir", sick, "--after", "+0s..+9s"]) == 3


def test_too_little_is_exit_3_and_says_how_long(sick: str, tmp_path: Path, capsys: CAPTURE) -> None:
    short = write(tmp_path / "short", node(replace(CURED, seconds=40)))
    assert main(["verify", "--before", sick, "--after", short]) == 3
    assert capsys.readouterr().out.startswith("OPEN  Not judged: rate of the leak; about 4 min would be enough")


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--before", "/nowhere", "--after", "/nowhere"], 3, "there is no recording at /nowhere"),
        (["--before", "noon..12:10", "--after", "REC"], 64, "'noon' is not a moment"),
        (["--dir", "REC", "--before", "+900s..+950s", "--after", "REC"], 3, "is not in the recording"),
        (["--dir", "REC", "--before", "+90s..+20s", "--after", "REC"], 64, "ends before it begins"),
        (["--for", "3s"], 64, "--for must be between 15s and 1h"),
        (["--host", "/nowhere"], 3, "/nowhere is not the root of a node"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(argv: list[str], code: int, said: str, sick: str, capsys: CAPTURE) -> None:
    assert main(["verify", *(sick if word == "REC" else word for word in argv)]) == code
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_the_incident_of_the_recorders_folder_is_before_where_none_is_named(sick: str, capsys: CAPTURE, tmp_path: Path) -> None:
    from exhume.cli.main import command_parser
    from exhume.cli.verify_before import before

    args = command_parser("verify").parse_args(["--dir", sick])
    found = before(args, Thresholds())
    assert isinstance(found, Recording)
    assert len(found["cgroup_events"])
    assert "before is the incident of" in capsys.readouterr().err
    args = command_parser("verify").parse_args(["--dir", str(tmp_path)])
    assert before(args, Thresholds()) is None
    assert "the limits alone decide" in capsys.readouterr().err


@pytest.mark.ci
def test_of_a_long_recording_the_incident_is_taken(tmp_path: Path, cured: str, capsys: CAPTURE) -> None:
    long = write(tmp_path / "long", node(replace(SICK, seconds=1300)))
    assert main(["verify", "--before", long, "--after", cured]) == 0
    assert "the last incident is taken" in capsys.readouterr().err
    quiet = write(tmp_path / "quiet", node(replace(CURED, seconds=1300)))
    assert main(["verify", "--before", quiet, "--after", cured]) == 3
    assert "no incident in it" in capsys.readouterr().err


@pytest.mark.ci
def test_of_a_long_recording_the_end_is_after_whatever_was_before(tmp_path: Path, sick: str, capsys: CAPTURE) -> None:
    long = write(tmp_path / "long", node(replace(CURED, seconds=1500)))
    assert main(["verify", "--before", sick, "--after", long]) == 0
    printed = capsys.readouterr()
    assert f"of {long} the last 20 min are taken, 2025-04-07 04:31:40" in printed.err
    assert "20 min after" in printed.out
    made = node(replace(CURED, seconds=1500))
    for table in ("memcg", "cgroup_events"):
        for row in node(replace(SICK, seconds=250))[table].rows():
            made[table].add(*row.values())
    healed = write(tmp_path / "healed", made)
    assert main(["verify", "--before", sick, "--after", healed]) == 0, "the leak ended 50 s before what is taken"
    assert main(["verify", "--dir", healed, "--before", sick, "--after", "+0s..+250s"]) == 2


def told_later(made: Recording, seconds: int) -> Recording:
    """The same, so much later by the clock on the wall."""
    rows = list(made["anchors"].rows())
    del made.tables["anchors"]
    for row in rows:
        made["anchors"].add(*{**row, "real": row["real"] + seconds * 10**9}.values())
    return made


@pytest.fixture(scope="module")
def rebooted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Sick from 04:26:40 to 04:30:40; an hour later, after a reboot, it is well for five minutes."""
    path = tmp_path_factory.mktemp("rebooted") / "recording"
    write(path, node(SICK))
    return write(path, told_later(node(replace(CURED, boot="after")), 3600))


@pytest.mark.parametrize("day", ["", "2025-04-07T"])
def test_a_time_before_a_reboot_is_found_in_its_boot(rebooted: str, capsys: CAPTURE, day: str) -> None:
    argv = ["verify", "--dir", rebooted, "--after", f"{day}05:26:40..{day}05:31:40"]
    assert main([*argv, "--before", f"{day}04:26:40..{day}04:30:40"]) == 0
    printed = capsys.readouterr()
    assert "is of an earlier boot, 2025-04-07 04:26:40" in printed.err
    assert "before, and a reboot between them" in printed.out
    assert main([*argv, "--before", f"{day}05:00:00..{day}05:20:00"]) == 3
    assert "is not in the recording" in capsys.readouterr().err
    assert main([*argv, "--before", "+0s..+100s"]) == 0, "what is told from the begin is of the last boot"
    assert "earlier boot" not in capsys.readouterr().err


def test_of_a_recording_with_a_reboot_the_incident_is_taken_and_not_the_well_minutes_after_it(
    rebooted: str, cured: str, capsys: CAPTURE
) -> None:
    assert main(["verify", "--before", rebooted, "--after", cured]) == 0
    printed = capsys.readouterr()
    assert "the last incident is taken, 2025-04-07 04:2" in printed.err
    assert re.search(r"passed +rate of the leak +6", printed.out)
    assert main(["verify", "--before", rebooted, "--after", rebooted]) == 0, "after is the last boot"
    assert "5 min after" in capsys.readouterr().out


def test_a_before_of_another_node_is_said(tmp_path: Path, cured: str, capsys: CAPTURE) -> None:
    other = node(SICK)
    object.__setattr__(other.node, "hostname", "other|host")
    written = write(tmp_path / "other", other)
    assert main(["verify", "--before", written, "--after", cured]) == 0
    printed = capsys.readouterr()
    assert "--before is of other|host, and --after is gpu-host: two nodes are compared" in printed.err
    assert "before on another node, other|host" in printed.out
    assert main(["verify", "--before", written, "--after", cured, "--markdown"]) == 0
    assert "before on another node, other\\|host." in capsys.readouterr().out
    assert main(["verify", "--before", written, "--after", written]) == 2
    assert "two nodes" not in capsys.readouterr().err


def test_the_recording_of_another_root_is_read_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURE) -> None:
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/stat").write_text("cpu 0 0 0 0 0 0 0 0 0 0\n")
    (tmp_path / "proc/sys/kernel/hostname").write_text("elsewhere\n")
    (tmp_path / "var/lib/exhume").mkdir(parents=True)
    write(tmp_path / "var/lib/exhume/recording", node(SICK))
    monkeypatch.setattr(proof_live, "watch", lambda *_: proof_live.Watched(node(CURED), "", stopped=False))
    assert main(["verify", "--host", str(tmp_path), "--for", "15s"]) == 0
    printed = capsys.readouterr()
    assert "before is the incident of 2025-04-07" in printed.err
    assert "--before is of gpu-host, and this is elsewhere" in printed.err
    assert main(["checklist", "--host", str(tmp_path), "--json"]) == 1
    steps = {step["id"]: step for step in json.loads(capsys.readouterr().out)["steps"]}
    assert steps["correlate"]["state"] == "done"


HOSTILE = "/a|b\x1b[31m`<img src=x>` [x](http://y) \u202e*_\\"


def test_hostile_names_are_harmless_in_every_form() -> None:
    proof = prove(node(SICK), node(CURED), Thresholds())
    made = replace(proof, criteria=tuple(replace(one, because=HOSTILE) for one in proof.criteria), hostname=HOSTILE)
    assert max(map(len, render(made, Style(sys.stdout, False), 50).splitlines())) <= 50
    for text in (markdown(made), render(made, Style(sys.stdout, False), 80)):
        assert "\x1b" not in text
        assert "\u202e" not in text
    rows = [line for line in markdown(made).splitlines() if line.startswith("| ")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 2, "two tables, each with its columns"
    assert "<img" not in markdown(made).replace("\\<", "")
    assert escaped("a|b") == "a\\|b"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "?"), (0.0, "0"), (6.04, "6.0"), (0.0123, "0.012"), (68_440, "68,440"), (12_345.6, "12,345.6")]
)
def test_numbers_are_as_exact_as_they_need_be(value: float | None, text: str) -> None:
    assert number(value) == text


def test_nothing_is_ever_a_hundred_per_cent_sure() -> None:
    assert sure(1.0) == sure(0.99999) == "99.9 %"
    assert sure(0.95) == "95 %"


def test_progress_fits_the_terminal() -> None:
    criterion = Criterion("leak-rate", "cause", "too-little", 6.0, 0.0, "zombies a minute", 1.0, None, "x" * 300)
    lines = progress_lines([criterion], 0.5, 60)
    assert len(lines) == 2
    assert max(map(len, lines)) < 60


@pytest.mark.ci
@pytest.mark.skipif(os.geteuid() != 0, reason="the zombies of this node are counted by root")
def test_this_node_is_looked_at_and_the_board_is_cleared(tmp_path: Path) -> None:
    """On a terminal the causes are drawn while it lasts, and gone when the proof is printed; JSON is whole all the same."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "exhume", "verify", "--for", "16s", "--json", "-o", str(tmp_path / "proof.json")]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=follower, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(follower)
        drawn = b""
        while chunk := _read(leader):
            drawn += chunk
    os.close(leader)
    proof = from_json(json.loads((tmp_path / "proof.json").read_text()))
    assert process.returncode == {True: 0, False: 2, None: 3}[proof.passed]
    assert proof.after.seconds > 5
    assert b"rate of the leak" in drawn
    assert drawn.rstrip().endswith(b"\x1b[J")


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:  # EIO: nobody has the other side open any more
        return b""


def test_a_proof_is_kept_where_the_node_has_a_place_for_it(tmp_path: Path) -> None:
    proof = prove(None, node(CURED), Thresholds())
    kept = proof_gathered.keep(proof, str(tmp_path))
    assert from_json(json.loads(Path(kept).read_text())) == proof
    assert os.listdir(tmp_path) == ["proof.json"]
    assert proof_gathered.keep(proof, str(tmp_path / "nowhere")) == ""


WITHOUT = """
import sys
sys.modules["pyarrow"] = None
from exhume.cli.main import main
from exhume.remedy import proof_gathered, proof_live
from tests.remedy.made_proof import Made, node
proof_gathered.keep = proof_gathered.keep_with = lambda *_: ""
proof_live.watch = lambda *_: proof_live.Watched(node(Made(2, seconds=300, leak=0, walk_s=0, zombies=60, cpus=5)), "", False)
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.ci
@pytest.mark.parametrize(("argv", "said"), [(["verify", "--for", "15s"], "PASSED"), (["checklist"], "finish|know the cgroup")])
def test_it_works_where_nothing_that_reads_recordings_is_installed(argv: list[str], said: str, tmp_path: Path) -> None:
    where = ["--dir", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", WITHOUT, *argv, *where], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done
    assert re.search(said, done.stdout)
