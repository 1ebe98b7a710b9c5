"""Agents as real processes, for tests that scrape, reload, starve and kill them."""

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.recorders import Begun

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Agent(Begun):
    """`exhume agent`, by settings that the test gives and no others."""

    def __init__(self, path: Path, *options: str, prelude: str = "", environment: dict[str, str] | None = None) -> None:
        settings = {name: value for name, value in os.environ.items() if not name.startswith("EXHUME_")}
        settings |= {"EXHUME_SEGMENT_S": "2", "EXHUME_AGENT_AUDIT_EVERY_H": "0", "EXHUME_AGENT_LATENCY": "0"}
        super().__init__(
            *("agent", "--dir", str(path), "--listen", "127.0.0.1:0", *options),
            prelude=prelude,
            environment=settings | (environment or {}),
            output=subprocess.DEVNULL,
        )

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

    def until(self, what: Callable[[], object], timeout: float = 120) -> None:
        end = time.monotonic() + timeout
        while not what():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"it did not come to that: {self.text}")
            time.sleep(0.1)

    def ready(self) -> None:
        self.until(lambda: self.get("/-/ready")[0] == 200)

    def memory_bytes(self) -> int:
        return self.status_bytes("VmRSS")


@contextmanager
def agent(path: Path, *options: str, prelude: str = "", environment: dict[str, str] | None = None) -> Iterator[Agent]:
    it = Agent(path, *options, prelude=prelude, environment=environment)
    try:
        yield it
    finally:
        it.close()
