"""Agents as real processes, for tests that scrape, reload, starve and kill them."""

import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

_RUN = """\
import sys
{prelude}
sys.argv[0] = "exhume"
from exhume.__main__ import run
run()
"""


class Agent:
    """`exhume agent`, begun; its words are collected as they come. `prelude` is run in it first, to shorten its patience."""

    def __init__(self, path: Path, *options: str, prelude: str = "", environment: dict[str, str] | None = None) -> None:
        self.said: list[str] = []
        self._news = threading.Condition()
        settings = {name: value for name, value in os.environ.items() if not name.startswith("EXHUME_")}
        settings |= {"EXHUME_SEGMENT_S": "2", "EXHUME_AGENT_AUDIT_EVERY_H": "0", "EXHUME_AGENT_LATENCY": "0"}
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _RUN.format(prelude=prelude),
                "agent",
                *("--dir", str(path), "--listen", "127.0.0.1:0"),
                *options,
            ],
            env={**settings, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self.said.append(line.decode(errors="backslashreplace"))
                self._news.notify_all()
        with self._news:
            self._news.notify_all()

    @property
    def text(self) -> str:
        return "".join(self.said)

    def until_said(self, words: str, timeout: float = 60) -> None:
        with self._news:
            heard = self._news.wait_for(lambda: words in self.text or self.process.poll() is not None, timeout)
        if not heard or words not in self.text:
            raise AssertionError(f"it did not say {words!r}: {self.text}")

    @property
    def url(self) -> str:
        """Once it has said where."""
        self.until_said("metrics at ")
        return self.text.partition("metrics at ")[2].split()[0].removesuffix("/metrics")

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(self.url + path, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def scrape(self) -> Samples:
        """Every series, by its name and labels."""
        families = text_string_to_metric_families(self.get("/metrics")[1])
        return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}

    def value(self, name: str, **labels: str) -> float | None:
        return self.scrape().get((name, frozenset(labels.items())))

    def until(self, what: Callable[[], object], timeout: float = 60) -> None:
        end = time.monotonic() + timeout
        while not what():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"it did not come to that: {self.text}")
            time.sleep(0.1)

    def ready(self) -> None:
        self.until(lambda: self.get("/-/ready")[0] == 200)

    def end(self, number: int = 0, timeout: float = 60) -> int:
        """Its exit code, after a signal if one is named."""
        if number:
            self.process.send_signal(number)
        code = self.process.wait(timeout)
        self._listener.join(10)
        return code

    def memory_bytes(self) -> int:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) << 10
        return 0


@contextmanager
def agent(path: Path, *options: str, prelude: str = "", environment: dict[str, str] | None = None) -> Iterator[Agent]:
    it = Agent(path, *options, prelude=prelude, environment=environment)
    try:
        yield it
    finally:
        with suppress(ProcessLookupError):
            it.process.kill()
        it.process.wait()
        assert it.process.stderr is not None
        it.end()
        it.process.stderr.close()
