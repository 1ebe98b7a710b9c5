"""Commands of ours as real processes, for tests that stop, kill and starve them; most of all recorders."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

SECOND = 1_000_000_000

# What is run before it may shorten its patience.
_RUN = """\
import sys
{prelude}
sys.argv[0] = "exhume"
from exhume.__main__ import run
run()
"""


class Begun:
    """A command, begun; its words are collected as they come. `prelude` is run in it first."""

    def __init__(
        self,
        *arguments: str | Path,
        prelude: str = "",
        environment: Mapping[str, str] | None = None,
        output: int = subprocess.PIPE,
    ) -> None:
        self.said: list[str] = []
        self._news = threading.Condition()
        self._silent = False
        self.process = subprocess.Popen(
            [sys.executable, *(("-c", _RUN.format(prelude=prelude)) if prelude else ("-m", "exhume")), *map(str, arguments)],
            env={**(os.environ if environment is None else environment), **_where_we_are()},
            stdin=subprocess.DEVNULL,
            stdout=output,
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
            self._silent = True
            self._news.notify_all()

    @property
    def text(self) -> str:
        return "".join(self.said)

    def until_said(self, words: str, timeout: float = 60) -> None:
        with self._news:
            self._news.wait_for(lambda: words in self.text or self._silent, timeout)
        if words not in self.text:
            raise AssertionError(f"it did not say {words!r}: {self.text}")

    def end(self, number: int = 0, timeout: float = 60) -> int:
        """Its exit code, after a signal if one is named."""
        if number:
            self.process.send_signal(number)
        code = self.process.wait(timeout)
        self._listener.join(10)
        return code

    def status_bytes(self, field: str) -> int:
        """Of /proc/PID/status: VmRSS is what it has now, VmHWM the most it ever had."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) << 10
        return 0

    def close(self) -> None:
        """Whatever it does: it is over."""
        with suppress(ProcessLookupError):
            self.process.kill()
        self.end()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class Recorder(Begun):
    """`exhume record`."""

    def __init__(self, path: Path, *options: str, segment_s: int = 2) -> None:
        self.path = path
        super().__init__("record", path, *options, environment={**os.environ, "EXHUME_SEGMENT_S": str(segment_s)})

    def begun(self) -> None:
        """Wait until it says that it records."""
        self.until_said("exhume: recording to")

    def memory_bytes(self) -> int:
        """The most it ever had."""
        return self.status_bytes("VmHWM")


@contextmanager
def recorder(path: Path, *options: str, segment_s: int = 2) -> Iterator[Recorder]:
    it = Recorder(path, *options, segment_s=segment_s)
    try:
        yield it
    finally:
        it.close()


def exhume(*arguments: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """One command of ours, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "exhume", *map(str, arguments)],
        env={**os.environ, **_where_we_are(), **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )


def _where_we_are() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def children(pid: int) -> Sequence[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found
