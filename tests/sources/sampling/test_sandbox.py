"""The sandbox of the symbol reader: with all capabilities, with those of the unit and the chart, without root."""

import ctypes
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from exhume.agent.privileges import SYSTEMD_UNIT, capabilities
from exhume.agent.settings import Settings
from exhume.sources.sampling import elf, sandbox
from tests.deploy import capability
from tests.sources.sampling.made_elf import many_functions
from tests.sources.sampling.symbol_processes import in_a_child

TOP = Path(__file__).parents[3]
CHART = capabilities(())
UNIT = capabilities(SYSTEMD_UNIT)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def refused(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except OSError:
        return True
    return False


def closed(path: Path) -> bool:
    """Whether nothing can be opened, made, run, or asked of another process."""
    attempts = (
        lambda: os.open("/", os.O_RDONLY),
        lambda: os.open(path, os.O_RDONLY),
        lambda: os.open(path.parent / "new", os.O_WRONLY | os.O_CREAT),
        lambda: os.unlink(path),
        lambda: os.execv("/bin/sh", ["sh"]),
    )
    return all(map(refused, attempts))


def test_the_sandbox_lets_files_be_read_that_are_open_and_opens_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"text")

    def check() -> bool:
        fd = os.open(path, os.O_RDONLY)
        sandbox.enter()
        refused = 0
        for attempt in (
            lambda: os.open("/", os.O_RDONLY),
            lambda: os.fork(),
            lambda: os.kill(os.getppid(), 0),
            lambda: os.execv("/bin/sh", ["sh"]),
            lambda: os.open(path, os.O_RDONLY),
        ):
            try:
                attempt()
            except OSError:
                refused += 1
        return os.pread(fd, 9, 0) == b"text" and refused == 5

    assert in_a_child(check)


def test_the_sandbox_works_without_root(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"text")

    def check() -> bool:
        fd = os.open(path, os.O_RDONLY)
        if os.geteuid() == 0:
            os.setresuid(65534, 65534, 65534)
        sandbox.enter()
        try:
            os.open(path, os.O_RDONLY)
        except OSError:
            return os.pread(fd, 9, 0) == b"text"
        return False

    assert in_a_child(check)


@needs_root
@pytest.mark.parametrize("kept", [CHART, UNIT, (), ("SETUID", "SETGID"), ("SYS_CHROOT",)])
def test_with_few_capabilities_it_keeps_none_and_opens_nothing(kept: tuple[str, ...], tmp_path: Path) -> None:
    """The unit and the chart have neither CAP_SETUID nor CAP_SETGID nor CAP_SYS_CHROOT."""
    path = tmp_path / "file"
    path.write_bytes(b"text")

    def check() -> bool:
        fd = os.open(path, os.O_RDONLY)
        status = os.open("/proc/self/status", os.O_RDONLY)
        capability.keep(kept)
        missing = "; ".join(sandbox.enter())
        held = re.findall(rb"Cap(?:Inh|Prm|Eff|Amb):\t(\w+)", os.pread(status, 4096, 0))
        told = ("SETUID" in kept) == ("stays user 0" not in missing) and ("SYS_CHROOT" in kept) == ("no chroot" not in missing)
        return closed(path) and os.pread(fd, 9, 0) == b"text" and [int(one, 16) for one in held] == [0] * 4 and told

    assert in_a_child(check)
    assert path.exists()


def no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_LANDLOCK_CREATE", 0xFFFF)  # ENOSYS


def other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_MACHINES", {})


def has_landlock() -> bool:
    return int(ctypes.CDLL(None).syscall(444, None, 0, 1)) >= 1


@pytest.mark.skipif(not has_landlock(), reason="this kernel has no Landlock")
def test_without_a_table_of_system_calls_landlock_closes_it_and_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_machine(monkeypatch)
    path = tmp_path / "file"
    path.write_bytes(b"text")

    def check() -> bool:
        capability.keep(CHART)
        missing = sandbox.enter()
        return closed(path) and any("no seccomp filter" in one and platform.machine() in one for one in missing)

    assert in_a_child(check)
    assert path.exists()


def test_without_landlock_seccomp_closes_it_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_landlock(monkeypatch)
    path = tmp_path / "file"
    path.write_bytes(b"text")

    def check() -> bool:
        capability.keep(CHART)
        missing = sandbox.enter()
        return closed(path) and any("no Landlock" in one for one in missing)

    assert in_a_child(check)


def test_with_neither_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    no_landlock(monkeypatch)
    other_machine(monkeypatch)

    def check() -> bool:
        try:
            sandbox.enter()
        except OSError as error:
            return "no Landlock" in str(error) and "no seccomp filter" in str(error)
        return False

    assert in_a_child(check)


_LARGEST = """
import os, resource, sys
from exhume.sources.sampling import sandbox, symbol_reader
resource.setrlimit(resource.RLIMIT_AS, (sandbox.MEMORY, sandbox.MEMORY))
for path in sys.argv[1:]:
    try:
        image = symbol_reader.ElfImage(os.open(path, os.O_RDONLY))
        print(image.function(int("0x1007", 16)).name.decode())
    except symbol_reader.elf.Malformed as reason:
        print(reason)
"""


@pytest.mark.ci
def test_the_largest_table_of_symbols_is_read_within_the_readers_memory(tmp_path: Path) -> None:
    """Functions without sizes, in no order: the most that sorting them can take. The reader imports the same modules."""
    (tmp_path / "large").write_bytes(many_functions(elf.MOST_FUNCTIONS))
    (tmp_path / "larger").write_bytes(many_functions(elf.MOST_FUNCTIONS + 1))
    command = [sys.executable, "-c", _LARGEST, str(tmp_path / "large"), str(tmp_path / "larger")]
    environment = {**os.environ, "PYTHONPATH": str(TOP / "src"), "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["name", "it has more than 1.5 million functions"], done.stderr


def test_reader_and_agent_fit_into_the_memory_that_is_shipped() -> None:
    """A quarter is left for a verdict, which is a process of its own, and for the kernel's part."""
    unit = (TOP / "deploy/systemd/exhume-agent.service").read_text()
    values = yaml.safe_load((TOP / "deploy/helm/exhume/values.yaml").read_text())
    found = re.search(r"^MemoryMax=(\d+)M$", unit, re.MULTILINE)
    assert found is not None
    for shipped in (int(found[1]), int(values["resources"]["limits"]["memory"].removesuffix("Mi"))):
        assert (sandbox.MEMORY >> 20) + Settings().memory_limit_mib <= shipped * 3 / 4
