"""An agent that is killed while it makes or sends profiles: nothing is lost, nothing stays behind."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exhume.agent.settings import Push
from exhume.agent.spool import Spool
from tests.agent.push_receiver import Answer, Came, receiving
from tests.agent.pushers import BOOT, impatient, pushing, spooled  # noqa: F401
from tests.render.made import BEGIN, SECOND, write
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("impatient")

KILLED = """\
    import sys, time
    from exhume.agent.gathering import Gathered
    from exhume.agent import push
    from exhume.agent.settings import Push, Settings

    if sys.argv[1] == "slowly":  # a child that takes a minute for each profile
        run, push.Run = push.Run, lambda command, *rest: run(["sleep", "60"], *rest)
    folder, url, looks = sys.argv[2], sys.argv[3], [int(each) for each in sys.argv[4:]]
    settings = Settings(dir=folder, host="/nowhere", push=Push(url=url, form="pprof"))
    pusher = push.Pusher(settings, "boot-1", Gathered(4), print)
    pusher.look(looks[0])
    pusher.incident(looks[0])
    for look in looks[1:]:
        pusher.look(look)
    time.sleep(60)
"""


@contextmanager
def killed_agent(tmp_path: Path, url: str, *looks: int, how: str = "as ever") -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-c", textwrap.dedent(KILLED), how, str(tmp_path / "rec"), url, *map(str, looks)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_kill_in_the_middle_of_a_push_loses_nothing(tmp_path: Path) -> None:
    """At least once: what the receiver had, and the agent did not hear that it had, comes again under the same key."""
    names = spooled(tmp_path, 1, 2, 3)
    hold = threading.Event()

    def second_hangs(came: Came, before: int) -> Answer:
        return Answer(200 if before != 1 or hold.wait(120) else 500)

    with receiving(second_hangs) as receiver:
        with killed_agent(tmp_path, receiver.url, BEGIN) as process:
            receiver.wait(2)
            process.send_signal(signal.SIGKILL)
            process.wait(120)
        hold.set()
        assert Spool(str(tmp_path / "rec.spool"), 1).waiting() == names[1:]
        with pushing(tmp_path, Push(url=receiver.url, form="pprof")) as agent:
            agent.pusher.look(BEGIN)
            agent.until(lambda: agent.counted("sent") == 2, "the rest is sent")
        assert [came.body for came in receiver.came] == [b"1", b"2", b"2", b"3"]
        assert receiver.came[1].headers["idempotency-key"] == receiver.came[2].headers["idempotency-key"]


def test_an_incident_that_waited_when_the_agent_was_killed_is_pushed_by_the_next(tmp_path: Path) -> None:
    write(tmp_path / "rec")
    with receiving() as receiver:
        with killed_agent(tmp_path, receiver.url, BEGIN + 6 * SECOND, BEGIN + 7 * SECOND) as process:
            spool = Spool(str(tmp_path / "rec.spool"), 1)
            wait_for(spool.noted)
            process.send_signal(signal.SIGKILL)
            process.wait(120)
        assert json.loads(spool.noted())["boot"] == BOOT
        assert receiver.came == []
        with pushing(tmp_path, Push(url=receiver.url)) as agent:
            agent.pusher.look(BEGIN + 60 * SECOND)
            (came,) = receiver.wait(1)
            agent.until(lambda: spool.noted() == "", "the note taken back")
    assert came.query["name"] == "exhume.incident{node=node-7}"


def test_a_note_of_another_boot_or_of_nobody_is_left_alone(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path / "rec.spool"), 1)
    for note in ('{"boot": "boot-0", "begin": 1, "due": 2}', '{"boot": "boot-1", "begin": "x"', "[1]", '{"boot": "boot-1"}'):
        spool.prepare()
        spool.note(note)
        with receiving() as receiver, pushing(tmp_path, Push(url=receiver.url)) as agent:
            agent.pusher.look(BEGIN)
            assert agent.pusher._windows.pending is None


def test_children_that_make_profiles_die_with_the_agent(tmp_path: Path) -> None:
    looks = (BEGIN, BEGIN + 40 * SECOND)
    with receiving() as receiver, killed_agent(tmp_path, receiver.url, *looks, how="slowly") as process:
        children = Path(f"/proc/{process.pid}/task")
        found: list[int] = []
        for _ in range(60_000):
            found = [int(each) for task in children.iterdir() for each in (task / "children").read_text().split()]
            if found:
                break
            time.sleep(0.002)
        assert found, "no child was seen"
        process.send_signal(signal.SIGKILL)
        process.wait(120)
        wait_for(lambda: not any(_alive(pid) for pid in found))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
