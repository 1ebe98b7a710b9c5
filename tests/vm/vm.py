"""Runs a Python script on another kernel: a whole machine with systemd, in QEMU, without network, gone afterwards.

    done = vm.run("5.10", "v1", "import os; print(os.uname().release)")

The script runs as root once the machine is up, with this checkout's src/ and tests/ importable. It is emulated (TCG), not
virtualised, so that it also works inside a virtual machine; expect Python to take ten times as long as outside.
"""

import contextlib
import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tests.vm import cache, guest, image, initramfs, kernels
from tests.vm.tools import Unavailable, install

Hierarchy: TypeAlias = Literal["v1", "hybrid", "v2"]

_HIERARCHIES: dict[Hierarchy, str] = {
    "v1": "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1",
    "hybrid": "systemd.unified_cgroup_hierarchy=0",
    "v2": "systemd.unified_cgroup_hierarchy=1",
}
_TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "setpriv": "util-linux"}
_REPOSITORY = Path(__file__).resolve().parents[2]

# A boot takes ten seconds; these limits only end a machine that hangs, however busy the host is.
_BOOT_SECONDS = 600
_POWER_OFF_SECONDS = 120
_CONSOLE_BYTES = 1 << 18
_TOLD_CHARACTERS = 4000


class MachineError(RuntimeError):
    """The machine did not come up, or went down before the script ended. Says what the console said."""


@dataclass(frozen=True, slots=True)
class Result:
    exit: int
    stdout: str
    stderr: str
    console: str
    release: str
    """Of the kernel that ran."""

    def check(self) -> "Result":
        """Itself when the script ended well, otherwise an error with what it and the machine said last."""
        if self.exit:
            said = _told({"stdout": self.stdout, "stderr": self.stderr, "console": self.console})
            raise MachineError(f"the script ended with {self.exit}\n{said}")
        return self


def unavailable(kernel: str) -> str:
    """Why this kernel cannot be run here; "" when it can. Gets and builds what is missing, so the first call takes a while."""
    try:
        with cache.alone() as here:
            _prepare(here, kernel)
    except Unavailable as why:
        return str(why)
    return ""


def run(kernel: str, hierarchy: Hierarchy, script: str, timeout: float = 300) -> Result:
    """Boot, run the script, power off. `timeout` is for the script alone. A script that fails is a Result, not an error."""
    with cache.alone() as here:
        chosen, root = _prepare(here, kernel)
        with cache.scratch(here) as work:
            initramfs.make(work / "initrd", chosen.modules, _payload(script))
            machine = _Machine(work, chosen, root, hierarchy)
            try:
                return machine.result(timeout)
            finally:
                machine.kill()


def _prepare(here: Path, kernel: str) -> tuple[kernels.Kernel, Path]:
    if os.uname().machine != "x86_64":
        raise Unavailable("the machines are x86_64, and so must the host be")
    install(_TOOLS)
    return kernels.get(here, kernel), image.get(here)


def _payload(script: str) -> dict[str, bytes]:
    """What a run brings along, by name below /run: this checkout as it is now, and the service that runs the script."""
    home = guest.HOME.removeprefix("/run/")
    files = {f"{home}/script.py": script.encode()}
    for pattern in ("src/**/*", "tests/**/*.py"):
        for path in _REPOSITORY.glob(pattern):
            if path.is_file() and "__pycache__" not in path.parts:
                files[f"{home}/{path.relative_to(_REPOSITORY)}"] = path.read_bytes()
    files[f"systemd/system/{guest.UNIT}"] = guest.UNIT_TEXT.encode()
    files["systemd/system/multi-user.target.d/exhume.conf"] = f"[Unit]\nWants={guest.UNIT}\n".encode()
    return files


def _told(streams: dict[str, str]) -> str:
    """The end of each stream that has something to say."""
    return "\n".join(f"--- {name}\n{text[-_TOLD_CHARACTERS:]}" for name, text in streams.items() if text)


class _Machine:
    """One QEMU, ours from start to end: it dies with the thread that started it (PR_SET_PDEATHSIG)."""

    def __init__(self, work: Path, kernel: kernels.Kernel, root: Path, hierarchy: Hierarchy) -> None:
        self._work = work
        command = ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64"]
        # Skylake-Server: with -cpu max 6.12 now and then double-faults in cmpxchg16b while it boots. One thread for both CPUs:
        # with a thread each the emulator runs stale code after the kernel has patched it, and a static key that is switched (as
        # perf events do) ends in "Oops: int3".
        command += "-accel tcg,thread=single -cpu Skylake-Server -smp 2 -m 1024".split()
        command += "-nodefaults -display none -no-user-config -no-reboot -device virtio-serial-pci,max_ports=8".split()
        command += ["-kernel", str(kernel.image), "-initrd", str(work / "initrd")]
        command += ["-append", f"console=ttyS0 root=/dev/vda rw mitigations=off panic=-1 TERM=dumb {_HIERARCHIES[hierarchy]}"]
        command += ["-drive", f"file={root},if=virtio,format=raw,snapshot=on,cache=unsafe"]
        command += ["-chardev", f"file,id=console,path={work}/console", "-serial", "chardev:console"]
        for name in guest.PORTS:
            command += ["-chardev", f"file,id={name},path={work}/{name}"]
            command += ["-device", f"virtserialport,chardev={name},name=exhume.{name}"]
        with open(work / "qemu", "wb") as messages:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=messages,
                stderr=messages,
                env={**os.environ, "TMPDIR": str(work)},  # of snapshot=on
            )

    def result(self, timeout: float) -> Result:
        started = self._wait("release", _BOOT_SECONDS)
        if started is None:
            state = "hangs" if self._process.poll() is None else "stopped"
            raise MachineError(f"the machine {state} before the script could start\n{self.said()}")
        ended = self._wait("exit", timeout)
        if ended is None:
            state = f"still runs after {timeout:g} s" if self._process.poll() is None else "took the machine down"
            raise MachineError(f"the script {state}\n{self.said()}")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_POWER_OFF_SECONDS)
        return Result(int(ended), self._read("stdout"), self._read("stderr"), self._read("console", _CONSOLE_BYTES), started)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def said(self) -> str:
        """All that is known about a machine that failed."""
        return _told({name: self._read(name, _CONSOLE_BYTES) for name in ("qemu", "stdout", "stderr", "console")})

    def _wait(self, key: str, seconds: float) -> str | None:
        """What the guest reports under a key; None when the time is up or the machine is down without it."""
        deadline = time.monotonic() + seconds
        while True:
            running = self._process.poll() is None and time.monotonic() < deadline
            # Only whole lines: the last one may still be on its way.
            for line in self._read("status").split("\n")[:-1]:
                report = json.loads(line)
                if key in report:
                    return str(report[key])
            if not running:
                return None
            time.sleep(0.02)

    def _read(self, name: str, most: int = 1 << 26) -> str:
        """The last bytes of what came out of a port."""
        try:
            with open(self._work / name, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - most))
                return file.read().decode("utf-8", "backslashreplace")
        except FileNotFoundError:
            return ""
