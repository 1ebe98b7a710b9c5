"""Recorders as real processes, for tests that stop, kill and starve them."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

SECOND = 1_000_000_000


class Recorder:
    """`exhume record`, begun; its words are collected as they come."""

    def __init__(self, path: Path, *options: str, segment_s: int = 2) -> None:
        self.path = path
        self.said: list[str] = []
        self._begun = threading.Event()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "exhume", "record", str(path), *options],
            env={**os.environ, "EXHUME_SEGMENT_S": str(segment_s), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.decode(errors="backslashreplace"))
            self._begun.set()
        self._begun.set()

    def begun(self) -> None:
        """Wait until it says that it records."""
        if not self._begun.wait(60) or not self.text.startswith("exhume: recording to"):
            raise AssertionError(f"it did not begin: {self.text}")

    def until_said(self, words: str) -> None:
        for _ in range(600):
            if words in self.text:
                return
            time.sleep(0.05)
        raise AssertionError(f"it did not say {words!r} within 30 s: {self.text}")

    @property
    def text(self) -> str:
        return "".join(self.said)

    def end(self, number: int = 0, timeout: float = 60) -> int:
        """Its exit code, after a signal if one is named."""
        if number:
            self.process.send_signal(number)
        code = self.process.wait(timeout)
        self._listener.join(10)
        return code

    def memory_bytes(self) -> int:
        """The most it ever had."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
        return 0


@contextmanager
def recorder(path: Path, *options: str, segment_s: int = 2) -> Iterator[Recorder]:
    it = Recorder(path, *options, segment_s=segment_s)
    try:
        yield it
    finally:
        with suppress(ProcessLookupError):
            it.process.kill()
        it.process.wait()
        for stream in (it.process.stdout, it.process.stderr):
            assert stream is not None
            stream.close()


def exhume(*arguments: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    """One command of ours, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "exhume", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=120,
    )


def children(pid: int) -> Sequence[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found += [int(child) for child in (task / "children").read_text().split()]
    return found
