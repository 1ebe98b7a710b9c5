"""exhume import: files of perf into a recording, beside what perf itself needs to print them."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.measure import ENVIRONMENT, Row
from bench.record import _load

EXHUME = [sys.executable, "-m", "exhume"]
# What reads the text of perf script for a heat map does with each line of it: is it a sample's, and when was that?
_TIMES = r"""
import re, sys
sample = re.compile(r"^(.+?)\s+(\d+)(?:/\d+)?\s+(?:\[(\d+)\]\s+)?(\d+\.\d+):")
seen = {}
for line in open(sys.argv[1], errors="replace"):
    found = None if line[0] in "\t #" else sample.match(line)
    if found is not None:
        when = float(found[4])
        cell = int(when), int(when % 1 * 50), "swapper" in found[1]
        seen[cell] = seen.get(cell, 0) + 1
"""


@contextmanager
def _capture(samples: int) -> Iterator[str]:
    """A perf.data of so many samples or more, of two cores under a mixed load."""
    if shutil.which("perf") is None:
        raise RuntimeError("there is no perf (Debian: linux-perf)")
    with tempfile.TemporaryDirectory() as place:
        path = f"{place}/perf.data"
        seconds = 30
        while True:
            with _load(seconds + 5):
                command = ["perf", "record", "-q", "-F", "9999", "-a", "-g", "-o", path, "--", "sleep", str(seconds)]
                subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
            if _samples(path) >= samples or seconds > 240:
                break
            seconds *= 2
        yield path


def _samples(path: str) -> int:
    done = subprocess.run(["perf", "script", "-i", path, "-F", "time"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return sum(1 for line in done.stdout.splitlines() if line.strip())


def _timed(command: "list[str] | str") -> tuple[float, int]:
    """Seconds, and the most memory in kB, of it and its children together."""
    start = time.perf_counter()
    process = subprocess.Popen(command, shell=isinstance(command, str), env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    most = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        most = max(most, _resident(process.pid))
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}")
    return time.perf_counter() - start, max(most, usage.ru_maxrss)


def _resident(pid: int) -> int:
    """kB of a process and all below it."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            own = int(file.read().split()[1]) * 4
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return own + sum(_resident(int(child)) for child in file.read().split())
    except (OSError, IndexError):
        return 0


def import_cost(samples: int = 500_000) -> Iterator[Row]:
    """perf.data and the text of perf script into a stored recording, and to the first picture."""
    with _capture(samples) as path:
        count = _samples(path)
        script, _ = _timed(f"perf script -i {path} 2>/dev/null")
        bare, memory = _timed([*EXHUME, "import", path, "-o", f"{path}.bare", "--no-symbols", "--quiet"])
        named, more = _timed([*EXHUME, "import", path, "-o", f"{path}.named", "--quiet"])
        megabytes = os.path.getsize(path) / 1e6
        yield Row(f"perf.data of {count:,} samples, {megabytes:,.0f} MB: samples/s stored, no symbols, against perf script",
                  count / bare, count / script, "/s", None)  # fmt: skip
        yield Row("  seconds without symbols (bar: 300,000 samples/s)", bare, None, "s", count / 300_000)
        yield Row("  seconds with symbols (bar: 150,000 samples/s)", named, None, "s", count / 150_000)
        yield Row("  memory at its height", max(memory, more) / 1024, None, "MB", 400.0)
        text = f"{path}.txt"
        subprocess.run(f"perf script -i {path} > {text} 2>/dev/null", shell=True, check=True)
        read, memory = _timed([*EXHUME, "import", text, "-o", f"{path}.text", "--quiet"])
        yield Row(
            f"the text of perf script, {os.path.getsize(text) / 1e6:,.0f} MB (bar: 150,000 samples/s)",
            read,
            None,
            "s",
            count / 150_000,
        )
        yield Row("  memory at its height", memory / 1024, None, "MB", 400.0)
        os.unlink(text)
        heat, _ = _timed([*EXHUME, "heat", path])
        with open(f"{path}.py", "w", encoding="utf-8") as file:
            file.write(_TIMES)
        times, _ = _timed(f"perf script -i {path} > {text} 2>/dev/null; {sys.executable} {path}.py {text}")
        os.unlink(text)
        yield Row("first heat map from perf.data, against perf script and reading its text", heat, times, "s", 1 / 5)
        yield Row("  against perf script alone", heat, script, "s")
        flame, _ = _timed([*EXHUME, "flame", path, "-o", f"{path}.svg"])
        folded, _ = _timed(f"perf script report stackcollapse -i {path} 2>/dev/null")
        yield Row("whole flame graph from perf.data, against perf script report stackcollapse", flame, folded, "s", 1 / 3)
        yield Row("  against perf script alone", flame, script, "s")
