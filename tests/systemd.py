"""A real systemd for tests: PID 1, journald, logind and a system bus in a container that leaves nothing behind.

The container's root is an overlay of the host's `/` with its changes in memory, so it has the host's programs and needs no
image. It lives in a PID and a mount namespace of its own, whose first process dies with us (PR_SET_PDEATHSIG): even after a
kill -9 of the test run the kernel takes every process and mount away. Only cgroups can be left then, all of them below one
named parent, and the next run removes those.
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

NAME = "exhume-test-systemd"
"""The machine's name, and that of the one cgroup in each hierarchy below which everything of ours is."""

_TOOLS = ("systemd-nspawn", "unshare", "setpriv", "nsenter", "mount", "dbus-daemon")
_CAP_SYS_ADMIN = 21  # include/uapi/linux/capability.h
_BOOT_SECONDS = 60
_STOP_SECONDS = 20
_here = threading.Lock()
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Machine:
    """A booted container: its PID 1 as we see it, and its file system from outside."""

    leader: int

    @property
    def root(self) -> str:
        return f"/proc/{self.leader}/root"

    def run(self, command: Sequence[str], check: bool = True, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        """Run a command inside, as root, with an environment of its own; its output is in the error when it fails."""
        enter = ["nsenter", "-t", str(self.leader), "-m", "-u", "-i", "-p", "-C", "-n", "-r", "-w", "--"]
        done = subprocess.run(
            [*enter, *command],
            env={"PATH": _PATH, "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=timeout,
        )
        if check and done.returncode:
            raise RuntimeError(f"{list(command)} ended with {done.returncode} inside: {done.stdout}{done.stderr}")
        return done

    def write(self, path: str, text: str) -> None:
        """Write a file inside, with its directory."""
        inside = os.path.join(self.root, path.lstrip("/"))
        os.makedirs(os.path.dirname(inside), exist_ok=True)
        with open(inside, "w", encoding="utf-8") as file:
            file.write(text)


def unavailable(memory: bool = False) -> str:
    """Why no systemd can be booted here; "" when it can."""
    if os.geteuid() != 0:
        return "booting systemd needs root"
    for tool in _TOOLS:
        if shutil.which(tool) is None:
            return f"booting systemd needs {tool} (Debian: systemd-container, dbus, util-linux)"
    with open("/proc/self/status", encoding="ascii", errors="replace") as status:
        capable = next((int(line.split()[1], 16) for line in status if line.startswith("CapEff:")), 0)
    if not capable >> _CAP_SYS_ADMIN & 1:
        return "booting systemd needs CAP_SYS_ADMIN"
    with open("/proc/filesystems", encoding="ascii") as filesystems:
        built_in = any(line.split()[-1] == "overlay" for line in filesystems)
    if not built_in and not os.path.isdir(f"/lib/modules/{os.uname().release}/kernel/fs/overlayfs"):
        return "booting systemd needs overlayfs in this kernel"
    hierarchies = _hierarchies()
    if not {"systemd", "unified"} & hierarchies.keys():
        return "booting systemd needs cgroup2 or the v1 hierarchy name=systemd"
    if memory and "memory" not in hierarchies:
        return "memory cgroups for units need the memory controller on cgroup v1"
    return ""


@contextlib.contextmanager
def boot(units: Mapping[str, str] | None = None, memory: bool = False, root: str = "/", target: str = "") -> Iterator[Machine]:
    """Boot systemd with these unit files in /etc/systemd/system, neither enabled nor started, and without the host's own.

    With `memory`, units get memory cgroups (v1), as they do on a real node. With `root`, that Debian is booted instead of the
    host's, with everything that it enables, up to `target`; it is not written to. One machine at a time: others wait.
    """
    why = unavailable(memory)
    if why:
        raise RuntimeError(why)
    with _alone(), tempfile.TemporaryFile() as console:
        every = {name: os.path.join(path, NAME) for name, path in _hierarchies().items()}
        parents = [parent for name, parent in every.items() if memory or name != "memory"]
        _remove(*every.values())  # what a killed run left
        try:
            for parent in parents:
                os.mkdir(parent)
            namespaces = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
            stage = [
                sys.executable,
                "-I",
                "-S",
                os.path.abspath(__file__),
                json.dumps([parents, dict(units or {}), root, target]),
            ]
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *namespaces, *stage],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                cwd="/",
            )
            machine = None
            try:
                try:
                    machine = _booted(process, parents)
                    if memory:
                        # nspawn mounts v1 controllers read-only; systemd looks for those it may use when it starts.
                        machine.run(["mount", "-o", "remount,rw,bind", "/sys/fs/cgroup/memory"])
                        machine.run(["systemctl", "daemon-reexec"])
                except (RuntimeError, subprocess.SubprocessError) as error:
                    console.seek(0)
                    said = console.read()[-4000:].decode("utf-8", "backslashreplace")
                    raise RuntimeError(f"systemd did not boot: {error}\n{said}") from None
                yield machine
            finally:
                _stop(process, machine)
        finally:
            _remove(*parents)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock that lets one machine run at a time: on nspawn's own file, so that no lock file is left."""
    if not _here.acquire(blocking=False):
        raise RuntimeError("this process has a machine already; a second one would wait for it forever")
    try:
        with open(shutil.which("systemd-nspawn") or "", "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
    finally:
        _here.release()


def _hierarchies() -> dict[str, str]:
    """Where the hierarchies that concern us are mounted: `systemd` (v1, named), `unified` (v2), `memory` (v1)."""
    found: dict[str, str] = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as mounts:
        for line in mounts:
            place, _, kind = line.partition(" - ")
            fstype, _, options = kind.split(None, 2)
            words = options.strip().split(",")
            if fstype == "cgroup2":
                name = "unified"
            elif fstype == "cgroup" and "name=systemd" in words:
                name = "systemd"
            elif fstype == "cgroup" and "memory" in words:
                name = "memory"
            else:
                continue
            found.setdefault(name, place.split()[4])
    return found


def _booted(process: subprocess.Popen[bytes], parents: Sequence[str]) -> Machine:
    """Wait until PID 1 is there and has finished its boot; a failed unit of its own does not matter to us."""
    deadline = time.monotonic() + _BOOT_SECONDS
    state = "no PID 1"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"systemd-nspawn ended with {process.returncode}")
        leader = next((pid for parent in parents if (pid := _init(parent))), 0)
        if leader:
            machine = Machine(leader)
            ready = machine.run(["systemctl", "is-system-running", "--wait"], check=False, timeout=_BOOT_SECONDS)
            state = ready.stdout.strip() or ready.stderr.strip()
            if state in ("running", "degraded"):
                return machine
        time.sleep(0.02)
    raise RuntimeError(f"not ready after {_BOOT_SECONDS} s ({state})")


