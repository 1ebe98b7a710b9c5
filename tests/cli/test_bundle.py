"""exhume bundle: what somebody else opens says the same, and with pseudonyms nothing of whom it is about."""

import json
import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pyarrow.parquet
import pytest

from exhume.cli import bundle_text
from exhume.cli.main import main
from exhume.diagnosis.diagnose import diagnose, diagnose_folder
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.bundle import write_recording
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording, labels
from exhume.recording.schema import TABLES
from tests.incidents import drivers, quiet, rivals, zombies
from tests.incidents.recorded import BASE, SECOND
from tests.incidents.scene import Scene

SECRETS = ("falcon", "hunter2", "corp.example", "10.77.3.4", "fe80::77", "0a1b2c3d4e5f", "0a:1b:2c", "deadbeefcafe", "41e5d00d")


def recorded(path: Path, recording: Recording) -> str:
    write_recording(str(path), recording, {"hz": 49, "event": "cpu-clock", "files": "/home/falcon/perf.data"})
    return str(path)


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("copied") / "rec", quiet.two_seconds_of_a_copy().recording)


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> str:
    return recorded(tmp_path_factory.mktemp("troubled") / "rec", quiet.two_troubles().recording)


def unpacked(bundle: Path, into: Path) -> Path:
    into.mkdir(exist_ok=True)
    subprocess.run(["tar", "xzf", bundle, "-C", into], check=True)
    (top,) = into.iterdir()
    return top


def covered(top: Path) -> tuple[int, int]:
    """The window that was packed, by its cores: of cgroups and units there is more."""
    times = Folder(str(top / "recording")).load(tables=["cpu"])["cpu"].ints("time")
    return int(times.min()), int(times.max())


def with_secrets() -> Recording:
    """Every table has some, in every column that takes names, beside an incident."""
    told = drivers.driver_call().recording
    container = "deadbeefcafe" + "0123" * 13
    pod = "41e5d00d-0000-4000-8000-000000000001"
    path = f"/kubepods/pod{pod}/{container}"
    made: dict[str, dict[str, object]] = {
        "frames": {
            "id": 900,
            "name": "falcon::train(hunter2)",
            "module": "/opt/falcon/libhunter2.so",
            "space": "user",
            "offset": -1,
        },
        "stacks": {"id": 900, "class": "user", "frames": [900]},
        "threads": {
            "id": 900,
            "comm": "falcon-train",
            "process": "hunter2",
            "cgroup": path,
            "unit": "falcon.service",
            "pod": pod,
        },
        "samples": {"core": 3, "thread": 900, "stack": 900},
        "memcg": {"path": "/falcon.slice", "live": 3, "dying": 1, "total": 4, "method": "cgroup-stat", "scope": "node"},
        "memcg_walk": {
            "path": "/falcon.slice/*",
            "example": path,
            "home": "/falcon.slice",
            "zombies": 4,
            "image": "corp.example/falcon:1",
        },
        "cgroup_dirs": {"path": "/falcon.slice", "mount": "/mnt/hunter2", "example": "/falcon.slice/hunter2"},
        "cgroup_events": {"kind": "mkdir", "path": path, "comm": "falcon-init"},
        "events": {"kind": "hung-task", "subject": "falcon-train", "severity": "warning"},
        "latency": {"what": "runqueue", "stage": "wait", "device": "falcon0", "name": path, "worst_comm": "falcon-train"},
        "units": {
            "unit": "falcon@hunter2.service",
            "cgroup": "/system.slice/falcon@hunter2.service",
            "needed_by": "hunter2.service",
        },
        "processes": {"pid": 77, "comm": "falcon-train", "state": "D", "cgroup": path},
        "sources": {"name": "journal", "state": "off", "reason": "/home/falcon/hunter2: connection to 10.77.3.4 failed"},
        "counters": {"name": "interrupts", "labels": labels(cpu=1, device="falcon0-Tx-Rx-1", irq=90), "value": 3},
    }
    made["events"]["message"] = "falcon-train:77 on falcon01.corp.example (10.77.3.4, fe80::77): hunter2 0a:1b:2c:3d:4e:5f"
    made["events"]["fields"] = labels(comm="falcon-train", cgroup=path, stack="io_schedule;bpf_prog_1_falcon", note="hunter2")
    scene = Scene(cpus=told.node.cpus, seconds=1)
    scene.recording = told
    for table, row in made.items():
        scene.row(table, **{"time": BASE + SECOND, **row})
    told.count(BASE, "nic_stat", 3, labels(device="enx0a1b2c3d4e5f", stat="tx_timeout"))
    assert {*TABLES} - {*made} == {"cpu", "summary", "anchors"}
    return told


