"""Probes are gone with the process that attached them, however it ends; and what the kernel refuses is off, with a reason."""

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import cast

import pytest

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.kernel.bpf import BpfError
from exhume.kernel.bpf.program import Program
from exhume.kernel.bpf.syscall import Command, ProgramKind, Rejected, attributes, bpf
from exhume.recorder import latency
from exhume.recorder.latency import Latency, Options
from exhume.recorder.latency_probes import RARE, WINDOWS
from exhume.recorder.recorder import node_of
from exhume.recording.source_state import Bug, Failed, SourceState, Weaker
from exhume.sources.latency.discover import Discover
from tests.kernel.bpf.needs import needs_bpf
from tests.recorders import recorder
from tests.sources.latency import loaded
from tests.waiting import wait_for

pytestmark = [needs_bpf, pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to attach probes")]

PROG_GET_FD_BY_ID = cast(Command, 13)  # enum bpf_cmd; of no use but here


def name_of(program: int) -> str:
    """What the kernel calls a program (struct bpf_prog_info in include/uapi/linux/bpf.h)."""
    fd = bpf(PROG_GET_FD_BY_ID, attributes("II", program, 0))
    try:
        info = ctypes.create_string_buffer(80)
        bpf(Command.OBJ_GET_INFO_BY_FD, attributes("IIQ", fd, len(info), ctypes.addressof(info)))
        return info.raw[64:80].split(b"\0", 1)[0].decode()
    finally:
        os.close(fd)


def links(pid: int) -> int:
    """How many programs are attached now."""
    return _open(pid).count("anon_inode:bpf_link") + _open(pid).count("anon_inode:bpf-raw-tracepoint")


def events(pid: int) -> int:
    return _open(pid).count("anon_inode:[perf_event]")


def _open(pid: int) -> list[str]:
    found = []
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            found.append(os.readlink(fd))
    return found


def until_attached(pid: int, least: int) -> set[int]:
    """The programs of a process, as soon as so many are attached. They all bear our name."""
    wait_for(lambda: links(pid) >= least)
    programs = loaded.of_process(pid)
    assert all(name_of(program).startswith("exhume_") for program in programs)
    return programs


@contextmanager
def watching(*arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "exhume", "latency", "--for", "1m", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_of_a_watch_that_is_killed_no_program_is_left() -> None:
    before = loaded.in_kernel()
    with watching("--full") as process:
        ours = until_attached(process.pid, 8)
        assert ours - before == ours
        assert ours <= loaded.in_kernel()
        assert events(process.pid) >= (os.cpu_count() or 1), "the stacks are sampled, too"
        process.send_signal(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL
        assert loaded.gone(ours)
    assert not os.path.exists(f"/proc/{process.pid}/fd"), "and with it all its perf events"


def test_of_a_watch_that_is_interrupted_no_program_is_left_either() -> None:
    with watching() as process:
        ours = until_attached(process.pid, 3)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        assert loaded.gone(ours)


def test_of_a_recorder_that_is_killed_no_program_is_left(tmp_path: Path) -> None:
    with recorder(tmp_path / "recording") as it:
        it.begun()
        ours = until_attached(it.process.pid, 3)
        assert events(it.process.pid) >= 1
        assert it.end(signal.SIGKILL) == -signal.SIGKILL
        assert loaded.gone(ours)


# What the kernel refuses


def refuse(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    """As a verifier would that does not like programs of these names."""
    real = Program.__init__

    def load(self: Program, kind: ProgramKind, code: object, name: str = "", *rest: object) -> None:
        if re.search(which, name):
            raise Rejected(f"the kernel's verifier refused the BPF program {name}: R1 invalid mem access", 13, "a long log")
        real(self, kind, code, name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Program, "__init__", load)


def watch(**options: object) -> dict[str, SourceState]:
    """The sources of a short watch, which must not have failed."""
    root = Root()
    it = Latency(root, node_of(root), Options(**options))  # type: ignore[arg-type]
    it.start()
    assert it.ready.wait(60)
    wait_for(lambda: {WINDOWS, RARE} <= {row.name for row in it.sources()} or not it.is_alive())
    it.finish()
    assert it.failure is None
    return {row.name: row.state for row in it.sources()}


@pytest.mark.parametrize("which", ["^exhume_look$", "^exhume_tasks$"])
def test_where_looks_are_refused_it_is_weaker_and_says_why(monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    before = loaded.of_process()
    refuse(monkeypatch, which)
    sources = watch()
    assert sources["latency"].state == "partial"
    weaker = sources["latency"].find(Weaker)
    assert weaker is not None
    assert weaker.because.startswith("the kernel's verifier refused the BPF program exhume_")
    assert "long log" not in weaker.because
    assert sources[WINDOWS].state == sources[RARE].state == "off"
    assert loaded.of_process() == before


def test_where_probes_are_refused_they_are_off_and_stalls_are_still_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    before = loaded.of_process()
    refuse(monkeypatch, "^exhume_(?!look$|tasks$)")
    sources = watch()
    assert sources["latency"].up
    assert sources["latency"].find(Weaker) is None
    for name in (WINDOWS, RARE):
        assert sources[name].state == "off"
        assert "the kernel's verifier refused the BPF program exhume_" in sources[name].reason
    assert loaded.of_process() == before


def test_a_kernel_that_takes_no_program_at_all_is_watched_from_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "unavailable", lambda: "bpf(2) is not permitted: it takes root")
    sources = watch()
    refused = "bpf(2) is not permitted: it takes root"
    assert sources["latency"].state == "partial"
    assert sources["latency"].find(Weaker) == Weaker("/proc/PID/schedstat", refused)
    assert sources[WINDOWS] == sources[RARE] == SourceState.off(Failed(refused))


@pytest.mark.parametrize(
    "error", [BpfError("reading a BPF iterator over tasks: out of memory"), Unreadable("/proc is not there")]
)
def test_what_cannot_be_read_any_more_is_off_and_no_bug(monkeypatch: pytest.MonkeyPatch, error: Unreadable) -> None:
    def find(self: Discover) -> None:
        raise error

    monkeypatch.setattr(Discover, "find", find)
    assert watch(brief=True)["latency"] == SourceState.off(Failed(str(error)))


def test_a_bug_of_ours_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(self: Discover) -> None:
        raise ZeroDivisionError("nothing")

    monkeypatch.setattr(Discover, "find", find)
    root = Root()
    it = Latency(root, node_of(root), Options(brief=True))
    it.start()
    it.join(60)
    assert isinstance(it.failure, ZeroDivisionError)
    assert {row.name: row.state for row in it.sources()}["latency"] == SourceState.off(Bug("ZeroDivisionError: nothing"))