def _init(parent: str) -> int:
    """The process in init.scope that is PID 1 of its namespace; 0 as long as there is none."""
    for pid in _processes(os.path.join(parent, "payload", "init.scope")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as status:
            if any(line.startswith("NSpid:") and line.split()[-1] == "1" for line in status):
                return pid
    return 0


def _stop(process: subprocess.Popen[bytes], machine: Machine | None) -> None:
    """Ask for a power-off; failing that, kill the first process of the outer PID namespace, and with it all others."""
    if machine is not None and process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(machine.leader, signal.SIGRTMIN + 4)  # systemd(1): starts poweroff.target
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
    process.kill()
    process.wait()


def _processes(group: str) -> list[int]:
    try:
        with open(os.path.join(group, "cgroup.procs"), encoding="ascii") as file:
            return [int(line) for line in file]
    except OSError:  # gone, or going (ENODEV)
        return []


def _remove(*trees: str) -> None:
    """Remove cgroups of ours. What still runs in one after all was started by us: nobody else's is below that name."""
    deadline = time.monotonic() + _STOP_SECONDS
    for tree in trees:
        with contextlib.suppress(OSError), open(os.path.join(tree, "memory.force_empty"), "w") as file:
            file.write("0")  # so that the memory cgroups that tests left dying are gone too
        while os.path.isdir(tree):
            for directory, _, _ in os.walk(tree, topdown=False):
                for pid in _processes(directory):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(OSError):
                    os.rmdir(directory)
            if os.path.isdir(tree):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{tree} cannot be removed: {_processes(tree)} are in it or below")
                time.sleep(0.02)


def _become_nspawn(parents: Sequence[str], units: Mapping[str, str], root: str = "/", target: str = "") -> None:
    """Inside the new namespaces: lay the overlay, take the host's own services out of it, become systemd-nspawn."""
    for parent in parents:
        with open(os.path.join(parent, "cgroup.procs"), "w") as file:
            file.write("0")
    _mount("-t", "tmpfs", "-o", "mode=0755", NAME, "/run")  # nspawn keeps books in /run/systemd/nspawn
    _mount("-t", "tmpfs", "-o", "mode=0755,size=1g", NAME, "/mnt")
    for name in ("upper", "work", "root"):
        os.mkdir(os.path.join("/mnt", name))
    _mount("-t", "overlay", "-o", f"lowerdir={root},upperdir=/mnt/upper,workdir=/mnt/work", NAME, "/mnt/root")
    os.chdir("/mnt/root")

    if root == "/":
        _strip()
    for name in ("etc/machine-id", "etc/fstab", "etc/crypttab"):
        with open(name, "w"):
            pass
    for unit, text in units.items():
        with open(os.path.join("etc/systemd/system", unit), "w", encoding="utf-8") as file:
            file.write(text)

    flags = ["-q", "--register=no", "--keep-unit", "--private-network", "--console=pipe", f"--machine={NAME}"]
    os.environ["SYSTEMD_NSPAWN_TMPFS_TMP"] = "0"  # a clone in /tmp, and its interpreter, are to be seen inside as well
    os.execvp(
        "systemd-nspawn", ["systemd-nspawn", *flags, "-D", "/mnt/root", "-b", *([f"systemd.unit={target}"] if target else [])]
    )


def _strip() -> None:
    """Links in /etc enable a distribution's daemons and timers; without them there is what systemd itself brings."""
    for name in ("etc/systemd/system", *(f"etc/rc{level}.d" for level in "0123456S")):
        shutil.rmtree(name, ignore_errors=True)
    os.makedirs("etc/systemd/system", exist_ok=True)
    os.symlink("/dev/null", "etc/systemd/system/systemd-tmpfiles-clean.timer")
    with contextlib.suppress(FileExistsError):
        os.symlink("/dev/null", "etc/tmpfiles.d/tmp.conf")  # Debian's empties /tmp at boot, where the clone may be
    os.symlink("/usr/lib/systemd/system/multi-user.target", "etc/systemd/system/default.target")


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    _become_nspawn(*json.loads(sys.argv[1]))
