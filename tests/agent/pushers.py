"""A pusher as the service has one, for tests: what it said, what it counted, what waits."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exhume.agent.gathering import Gathered
from exhume.agent.push import Pusher
from exhume.agent.push_send import Outcome, Sender, request
from exhume.agent.settings import Push, Settings
from exhume.agent.spool import Spool
from tests.agent.push_receiver import parcel

BOOT = "boot-1"
IDENTITY = "01760000060000000000-1"
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are as short as a test can stand; that they grow is tested by itself."""
    monkeypatch.setattr("exhume.agent.push.FIRST_WAIT_S", 0.02)
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Agent:
    """A pusher as the service has it, and what it said and counted."""

    def __init__(self, tmp_path: Path, push: Push, sender: Sender | None = None) -> None:
        self.said: list[str] = []
        self.gathered = Gathered(4)
        settings = Settings(dir=str(tmp_path / "rec"), host=str(tmp_path), push=push)
        self.pusher = Pusher(settings, BOOT, self.gathered, self.said.append, sender)
        self.spool = Spool(str(tmp_path / "rec.spool"), push.spool_mib << 20)

    def counted(self, outcome: str) -> float:
        return self.gathered.values["exhume_profiles_pushed_total"][outcome,]

    def until(self, true: Callable[[], bool], what: str) -> None:
        for _ in range(6000):
            if true():
                return
            time.sleep(0.02)
        raise AssertionError(f"not within 120 s: {what}; it said {self.said}")


@contextmanager
def pushing(tmp_path: Path, push: Push, sender: Sender | None = None) -> Iterator[Agent]:
    agent = Agent(tmp_path, push, sender)
    try:
        yield agent
    finally:
        agent.pusher.close()


def send(push: Push, sender: Sender | None = None, body: bytes = b"") -> Outcome:
    kind = "otlp" if push.form == "otlp" else "pprof"
    wanted = request(push, parcel(body=body, kind=kind), IDENTITY)
    return (sender or Sender()).send(wanted, push.token_file, push.token_over_http)


def secret(file: Path, text: str) -> None:
    """A file for its owner alone, as a token's must be. Written over in one piece: a reader sees the old or the new one."""
    fd = os.open(file, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.write(fd, text.encode().ljust(os.fstat(fd).st_size))
    finally:
        os.close(fd)


def spooled(tmp_path: Path, *numbers: int, size: int = 0) -> list[str]:
    spool = Spool(str(tmp_path / "rec.spool"), 1 << 30)
    spool.prepare()
    return [spool.add(parcel(number, b"%d" % number + b"x" * size)) for number in numbers]
