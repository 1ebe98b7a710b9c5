"""The agent as a service: what it serves, how it takes new settings, gives things up, and ends."""

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from exhume.host.children import leashed
from exhume.recording.folder import Folder
from tests.agent.agents import Agent, agent
from tests.recorders import children, exhume
from tests.waiting import wait_for

pytestmark = [pytest.mark.ci, pytest.mark.skipif(os.geteuid() != 0, reason="an agent with everything on needs root")]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until_gone(pid: int) -> bool:
    for _ in range(2400):
        if not alive(pid):
            return True
        time.sleep(0.05)
    return False


def hanging(tmp_path: Path) -> str:
    """A prelude: the commands that give verdicts never end, and everything is an incident at once."""
    return f"""
from exhume.recorder import verdicts
verdicts.Verdicts._command = property(lambda self: [{sys.executable!r}, "-c", "import time; time.sleep(600)"], lambda *_: None)
from exhume.recorder.trigger import Incident, Trigger
Trigger.add = lambda self, rows: ([Incident("oom", str(rows.window), *rows.window, "made")], [])
"""


def test_it_serves_health_readiness_and_metrics_and_ends_in_good_order(tmp_path: Path) -> None:
    with agent(tmp_path / "r") as it:
        it.ready()
        assert it.get("/-/healthy") == it.get("/healthz") == (200, "healthy\n")
        it.until(lambda: it.value("exhume_agent_cpu_seconds_total"))
        found = it.scrape()
        assert found["exhume_source_up", frozenset({("source", "cpu")})] == 1.0
        assert sum(value for (name, _), value in found.items() if name == "exhume_node_health") == 1.0
        assert found["exhume_agent_resident_memory_bytes", frozenset()] > 30 << 20
        assert it.end(signal.SIGTERM) == 0
    folder = Folder(str(tmp_path / "r"))
    assert all(segment.sealed for segment in folder.segments)
    assert folder.count("cpu") > 0
    assert folder.about["kernel_only"] is True
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o700


def hanging_children(pid: int) -> list[int]:
    """Children that have begun to hang; others come and go."""
    found = []
    for child in children(pid):
        with suppress(OSError):
            if b"time.sleep(600)" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found


def test_killed_it_leaves_no_child_behind(tmp_path: Path) -> None:
    with agent(tmp_path / "r", prelude=hanging(tmp_path)) as it:
        it.until(lambda: hanging_children(it.process.pid))
        (child,) = hanging_children(it.process.pid)
        assert it.end(signal.SIGKILL) == -signal.SIGKILL
        assert until_gone(child)


@pytest.mark.ci
def test_asked_to_end_it_does_not_wait_for_a_verdict_that_hangs_for_ever(tmp_path: Path) -> None:
    shorter = "import exhume.recorder.verdicts as v\nv.Verdicts.finish.__defaults__ = (1.0,)\n"
    with agent(tmp_path / "r", prelude=hanging(tmp_path) + shorter) as it:
        it.until(lambda: children(it.process.pid))
        (child,) = children(it.process.pid)
        assert it.end(signal.SIGTERM) == 0
        assert until_gone(child)


def test_a_child_on_the_leash_becomes_the_command_and_ends_with_the_thread_that_started_it() -> None:
    done = subprocess.run(leashed([sys.executable, "-c", "print('done')"]), capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"done\n")
    done = subprocess.run(leashed(["/nowhere/x"]), capture_output=True)
    assert (done.returncode, done.stderr) == (1, b"/nowhere/x cannot be run: No such file or directory\n")
    orphan = "import subprocess, sys\nfrom exhume.host.children import leashed\n"
    orphan += "print(subprocess.Popen(leashed(['sleep', '600'])).pid, flush=True)\ninput()\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", orphan], stdin=pipe, stdout=pipe, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        wait_for(lambda: Path(f"/proc/{child}/cmdline").read_bytes() == b"sleep\x00600\x00")
        assert alive(child)
        parent.kill()
    assert until_gone(child)


@pytest.mark.ci
def test_a_second_one_is_refused_in_a_sentence_and_so_is_a_port_that_is_taken(tmp_path: Path) -> None:
    with agent(tmp_path / "r") as it:
        it.ready()
        second = exhume("agent", "--dir", tmp_path / "r", "--listen", "127.0.0.1:0")
        assert second.returncode == 2
        assert second.stderr.decode().splitlines()[-1].startswith("exhume: another recorder writes into")
        port = it.url.rpartition(":")[2]
        third = exhume("agent", "--dir", tmp_path / "other", "--listen", f"127.0.0.1:{port}")
        assert third.returncode == 3
        assert f"nothing can listen at 127.0.0.1:{port}: Address already in use" in third.stderr.decode()
        assert not (tmp_path / "other").exists()
        assert it.get("/-/healthy")[0] == 200