def test_the_recording_in_a_bundle_gets_the_same_verdict(tmp_path: Path) -> None:
    recording = recorded(tmp_path / "rec", zombies.reclaim_over_zombies().recording)
    file = tmp_path / "bundle.tar.gz"
    assert main(["bundle", recording, "-o", str(file)]) == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    top = unpacked(file, tmp_path / "out")
    report = json.loads((top / "report.json").read_text())
    inside = diagnose(Folder(str(top / "recording")).load(), Thresholds())
    outside = diagnose(Folder(recording).load(), Thresholds())
    assert report["verdict"]["cause"] == inside.verdict.cause == outside.verdict.cause is not None
    assert inside.verdict.subject == outside.verdict.subject
    assert "names" not in report
    assert [finding.summary for finding in inside.findings] == [finding.summary for finding in outside.findings]
    readme = (top / "README.txt").read_text()
    assert all(name.name in readme for name in top.iterdir() if name.name != "README.txt")
    assert {row["name"] for row in json.loads((top / "sources.json").read_text())} >= {"cpu", "memcg", "kernel-log"}
    versions = json.loads((top / "versions.json").read_text())
    assert versions["recorded on"]["kernel"] == "5.15.0-91-generic"
    assert versions["exhume"]
    assert "batch-runner" in (top / "report.md").read_text()
    assert "<html" in (top / "report.html").read_text()
    with tarfile.open(file) as archive:
        assert {(one.uid, one.gid, one.uname, one.gname) for one in archive.getmembers()} == {(0, 0, "", "")}


@pytest.mark.ci
def test_with_pseudonyms_nothing_of_the_names_is_in_any_file(tmp_path: Path) -> None:
    recording = recorded(tmp_path / "rec", with_secrets())
    file, mapping = tmp_path / "falcon-bundle.tar.gz", tmp_path / "names.json"
    assert main(["bundle", recording, "-o", str(file), "--pseudonyms", "--mapping", str(mapping)]) == 0
    top = unpacked(file, tmp_path / "out")
    looked = 0
    for path in sorted(top.rglob("*")):
        told = [str(path.relative_to(top.parent)).encode()]
        if path.is_file():
            told.append(path.read_bytes())
            if path.suffix == ".parquet":
                looked += 1
                table = pyarrow.parquet.read_table(path)
                told.append(json.dumps([str(table.schema), table.to_pylist()], default=str).encode())
        for secret in (*SECRETS, "gpu-host", "megatron"):
            assert not any(secret.encode() in part for part in told), (secret, path.name)
    assert looked >= 10
    kept = json.loads(mapping.read_text())
    assert "falcon-train" in kept.values()
    assert stat.S_IMODE(mapping.stat().st_mode) == 0o600
    report = json.loads((top / "report.json").read_text())
    assert kept[report["node"]["hostname"]] == "gpu-host"
    assert report["names"] == "pseudonyms"
    for name in ("README.txt", "report.md", "report.html", "report.json"):
        assert "pseudonyms" in (top / name).read_text(), name
    before = diagnose(Folder(recording).load(), Thresholds()).verdict
    assert (report["verdict"]["cause"], len(report["verdict"]["culprits"])) == (before.cause, len(before.culprits))


def test_two_bundles_have_different_pseudonyms(copied: str, tmp_path: Path) -> None:
    names = set()
    for number in range(2):
        file = tmp_path / f"{number}.tar.gz"
        assert main(["bundle", copied, "-o", str(file), "--pseudonyms", "--no-samples"]) == 0
        names.add(json.loads((unpacked(file, tmp_path / f"out{number}") / "report.json").read_text())["node"]["hostname"])
    assert len(names) == 2


def test_without_samples_there_are_none_and_the_readme_says_so(copied: str, tmp_path: Path) -> None:
    assert main(["bundle", copied, "-o", str(tmp_path / "b.tar.gz"), "--no-samples"]) == 0
    top = unpacked(tmp_path / "b.tar.gz", tmp_path / "out")
    folder = Folder(str(top / "recording"))
    assert (folder.count("samples"), len(folder.load()["frames"])) == (0, 0)
    assert folder.count("cpu") > 0
    assert "left out" in (top / "README.txt").read_text()


