"""Where incidents are made: only where it is allowed, and nothing stays, however a run ends."""

import json
import os
import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from exhume.cli.main import main
from exhume.errors import Refused
from exhume.lab import measure, network, work, workshop
from exhume.lab.cgroup import Cgroup, hierarchies
from exhume.lab.scenarios import starvation
from tests.lab.runs import left, needs_root, patiently, play, run

SEED = 7
SCALE = 300
LONGEST_S = 2.5
"""A run of that scale is whole after about half of it."""


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")


@pytest.fixture
def link() -> None:
    (scenario,) = starvation.SCENARIOS
    if why := scenario.missing():
        pytest.skip(why)


def dead_pid() -> int:
    with subprocess.Popen(["true"]) as process:
        process.wait()
    return process.pid


# Whether it begins


@pytest.mark.parametrize("value", [None, "", "0", "yes"])
def test_it_refuses_without_the_switch(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(workshop.SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(workshop.SWITCH, value)
    before = workshop.found()
    with pytest.raises(Refused, match="set EXHUME_LAB=1"):
        workshop.Lab()
    assert workshop.found() <= before


@pytest.mark.usefixtures("allowed")
def test_it_refuses_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Refused, match="takes root"):
        workshop.Lab()


# What it is called


@needs_root
@pytest.mark.usefixtures("allowed")
def test_everything_of_a_run_has_its_name() -> None:
    with workshop.Lab() as lab:
        assert lab.name == f"exhume-lab-{lab.id}"
        assert lab.id.startswith(f"{os.getpid()}-")
        assert lab.home == Path("/run/exhume-lab") / lab.id
        assert lab.file("a", memory=True) == Path(f"/dev/shm/{lab.name}-a")
        assert lab.file("a", memory=False) == Path(f"/var/tmp/{lab.name}-a")
        assert lab.cgroup("memory", "docker").path == f"/{lab.name}/docker"
        assert lab.kmsg.read_text() == ""
        assert lab.id in workshop.found()
    assert left(lab.id) == []


@needs_root
@pytest.mark.usefixtures("allowed")
def test_two_runs_are_told_apart() -> None:
    with workshop.Lab() as one, workshop.Lab() as other:
        assert one.name != other.name
        assert {one.id, other.id} <= workshop.found()
        one.cgroup("memory", "docker")
        other.cgroup("memory", "docker")
        workshop.remove(one.id)
        assert left(one.id) == []
        assert left(other.id) != []


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("exhume-lab-12-00ff00", "12-00ff00"),
        ("exhume-lab-12-00ff00-pages", "12-00ff00"),
        ("exhume-lab-12-00ff00a", None),
        ("exhume-lab-x-00ff00", None),
        ("exhume-lab-12", None),
        ("exhume-lab", None),
        ("my-exhume-lab-12-00ff00", None),
        ("exhume-test-12-00ff00", None),
    ],
)
def test_only_names_of_runs_are_taken_for_one(
    name: str, run: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).touch()
    monkeypatch.setattr(workshop, "FILES", (tmp_path,))
    monkeypatch.setattr(workshop, "RUNS", tmp_path / "none")
    monkeypatch.setattr(workshop, "_NETWORKS", tmp_path / "none")
    monkeypatch.setattr(workshop, "hierarchies", tuple)
    assert workshop.found() == ({run} if run else set())