def test_places_that_cannot_be_written_are_sentences(tmp_path: Path) -> None:
    done = exhume("agent", "--dir", tmp_path / "not" / "there", "--listen", "127.0.0.1:0")
    assert (done.returncode, b"make it first" in done.stderr) == (3, True)
    place = tmp_path / "readonly"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m", "exhume-test", place], check=True)
    try:
        done = exhume("agent", "--dir", place / "r", "--listen", "127.0.0.1:0")
    finally:
        subprocess.run(["umount", place], check=True)
    assert (done.returncode, b"cannot record into" in done.stderr, b"Traceback" in done.stderr) == (3, True, False)


def test_a_host_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    done = exhume("agent", "--dir", tmp_path / "r", "--host", tmp_path, "--listen", "127.0.0.1:0")
    assert (done.returncode, b"is not the root of a node" in done.stderr) == (64, True)


def test_settings_are_read_again_and_wrong_ones_change_nothing(tmp_path: Path) -> None:
    config = tmp_path / "exhume.toml"
    config.write_text("[agent]\nhz = 11\n")
    with agent(tmp_path / "r", "--config", str(config)) as it:
        it.ready()
        config.write_text('[agent]\nhz = 23\nkeep_s = 300\non = "oom"\nhost = "/mnt"\n')
        it.process.send_signal(signal.SIGHUP)
        it.until_said("the settings were read again")
        it.until_said("agent.host: changed, and that needs a restart of the agent")
        config.write_text("[agent]\nhz = 23000\n")
        it.process.send_signal(signal.SIGHUP)
        it.until_said("agent.hz must be below 1,000, not 23000; 49 and 97 are usual; the settings stay as they were")
        it.until(lambda: Folder(str(tmp_path / "r")).about.get("hz") == 23)
        assert it.get("/-/healthy")[0] == 200
        assert it.end(signal.SIGTERM) == 0
    folder = Folder(str(tmp_path / "r"))
    assert folder.about["keep_ns"] == 300 * 10**9
    whole(folder)


def whole(folder: Folder) -> None:
    """No stack, frame or thread has two meanings, and every sample has its stack."""
    loaded = folder.load(tables=("samples", "stacks", "frames", "threads"))
    stacks = loaded["stacks"].ints("id").tolist()
    assert len(stacks) == len(set(stacks))
    frames = loaded["frames"].ints("id").tolist()
    assert len(frames) == len(set(frames))
    assert {*loaded["samples"].ints("stack").tolist()} <= {*stacks}


SHORT = """
from exhume.agent import limits, service
limits.OVER_S, service.COST_EVERY_S = 2.0, 0.5
"""


@pytest.mark.ci
def test_over_its_limit_it_gives_up_one_thing_after_the_other_and_the_recording_goes_on(tmp_path: Path) -> None:
    tight = {"EXHUME_AGENT_CPU_LIMIT_RATIO": "0.0001", "EXHUME_AGENT_LATENCY": "1", "EXHUME_AGENT_USER_STACKS": "all"}
    with agent(tmp_path / "r", prelude=SHORT, environment=tight) as it:
        for what in ("user-stacks", "latency-windows", "most-samples", "verdicts", "samples"):
            it.until_said(f"{what} is given up")
        it.until_said("there is nothing left to give up")
        assert it.value("exhume_agent_stepped_down", what="samples") == 1.0
        it.until(lambda: it.value("exhume_source_up", source="samples") == 0.0)
        before = Folder(str(tmp_path / "r")).count("cpu")
        it.until(lambda: Folder(str(tmp_path / "r")).count("cpu") > before)
        assert it.end(signal.SIGTERM) == 0
    folder = Folder(str(tmp_path / "r"))
    assert len({Path(segment.path).parent for segment in folder.segments}) >= 4  # a chapter says how it was recorded
    whole(folder)


LINES = [
    "ena 0000:20:03.0 eth0: Keep alive watchdog timeout.",
    "ena 0000:20:03.0: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g",
]


def log(path: Path, number: int, lines: list[str]) -> None:
    """Lines as the kernel would say them now."""
    from exhume.kernel.clock import Clock

    with Clock() as clock, open(path, "a") as file:
        for i, line in enumerate(lines):
            file.write(f"4,{number + i},{clock.now() // 1000 + i},-;{line}\n")


