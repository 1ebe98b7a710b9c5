"""A recorder that is killed, starved of disk, robbed of its directory or flooded: what it wrote stays, and it goes on."""

import os
import random
import shutil
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet
import pytest

from exhume.kernel.clock import Clock
from exhume.recording.folder import Folder
from tests.recorders import SECOND, children, exhume, recorder
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a recorder with everything on needs root")

LATEST_NS = 2 * SECOND
SAMPLED = ("samples", "stacks", "frames", "threads")


class Killed(NamedTuple):
    path: Path
    begun: int
    """When it said that it records."""
    at: int
    """When it was killed, on the recording's clock."""


def kill_at(path: Path, after: float) -> Killed:
    with recorder(path) as it, Clock() as clock:
        it.begun()
        begun = clock.now()
        _at_once(it.process.pid)
        time.sleep(after)
        symbols = children(it.process.pid)
        now = clock.anchor().perf_ns
        assert it.end(signal.SIGKILL) == -signal.SIGKILL
        for child in symbols:
            _gone(child)
    return Killed(path, begun, now)


def _at_once(pid: int) -> None:
    """A recorder that gets a core whenever it wants one: what it loses when killed is then its own doing, on any machine."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with suppress(ProcessLookupError):
            os.sched_setscheduler(int(thread), os.SCHED_FIFO, os.sched_param(1))


def _gone(pid: int) -> None:
    """What reads symbols for a recorder ends with it."""

    def ended() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    wait_for(ended)


def sealed(folder: Folder) -> dict[str, list[int]]:
    """The times of all samples of each sealed segment, read without us."""
    found = {}
    for segment in folder.segments:
        if segment.sealed and (file := Path(segment.path, "samples.parquet")).exists():
            found[segment.path] = pyarrow.parquet.read_table(file, columns=["time"])["time"].cast("int64").to_pylist()
    return found


def look_at(killed: Killed) -> None:
    folder = Folder(str(killed.path))
    clocks = folder.load(tables=("samples", "cpu", "anchors"))
    seen = [int(clocks[table].ints("time").max()) for table in ("samples", "cpu", "anchors") if len(clocks[table])]
    newest = max(seen, default=killed.begun)  # on a busy machine it may not have come to its first batch
    assert killed.at - newest <= LATEST_NS
    assert newest <= killed.at + SECOND // 10
    if seen:
        assert int(clocks["cpu"].ints("time").min()) <= killed.begun + SECOND
    before = sealed(folder)
    assert sum(map(len, before.values())) <= folder.count("samples")
    counted = folder.count("samples"), folder.count("cpu")

    again = exhume("record", killed.path, "--for", "1s", "--quiet", environment={"EXHUME_SEGMENT_S": "2"})
    assert again.returncode == 0, again.stderr
    after = Folder(str(killed.path))
    assert all(segment.sealed for segment in after.segments)
    for path, times in before.items():
        assert (
            pyarrow.parquet.read_table(Path(path, "samples.parquet"), columns=["time"])["time"].cast("int64").to_pylist()
            == times
        )
    assert after.count("samples") >= counted[0]
    assert after.count("cpu") > counted[1]
    whole = after.load(tables=SAMPLED)
    assert len(whole["samples"]) == after.count("samples")
    assert {*whole["samples"].ints("stack").tolist()} <= {*whole["stacks"].ints("id").tolist()}
    assert {*whole["samples"].ints("thread").tolist()} <= {*whole["threads"].ints("id").tolist()}


def kill_many(path: Path, count: int, latest: float) -> None:
    moments = [random.uniform(1.5, latest) for _ in range(count)]
    print("killed after", [round(moment, 3) for moment in moments])
    with ThreadPoolExecutor(4) as pool:
        for done in pool.map(lambda each: look_at(kill_at(path / str(each[0]), each[1])), enumerate(moments)):
            assert done is None


@pytest.mark.ci
def test_killed_at_random_moments_every_recording_opens_and_has_lost_two_seconds_at_most(tmp_path: Path) -> None:
    kill_many(tmp_path, 8, 4.5)


@pytest.mark.long
def test_killed_at_two_hundred_random_moments_every_recording_opens(tmp_path: Path) -> None:
    kill_many(tmp_path, 200, 6)


def wait_for_rows(path: Path) -> Folder:
    """Until there is something to read."""
    deadline = time.monotonic() + 120
    while True:
        try:
            folder = Folder(str(path))
            if folder.count("cpu"):
                return folder
        except Exception:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, "nothing to read within two minutes"
        time.sleep(0.05)


def test_a_full_disk_is_told_and_gone_on_from(tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "exhume-test", place], check=True)
    try:
        with recorder(place / "r", "--hz", "499") as it:
            it.begun()
            before = wait_for_rows(place / "r").count("cpu")
            with open(place / "filler", "wb", buffering=0) as filler:
                try:
                    while True:
                        filler.write(b"x" * 65536)
                except OSError:
                    pass
            it.until_said("disk full")
            time.sleep(1)
            (place / "filler").unlink()
            with Clock() as clock:
                freed = clock.now()
            wait_for(lambda: Folder(str(place / "r")).window[1] > freed + SECOND)
            assert it.end(signal.SIGINT) == 0, it.text
        folder = Folder(str(place / "r"))
        assert folder.count("cpu") > before
        assert folder.window[1] > freed
        rows = folder.load(tables=SAMPLED)
        assert {*rows["samples"].ints("stack").tolist()} <= {*rows["stacks"].ints("id").tolist()}
    finally:
        subprocess.run(["umount", place], check=True)


def test_a_directory_that_is_removed_is_told_and_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with recorder(path) as it:
        it.begun()
        wait_for_rows(path)
        os.rename(path, tmp_path / "gone")
        shutil.rmtree(tmp_path / "gone")
        it.until_said("was removed while it was written")
        wait_for_rows(path)
        assert it.end(signal.SIGINT) == 0, it.text
    folder = Folder(str(path))
    assert all(segment.sealed for segment in folder.segments)
    rows = folder.load(tables=SAMPLED)
    assert len(rows["samples"])
    assert {*rows["samples"].ints("thread").tolist()} <= {*rows["threads"].ints("id").tolist()}


STORM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
int main(int count, char **words) {
    alarm(20);
    time_t end = time(0) + atol(words[1]);
    long made = 0;
    for (; time(0) < end; made++) {
        pid_t child = vfork();
        if (child == 0) { if (made % 8 == 0) execl("/bin/true", "true", (char *)0); _exit(0); }
        waitpid(child, 0, 0);
    }
    printf("%ld\n", made);
    return 0;
}
"""


def test_a_storm_of_short_processes_is_survived_in_bounded_memory(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("the storm is written in C, and there is no compiler")
    (tmp_path / "storm.c").write_text(STORM)
    subprocess.run([compiler, "-O2", "-o", tmp_path / "storm", tmp_path / "storm.c"], check=True)
    with recorder(tmp_path / "r") as it:
        it.begun()
        wait_for_rows(tmp_path / "r")
        storms = [subprocess.Popen([tmp_path / "storm", "5"], stdout=subprocess.PIPE) for _ in range(2)]
        made = sum(int(storm.communicate(timeout=300)[0]) for storm in storms)
        print(f"about {made / 5:.0f} processes a second")
        memory = it.memory_bytes()
        assert it.end(signal.SIGINT) == 0, it.text
    print(f"{memory >> 20} MiB at most")
    assert memory < 300 << 20
    folder = Folder(str(tmp_path / "r"))
    rows = folder.load(tables=(*SAMPLED, "counters"))
    assert rows.counter("side_band_lost") is not None
    assert "storm" in {*rows["threads"].texts("process")}
    assert {*rows["samples"].ints("thread").tolist()} <= {*rows["threads"].ints("id").tolist()}