# How it ends


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Places of our own for everything but cgroups and networks."""
    monkeypatch.setattr(workshop, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(workshop, "FILES", (tmp_path / "memory", tmp_path / "disk"))
    monkeypatch.setattr(workshop, "_NETWORKS", tmp_path / "none")
    monkeypatch.setattr(workshop, "hierarchies", tuple)
    for name in ("runs", "memory", "disk"):
        (tmp_path / name).mkdir()
    return tmp_path / "runs"


def test_files_of_a_run_that_is_over_are_removed_and_no_others(runs: Path) -> None:
    gone = f"{dead_pid()}-00ff00"
    ours = [runs.parent / place / f"exhume-lab-{gone}{rest}" for place in ("memory", "disk") for rest in ("-a", "-b", "")]
    others = [runs.parent / "disk" / name for name in (f"exhume-lab-{gone}0", f"exhume-labs-{gone}", "something")]
    for file in (*ours, *others):
        file.touch()
    assert workshop.clean() == [gone]
    assert not any(file.exists() for file in ours)
    assert all(file.exists() for file in others)
    assert workshop.clean() == []


@pytest.mark.parametrize("owner", [None, "", "12", "x y z", "1 1 no-such-boot"])
def test_a_run_without_a_living_owner_is_removed(runs: Path, owner: str | None) -> None:
    gone = f"{dead_pid()}-00ff00"
    (runs / gone / "dev").mkdir(parents=True)
    if owner is not None:
        (runs / gone / "owner").write_text(owner)
    assert workshop.clean() == [gone]
    assert not runs.exists()


def test_a_process_that_has_the_number_of_one_that_is_gone_owns_nothing(runs: Path) -> None:
    pid, began, boot = workshop._identity(os.getpid()).split()
    name = f"{pid}-00ff00"
    (runs / name).mkdir()
    (runs / name / "owner").write_text(f"{pid} {int(began) - 1} {boot}")
    assert workshop.clean() == [name]


def test_a_living_owners_run_is_left_alone(runs: Path) -> None:
    name = f"{os.getpid()}-00ff00"
    (runs / name).mkdir()
    (runs / name / "owner").write_text(workshop._identity(os.getpid()))
    (runs.parent / "disk" / f"exhume-lab-{name}-a").touch()
    assert workshop.clean() == []
    assert (runs.parent / "disk" / f"exhume-lab-{name}-a").exists()


@pytest.mark.parametrize("owner", [None, ""])
def test_a_run_that_just_begins_and_has_not_said_whose_it_is_is_left_alone(runs: Path, owner: str | None) -> None:
    name = f"{os.getpid()}-00ff00"
    (runs / name).mkdir()
    if owner is not None:
        (runs / name / "owner").write_text(owner)
    assert workshop.clean() == []
    os.utime(runs / name, (0, 0))
    assert workshop.clean() == [name]


@needs_root
@pytest.mark.usefixtures("allowed")
def test_a_run_that_fails_leaves_nothing() -> None:
    lab = workshop.Lab()
    process = lab.work("echo", 0, into=lab.cgroup("memory", "docker"))
    lab.file("pages", memory=True).write_bytes(b"x")
    with pytest.raises(RuntimeError, match="as it happens"), lab:
        raise RuntimeError("as it happens")
    assert process.poll() is not None
    assert left(lab.id) == []


@needs_root
@pytest.mark.usefixtures("allowed", "link")
def test_clean_and_the_next_run_leave_a_living_run_of_another_process_alone() -> None:
    with run("starvation", "zombie-starvation", SCALE) as other:
        name = other.line()
        assert other.line() == "under way"
        before = left(name)
        assert patiently(lambda: {"kubelet", "lab-echo", "lab-ping"} <= set(other.programs()))
        assert len(before) >= 4  # its directory, its cgroup, two networks, a file
        assert name not in workshop.clean()
        with workshop.Lab() as lab:
            assert lab.id != name
        assert set(before) <= set(left(name))
        assert {"kubelet", "lab-echo", "lab-ping"} <= set(other.programs())
        other.kill()
        assert name in workshop.clean()
        assert left(name) == []


def killed(count: int, seed: int) -> None:
    """Runs that are killed at random moments leave nothing that is not removed: no program, no file, no cgroup, no network."""
    moments = random.Random(seed)
    names = set()
    for number in range(count):
        with run("starvation", "zombie-starvation", SCALE) as it:
            with suppress(subprocess.TimeoutExpired):
                it.process.wait(moments.uniform(0.05, LONGEST_S))
            assert it.process.poll() is None, "it ended by itself"
            it.kill()
            assert patiently(lambda it=it: not it.programs()), it.programs()  # type: ignore[misc]
            names.add(f"{it.process.pid}-")
            _clean(by_command=number % 10 == 0)
            assert left(f"{it.process.pid}-") == []
    assert not [name for name in workshop.found() if name.startswith(tuple(names))]
    assert patiently(lambda: not _pollers()), "a NAPI thread of a link that is gone"


def _clean(by_command: bool) -> None:
    if by_command:
        subprocess.run([sys.executable, "-m", "exhume", "lab", "clean"], check=True, capture_output=True)
    else:
        workshop.clean()


def _pollers() -> list[bytes]:
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdecimal() and (comm := (entry / "comm").read_bytes()).startswith(b"napi/lab1-"):
                found.append(comm)
    return found


@needs_root
@pytest.mark.ci
@pytest.mark.usefixtures("link")
def test_a_run_that_is_killed_at_any_moment_leaves_nothing_that_is_not_removed() -> None:
    killed(20, SEED)


@pytest.mark.long
@needs_root
@pytest.mark.usefixtures("link")
def test_fifty_runs_that_are_killed_leave_nothing_that_is_not_removed() -> None:
    killed(50, SEED + 1)


@needs_root
@pytest.mark.usefixtures("allowed", "link")
def test_the_nodes_own_cgroups_and_log_are_as_before() -> None:
    (scenario,) = starvation.SCENARIOS
    groups, settings = _groups(), _settings()
    log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        os.lseek(log, 0, os.SEEK_END)
        truth = play(scenario, 3, SCALE)
        said = _lines(log)
    finally:
        os.close(log)
    assert truth["measured"]["zombies"] > 0
    assert _groups() == groups
    assert _settings() == settings
    assert [line for line in said if "ena " in line or "lab" in line] == []


def _groups() -> dict[str, str]:
    """Where this process is, and the first one."""
    return {pid: Path(f"/proc/{pid}/cgroup").read_text() for pid in ("self", "1")}


def _settings() -> dict[str, str]:
    """What is set at the top of each hierarchy and in the cgroups below it, but for ours."""
    wanted = ("cgroup.subtree_control", "memory.limit_in_bytes", "memory.swappiness", "memory.use_hierarchy", "cpu.shares",
              "cpu.cfs_quota_us", "memory.max", "memory.high", "cpu.max", "notify_on_release")  # fmt: skip
    found = {}
    for hierarchy in hierarchies():
        places = [Path(hierarchy.path)]
        places += [entry for entry in places[0].iterdir() if entry.is_dir() and not entry.name.startswith("exhume-")]
        for place in places:
            for name in wanted:
                with suppress(OSError):
                    found[f"{place}/{name}"] = (place / name).read_text()
    for name in (
        "kernel/sched_rt_runtime_us",
        "kernel/sched_rt_period_us",
        "kernel/printk",
        "kernel/printk_devkmsg",
        "vm/swappiness",
    ):
        found[name] = Path("/proc/sys", name).read_text()
    return found


def _lines(log: int) -> list[str]:
    found = []
    with suppress(BlockingIOError):
        while True:
            found.append(os.read(log, 8192).decode(errors="backslashreplace"))
    return found


# Programs of a run


def odd_name() -> "subprocess.Popen[bytes]":
    """A process whose name is no text."""
    code = "import ctypes, sys; ctypes.CDLL(None).prctl(15, bytes([255, 254]), 0, 0, 0); print(flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_names_that_are_no_text_do_no_harm() -> None:
    with odd_name() as odd:
        assert Path(f"/proc/{odd.pid}/comm").read_bytes() == b"\xff\xfe\n"
        assert workshop._identity(odd.pid).startswith(f"{odd.pid} ")
        assert odd.pid not in network._pollers()
        assert odd.stdin is not None
        odd.stdin.close()


def test_a_program_whose_run_was_killed_before_it_could_ask_does_not_begin() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), work.PARENT: str(dead_pid())}
    command = [sys.executable, "-m", "exhume.lab.work", "echo", "0"]
    done = subprocess.run(command, env=environment, input="go\n", capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")


@needs_root
@pytest.mark.usefixtures("allowed")
def test_pages_of_files_that_outlive_a_run_make_no_zombies_of_its_cgroups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def let_go(group: Cgroup) -> None:
        if "memory" in group.hierarchy.controllers:
            held.append(patiently(lambda: measure.zombies_below(group) >= 45))
            really(group)
            held.append(patiently(lambda: measure.zombies_below(group) <= 5))

    really = Cgroup.let_go
    monkeypatch.setattr(Cgroup, "let_go", let_go)
    with workshop.Lab() as lab:
        lab.cgroup("memory", "docker").hand_down("memory")
        for number in range(50):
            group, file = lab.cgroup("memory", "docker", str(number)), tmp_path / str(number)
            script = f"echo $$ > {group.directory}/cgroup.procs; echo x > {file}; sync {file}"
            subprocess.run(["sh", "-c", script], check=True)
            os.rmdir(group.directory)
    assert held == [True, True]


# The command


def test_list_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list"]) == 0
    text = capsys.readouterr().out
    for name in ("zombie-starvation", "zombies-harmless", "dir-leak", "two-culprits", "crash-loop-no-leak"):
        assert name in text


def test_list_for_machines_has_the_truth_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", "list", "--json"]) == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert listed["zombie-starvation"]["truth"]["cause"] == "memcg-leak"
    assert listed["two-culprits"]["truth"]["lesser"] == ["RUN/kubepods/burstable", "log-shipper"]
    assert listed["zombies-harmless"]["truth"]["health"] == ["warning"]
    for each in listed.values():
        assert each["summary"]
        assert len(each["story"]) > len(each["summary"])


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["run"], "which one?"),
        (["run", "zombie-starvatoin"], "did you mean zombie-starvation?"),
        (["run", "zzz"], "there is no scenario 'zzz'; exhume lab list has them"),
        (["run", "zombie-starvation", "--for", "1s"], "--for must be between 5s and 10m"),
        (["run", "zombie-starvation", "--scale", "1"], "--scale must be between 100 and 60000"),
        (["list", "zombie-starvation"], "exhume lab list takes no name"),
        (["clean", "12-00ff00"], "exhume lab clean takes no name"),
    ],
)
@pytest.mark.usefixtures("allowed")
def test_wrong_usage_is_a_sentence_and_64(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *argv]) == 64
    assert says in capsys.readouterr().err


def test_run_without_the_switch_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(workshop.SWITCH, raising=False)
    assert main(["lab", "run", "zombie-starvation"]) == 2
    assert "set EXHUME_LAB=1" in capsys.readouterr().err


@needs_root
def test_clean_says_what_it_removed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = f"{dead_pid()}-00ff00"
    (runs / gone).mkdir()
    assert main(["lab", "clean"]) == 0
    assert capsys.readouterr().out == f"removed what was left of {gone}\n"
    assert main(["lab", "clean"]) == 0
    assert capsys.readouterr().out == "nothing was left behind\n"
    (runs / gone).mkdir(parents=True)
    assert main(["lab", "clean", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": [gone]}