def test_a_reset_is_counted_once_even_if_the_recorder_begins_anew_and_reads_the_log_again(tmp_path: Path) -> None:
    kmsg = tmp_path / "log" / "dev" / "kmsg"
    kmsg.parent.mkdir(parents=True)
    log(kmsg, 0, LINES)  # before it began
    with agent(tmp_path / "r", "--log-root", str(tmp_path / "log")) as it:
        it.ready()
        log(kmsg, 10, LINES)
        at = {"device": "eth0", "reason": "keep-alive"}
        it.until(lambda: it.value("exhume_nic_resets_total", **at) == 1.0)
        it.process.send_signal(signal.SIGHUP)
        it.until_said("the settings were read again")
        log(kmsg, 20, LINES)
        it.until(lambda: (it.value("exhume_nic_resets_total", **at) or 0.0) >= 2.0)
        it.until(lambda: it.value("exhume_agent_disk_bytes"))
        assert it.value("exhume_nic_resets_total", **at) == 2.0
        it.end(signal.SIGTERM)
    events = Folder(str(tmp_path / "r")).load(tables=("events",))["events"]
    assert sum(kind == "nic-reset-done" for kind in events.texts("kind")) == 3


def test_a_full_disk_is_told_and_gone_on_from(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "exhume-test", place], check=True)
    try:
        with agent(place / "r", environment={"EXHUME_AGENT_HZ": "499"}) as it:
            it.ready()
            with open(place / "filler", "wb", buffering=0) as filler, suppress(OSError):
                while True:
                    filler.write(b"x" * 65536)
            it.until_said("disk full")
            it.process.send_signal(signal.SIGHUP)  # to begin anew where nothing can be written
            it.until_said("the settings were read again")
            (place / "filler").unlink()
            before = Folder(str(place / "r")).window[1]
            it.until(lambda: Folder(str(place / "r")).window[1] > before + 10**9)
            it.until(lambda: it.value("exhume_agent_lost_total", what="rows, disk full"))
            assert it.get("/-/healthy")[0] == 200
            assert it.end(signal.SIGTERM) == 0
    finally:
        subprocess.run(["umount", place], check=True)


@pytest.mark.ci
def test_stopped_and_continued_it_is_unhealthy_for_a_moment_and_goes_on(tmp_path: Path) -> None:
    impatient = "from exhume.agent import service\nservice.STUCK_S = 2.5\n"
    with agent(tmp_path / "r", prelude=impatient) as it:
        it.ready()
        before = it.value("exhume_agent_cpu_seconds_total") or 0.0
        it.process.send_signal(signal.SIGSTOP)
        time.sleep(3)
        it.process.send_signal(signal.SIGCONT)
        it.until(lambda: it.get("/-/healthy")[0] == 200)
        it.until(lambda: (it.value("exhume_agent_cpu_seconds_total") or 0.0) > before)
        assert it.end(signal.SIGTERM) == 0


@pytest.mark.ci
def test_the_audit_is_told_as_numbers_or_why_there_is_none(tmp_path: Path) -> None:
    soon = "from exhume.agent import recurring\nrecurring.Recurring.__init__.__defaults__ = (0.0,)\n"
    with agent(tmp_path / "r", prelude=soon, environment={"EXHUME_AGENT_AUDIT_EVERY_H": "24"}) as it:
        began = it.value("exhume_audit_timestamp_seconds")
        assert began is not None
        it.until(lambda: it.value("exhume_audit_units", judgement="unknown") is not None or "no audit: " in it.text)
        if "no audit: " not in it.text:
            it.until(lambda: (it.value("exhume_audit_timestamp_seconds") or 0.0) > began)
        assert it.end(signal.SIGTERM) == 0


def test_an_agent_is_an_agent_without_samples(tmp_path: Path) -> None:
    it: Agent
    with agent(tmp_path / "r", environment={"EXHUME_AGENT_HZ": "0"}) as it:
        it.ready()
        it.until(lambda: it.value("exhume_source_up", source="samples") == 0.0)


def test_it_says_once_which_sources_are_off_and_why(tmp_path: Path) -> None:
    with agent(tmp_path / "r", environment={"EXHUME_AGENT_HZ": "0"}) as it:
        it.ready()
        it.until(lambda: (it.value("exhume_agent_batches_total") or 0) >= 12)  # they are noted again every ten seconds
        off = {
            row["name"]: row["reason"] for row in Folder(str(tmp_path / "r")).load()["sources"].rows() if row["state"] == "off"
        }
        assert off["samples"] == "not asked for"
        for name, reason in off.items():
            assert it.text.count(f"{name} is off: {reason}\n") == 1
        assert "cpu is off" not in it.text
        assert it.end(signal.SIGTERM) == 0