def test_a_bundle_overwrites_nothing_and_leaves_no_half_of_one(
    copied: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = tmp_path / "there.tar.gz"
    there.write_text("mine")
    assert main(["bundle", copied, "-o", str(there)]) == 2
    assert there.read_text() == "mine"
    assert "overwrites nothing" in capsys.readouterr().err
    assert main(["bundle", copied, "-o", str(tmp_path / "b"), "--pseudonyms", "--mapping", str(there)]) == 2

    def broken(*_: object) -> dict[str, bytes]:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(bundle_text, "files", broken)
    assert main(["bundle", copied, "-o", str(tmp_path / "c"), "--pseudonyms", "--mapping", str(tmp_path / "m")]) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.tar.gz"]


def test_the_window_is_at_most_ten_minutes_and_that_is_said(
    troubled: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", troubled, "-o", str(tmp_path / "a"), "--no-samples"]) == 0
    assert "longer than 10 min: its end is packed" in capsys.readouterr().err
    begin, end = covered(unpacked(tmp_path / "a", tmp_path / "out"))
    assert 590 * SECOND < end - begin <= 600 * SECOND
    assert main(["bundle", troubled, "-o", str(tmp_path / "b"), "--from", "+1m", "--to", "+20m"]) == 64
    assert "--limit" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(("window", "before", "after"), [(["--at", "+1905s"], 1904, 1906), (["--last"], 1900, 1922)])
def test_a_moment_or_the_last_incident_chooses_the_window(
    troubled: str, tmp_path: Path, window: list[str], before: int, after: int
) -> None:
    assert main(["bundle", troubled, *window, "-o", str(tmp_path / "a")]) == 0
    top = unpacked(tmp_path / "a", tmp_path / "out")
    begin, end = covered(top)
    assert begin < BASE + before * SECOND < BASE + after * SECOND < end
    assert end - begin < 300 * SECOND
    assert json.loads((top / "report.json").read_text())["verdict"]["cause"] == "printk-flood"
    assert diagnose_folder(Folder(str(top / "recording")), Thresholds()).verdict.cause == "printk-flood"


def test_what_was_known_before_the_window_is_packed_as_well(tmp_path: Path) -> None:
    """A walk that names the zombies is rare: the culprit of an incident may have been named minutes before it."""
    scene = Scene(cpus=8, seconds=600.0, hz=11, step=0.5)
    scene.memcgs(230, 52_000)
    scene.hold(5, 540.0, 547.5, "kubelet", 3021, zombies.ZOMBIE_READ, rivals.KUBELET)
    scene.interrupts({1: 5, 2: 3})
    scene.ena_reset(547.4, queue=1, age_ms=6700)
    home = "/system.slice/batch-runner.service"
    scene.leak(f"{home}/job-*", f"{home}/job-58213", home, 51_900, "batch-runner.service")
    told = scene.whole()
    early = Recording(told.node)
    for row in told["memcg_walk"].rows():
        early["memcg_walk"].add(*{**row, "time": BASE + 30 * SECOND}.values())
    told.tables["memcg_walk"] = early["memcg_walk"]
    recording = recorded(tmp_path / "rec", told)
    assert main(["bundle", recording, "--from", "+500s", "-o", str(tmp_path / "a")]) == 0
    top = unpacked(tmp_path / "a", tmp_path / "out")
    verdict = json.loads((top / "report.json").read_text())["verdict"]
    outside = diagnose_folder(Folder(recording), Thresholds(), BASE + 500 * SECOND).verdict
    assert (verdict["cause"], verdict["subject"]) == (outside.cause, outside.subject) == ("memcg-leak", "batch-runner.service")
    assert covered(top)[0] >= BASE + 499 * SECOND


@pytest.mark.parametrize("wrong", [["--mapping", "m"], ["--last", "--at", "+1s"], ["--at", "+1s", "--from", "+2s"]])
def test_what_cannot_be_meant_is_refused(
    copied: str, tmp_path: Path, wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bundle", copied, "-o", str(tmp_path / "b"), *wrong]) == 64
    assert capsys.readouterr().err.startswith("exhume: ")
    assert not (tmp_path / "b").exists()


def test_a_quiet_recording_has_no_last_incident(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recording = recorded(tmp_path / "rec", quiet.healthy_and_busy().recording)
    assert main(["bundle", recording, "--last", "-o", str(tmp_path / "b")]) == 3
    assert "no incident" in capsys.readouterr().err
