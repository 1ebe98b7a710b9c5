"""From an incident to a receiver: real children, a real spool, a real receiver on loopback, and what happens when one fails."""

import errno
import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from exhume.agent.settings import Push
from exhume.agent.spool import Spool
from exhume.recording import files
from tests.agent.push_reading import otlp, pprof
from tests.agent.push_receiver import Answer, parcel, receiving
from tests.agent.pushers import Agent, impatient, pushing, spooled  # noqa: F401
from tests.render.made import BEGIN, REAL, SECOND, write

pytestmark = pytest.mark.usefixtures("impatient")


def test_an_incident_is_pushed_when_its_sequel_is_recorded(tmp_path: Path) -> None:
    write(tmp_path / "rec")
    with receiving() as receiver, pushing(tmp_path, Push(url=receiver.url, labels=("zone=b",))) as agent:
        agent.pusher.look(BEGIN + 6 * SECOND)
        agent.pusher.incident(BEGIN + 5 * SECOND)
        agent.pusher.look(BEGIN + 12 * SECOND)
        assert receiver.came == []
        agent.pusher.look(BEGIN + 36 * SECOND)
        (came,) = receiver.wait(1)
        agent.until(lambda: agent.counted("sent") == 1, "counted as sent")
        agent.until(lambda: agent.spool.noted() == "", "the note taken back")
        assert agent.spool.waiting() == []
    assert came.query["name"] == "exhume.incident{node=node-7,zone=b}"
    assert (came.query["from"], came.query["until"]) == (str(REAL // SECOND), str((REAL + 12 * SECOND) // SECOND))
    read = pprof(came.parts["profile"][1])
    assert read.stacks[("kubelet", "main", "read", "mem_cgroup_nr_lru_pages")] == 300
    assert {("unit", "kubelet.service"), ("unit", "ssh.service"), ("node", "node-7"), ("zone", "b")} <= read.labels
    assert agent.said == []


def test_a_continuous_profile_goes_out_every_so_often_without_overlap(tmp_path: Path) -> None:
    write(tmp_path / "rec")
    with receiving() as receiver, pushing(tmp_path, Push(url=receiver.url, form="otlp", every_s=4)) as agent:
        for second in (0, 2, 4, 6, 8):
            agent.pusher.look(BEGIN + second * SECOND)
        first, second_one = receiver.wait(2)
    found = [otlp(one.body) for one in (first, second_one)]
    assert [one.start_real for one in found] == [REAL, REAL + 4 * SECOND]
    assert [one.duration for one in found] == [4 * SECOND, 4 * SECOND]
    assert found[0].resource == {"service.name": "exhume", "host.name": "node-7"}
    kubelet = ("kubelet", "main", "read", "mem_cgroup_nr_lru_pages")
    assert [one.read.stacks.get(kubelet, 0) for one in found] == [0, 300]


@pytest.mark.ci
@pytest.mark.skipif(shutil.which("go") is None, reason="needs go")
def test_what_arrives_is_a_profile_for_gos_pprof(tmp_path: Path) -> None:
    write(tmp_path / "rec")
    with receiving() as receiver, pushing(tmp_path, Push(url=receiver.url, form="pprof", every_s=12)) as agent:
        agent.pusher.look(BEGIN)
        agent.pusher.look(BEGIN + 12 * SECOND)
        (came,) = receiver.wait(1)
    (tmp_path / "cpu.pb.gz").write_bytes(came.body)
    command = ["go", "tool", "pprof", "-top", "-sample_index=samples", "-tagfocus=unit=kubelet.service"]
    environment = {**os.environ, "GOTOOLCHAIN": "local", "PPROF_TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*command, str(tmp_path / "cpu.pb.gz")], capture_output=True, text=True, timeout=300, env=environment, check=True
    )
    assert "300" in done.stdout
    assert "mem_cgroup_nr_lru_pages" in done.stdout
    assert "sshd" not in done.stdout


def test_without_an_address_nothing_is_made(tmp_path: Path) -> None:
    with pushing(tmp_path, Push(every_s=1)) as agent:
        for second in range(5):
            agent.pusher.incident(BEGIN)
            agent.pusher.look(BEGIN + second * SECOND)
    assert not (tmp_path / "rec.spool").exists()


def test_an_agent_that_must_save_time_makes_no_profiles_and_says_so(tmp_path: Path) -> None:
    write(tmp_path / "rec")
    with receiving() as receiver, pushing(tmp_path, Push(url=receiver.url, every_s=1)) as agent:
        agent.pusher.look(BEGIN)
        for second in (2, 4):
            agent.pusher.look(BEGIN + second * SECOND, may_build=False)
        assert agent.said == ["no profiles are made while the agent has to save time"]


def test_what_waited_is_sent_by_the_next_agent_the_oldest_first(tmp_path: Path) -> None:
    spooled(tmp_path, 3, 1, 2)
    with receiving() as receiver, pushing(tmp_path, Push(url=receiver.url, form="pprof")) as agent:
        agent.pusher.look(BEGIN)
        assert [came.body for came in receiver.wait(3)] == [b"1", b"2", b"3"]
        agent.until(lambda: agent.counted("sent") == 3, "all counted")
        agent.until(lambda: agent.gathered.values["exhume_profiles_waiting"].get(()) == 0, "none waits")


def test_a_receiver_that_recovers_gets_it_once_it_says_yes(tmp_path: Path) -> None:
    (name,) = spooled(tmp_path, 1)
    with receiving(lambda _, before: Answer(500 if before < 3 else 200)) as receiver:
        with pushing(tmp_path, Push(url=receiver.url, form="pprof")) as agent:
            agent.pusher.look(BEGIN)
            came = receiver.wait(4)
            agent.until(lambda: agent.counted("sent") == 1, "sent")
        assert len(receiver.came) == 4
    assert {one.headers["idempotency-key"] for one in came} == {name.removesuffix(".push")}
    assert agent.said == ["profiles wait to be pushed: 500 Internal Server Error"]
    assert (agent.counted("failed"), agent.counted("dropped")) == (0, 0)


def test_a_receiver_that_asks_for_patience_gets_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float | None] = []

    def noting(attempt: int, after_s: float | None = None) -> float:
        waited.append(after_s)
        return 0.01

    monkeypatch.setattr("exhume.agent.push._wait_s", noting)
    spooled(tmp_path, 1)
    answers = [Answer(429, (("Retry-After", "17"),)), Answer(503), Answer(204)]
    busy = receiving(lambda _, before: answers[before])
    with busy as receiver, pushing(tmp_path, Push(url=receiver.url, form="pprof")) as agent:
        agent.pusher.look(BEGIN)
        agent.until(lambda: agent.counted("sent") == 1, "sent")
    assert waited == [17.0, None]


def test_what_is_refused_is_given_up_and_the_next_is_sent(tmp_path: Path) -> None:
    spooled(tmp_path, 1, 2)
    with receiving(lambda came, _: Answer(400 if came.body == b"1" else 200, body=b"no such series")) as receiver:
        with pushing(tmp_path, Push(url=receiver.url, form="pprof")) as agent:
            agent.pusher.look(BEGIN)
            agent.until(lambda: agent.counted("sent") == 1, "sent")
        assert [came.body for came in receiver.came] == [b"1", b"2"]
    assert (agent.counted("failed"), agent.spool.waiting()) == (1, [])
    assert agent.said == ["a profile was refused and is given up: 400 Bad Request: no such series"]


def test_one_that_the_receiver_stumbles_over_does_not_hold_up_the_others(tmp_path: Path) -> None:
    names = spooled(tmp_path, 1, 2, 3)
    stumbles = receiving(lambda came, _: Answer(500 if came.body == b"1" else 200))
    with stumbles as receiver, pushing(tmp_path, Push(url=receiver.url, form="pprof")) as agent:
        agent.pusher.look(BEGIN)
        agent.until(lambda: agent.counted("sent") == 2, "the others are sent")
    assert agent.spool.waiting() == names[:1]


def test_a_receiver_that_hangs_holds_up_neither_the_recorder_nor_the_making(tmp_path: Path) -> None:
    write(tmp_path / "rec")
    hold = threading.Event()
    with receiving(lambda *_: Answer(200 if hold.wait(30) else 500)) as receiver:
        with pushing(tmp_path, Push(url=receiver.url, every_s=2)) as agent:
            for second in (0, 2, 4):
                agent.pusher.look(BEGIN + second * SECOND)
            receiver.wait(1)
            agent.until(lambda: len(agent.spool.waiting()) == 2, "both are made while the first hangs")
            agent.pusher.close()
            assert len(agent.spool.waiting()) == 2, "what was not sent stays"
        hold.set()


def test_the_oldest_are_dropped_and_counted(tmp_path: Path) -> None:
    write(tmp_path / "rec")
    names = spooled(tmp_path, *range(-100, -97), size=400_000)
    away = receiving(lambda *_: Answer(503))
    with away as receiver, pushing(tmp_path, Push(url=receiver.url, every_s=2, spool_mib=1)) as agent:
        agent.pusher.look(BEGIN)
        agent.pusher.look(BEGIN + 2 * SECOND)
        agent.until(lambda: agent.counted("dropped") == 1, "one too many")
    assert agent.spool.waiting()[:2] == names[1:]
    assert len(agent.spool.waiting()) == 3
    assert "the oldest profiles that waited to be pushed were dropped: agent.push.spool_mib is full" in agent.said


def test_what_is_not_whole_or_of_another_kind_is_dropped(tmp_path: Path) -> None:
    torn, _ = spooled(tmp_path, 1, 2)
    file = tmp_path / "rec.spool" / torn
    file.write_bytes(file.read_bytes()[:-1])
    Spool(str(tmp_path / "rec.spool"), 1).add(parcel(3, b"3", kind="otlp"))
    with receiving() as receiver, pushing(tmp_path, Push(url=receiver.url, form="pprof")) as agent:
        agent.pusher.look(BEGIN)
        agent.until(lambda: agent.counted("dropped") == 2, "both dropped")
        agent.until(lambda: agent.counted("sent") == 1, "the whole one sent")
        assert [came.body for came in receiver.came] == [b"2"]


def test_settings_that_change_are_used_at_once(tmp_path: Path) -> None:
    spooled(tmp_path, 1)
    busy = receiving(lambda *_: Answer(503, (("Retry-After", "600"),)))
    with busy as away, receiving() as receiver, pushing(tmp_path, Push(url=away.url, form="pprof")) as agent:
        agent.pusher.look(BEGIN)
        agent.until(lambda: bool(agent.said), "it waits")
        agent.pusher.change(Push(url=receiver.url, form="pprof"))
        agent.pusher.look(BEGIN + SECOND)
        receiver.wait(1)


def _none_waits(agent: Agent) -> bool:
    return agent.spool.waiting() == [] and agent.gathered.values["exhume_profiles_waiting"] == {}


def test_what_waits_when_pushing_is_switched_off_is_dropped_and_no_longer_counted_as_waiting(tmp_path: Path) -> None:
    spooled(tmp_path, 1, 2)
    busy = receiving(lambda *_: Answer(503, (("Retry-After", "600"),)))
    with busy as away, pushing(tmp_path, Push(url=away.url, form="pprof")) as agent:
        agent.pusher.look(BEGIN)
        agent.pusher.incident(BEGIN)
        agent.pusher.look(BEGIN + SECOND)
        agent.until(lambda: bool(agent.said) and bool(agent.spool.noted()), "it waits")
        assert agent.gathered.values["exhume_profiles_waiting"][()] == 2.0
        agent.pusher.change(Push())
        agent.until(lambda: _none_waits(agent) and not agent.spool.noted(), "dropped")
        agent.until(lambda: agent.counted("dropped") == 2, "counted")
        agent.pusher.look(BEGIN + 60 * SECOND)
        assert agent.said[1:] == ["profiles that waited to be pushed were dropped: agent.push.url is not set"]


def test_what_an_agent_left_is_dropped_by_one_that_pushes_nowhere_until_it_is_told_where(tmp_path: Path) -> None:
    spooled(tmp_path, 1, 2)
    with receiving() as receiver, pushing(tmp_path, Push()) as agent:
        agent.spool.note("{}")
        agent.pusher.look(BEGIN)
        agent.until(lambda: _none_waits(agent) and not agent.spool.noted(), "dropped")
        agent.until(lambda: agent.counted("dropped") == 2, "counted")
        agent.spool.add(parcel(3, b"3"))
        agent.pusher.change(Push(url=receiver.url, form="pprof"))
        assert [came.body for came in receiver.wait(1)] == [b"3"]
        agent.until(lambda: agent.gathered.values["exhume_profiles_waiting"].get(()) == 0, "none waits")


def test_a_recording_that_cannot_be_read_is_told_once(tmp_path: Path) -> None:
    with receiving() as receiver, pushing(tmp_path, Push(url=receiver.url, every_s=1)) as agent:
        agent.pusher.look(BEGIN)
        agent.pusher.look(BEGIN + SECOND)
        agent.until(lambda: bool(agent.said), "a word")
    assert len(agent.said) == 1
    assert agent.said[0].startswith("no profile: ")


@pytest.mark.parametrize("after", ["0", "Wed, 21 Oct 2015 07:28:00 GMT"])
def test_a_receiver_that_asks_for_no_patience_is_not_asked_as_fast_as_it_answers(tmp_path: Path, after: str) -> None:
    spooled(tmp_path, 1)
    busy = receiving(lambda *_: Answer(503, (("Retry-After", after),)))
    with busy as receiver, pushing(tmp_path, Push(url=receiver.url, form="pprof")) as agent:
        agent.pusher.look(BEGIN)
        receiver.wait(1)
        time.sleep(0.5)
        assert len(receiver.came) < 10


def test_a_spool_that_cannot_be_read_for_a_while_loses_nothing_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = spooled(tmp_path, 1, 2)
    failing = {"scandir": 2, "read": 3}
    scandir, read = os.scandir, files.read

    def fails(what: str) -> None:
        if failing[what]:
            failing[what] -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def scan(path: str) -> Any:
        if str(path).endswith("rec.spool"):
            fails("scandir")
        return scandir(path)

    def reads(name: str, at: int | None = None) -> bytes | None:
        if name in names:
            fails("read")
        return read(name, at)

    monkeypatch.setattr(os, "scandir", scan)
    monkeypatch.setattr(files, "read", reads)
    with receiving() as receiver, pushing(tmp_path, Push(url=receiver.url, form="pprof")) as agent:
        agent.pusher.look(BEGIN)
        agent.until(lambda: agent.counted("sent") == 2, "both are sent")
        assert {came.body for came in receiver.came} == {b"1", b"2"}
    assert agent.counted("dropped") == 0
    assert "profiles wait to be pushed: Too many open files" in agent.said


def test_what_was_dropped_to_make_room_while_it_was_its_turn_is_not_counted_again(tmp_path: Path) -> None:
    with pushing(tmp_path, Push(url="http://127.0.0.1:9", form="pprof")) as agent:
        assert agent.pusher._send("00000000000000000001-1.push") is None
    assert (agent.counted("dropped"), agent.said) == (0, [])


def test_what_cannot_be_removed_is_not_sent_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spooled(tmp_path, 1)

    def stays(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with receiving() as receiver, pushing(tmp_path, Push(url=receiver.url, form="pprof")) as agent:
        monkeypatch.setattr(os, "unlink", stays)
        agent.pusher.look(BEGIN)
        agent.until(lambda: bool(agent.said), "a word")
        time.sleep(0.3)
        assert len(receiver.came) == 1
    assert agent.said == [f"profiles that are done with stay in {tmp_path}/rec.spool: Read-only file system"]
    assert agent.counted("sent") == 1
