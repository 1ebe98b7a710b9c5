"""What the reader of tenants' files gives up before it reads any: user, capabilities, files, memory, system calls."""

import ctypes
import errno
import os
import resource
import signal
import struct
import tempfile
from typing import Final

_NOBODY: Final = 65534  # DEFAULT_OVERFLOWUID of include/linux/highuid.h
MEMORY: Final = 256 << 20
"""RLIMIT_AS. Python, numpy and their libraries take 100 MiB of it; a symbol table of elf.MOST_FUNCTIONS takes 110 MiB more at
its peak. With agent.memory_limit_mib it stays below the memory limits of the unit and the chart."""
_FILES: Final = 512

# include/uapi/linux/prctl.h, include/uapi/linux/seccomp.h
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
_SECCOMP_MODE_FILTER: Final = 2
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # SECCOMP_RET_ALLOW, _ERRNO with EPERM, _KILL_PROCESS
_LAST_CAPABILITY: Final = 63
_CAPABILITY_VERSION_3: Final = 0x20080522  # include/uapi/linux/capability.h

# include/uapi/linux/landlock.h; the numbers of its calls are the same on every machine (include/uapi/asm-generic/unistd.h).
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT = 444, 446
_LANDLOCK_VERSION: Final = 1
_LANDLOCK_FILES: Final = {1: 13, 2: 14, 3: 15, 5: 16}
"""By version of its interface: how many rights to files it knows."""
_LANDLOCK_NET, _LANDLOCK_SCOPES = 4, 6
"""From these versions on it knows two rights to TCP, and two scopes: abstract sockets and signals."""

# struct seccomp_data: the number of the call at 0, the machine at 4. Classic BPF: load word, jump if equal, return.
_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06

# AUDIT_ARCH_* of include/uapi/linux/audit.h
_MACHINES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# What a Python needs that reads files it was given, and answers: arch/x86/entry/syscalls/syscall_64.tbl and
# include/uapi/asm-generic/unistd.h. newfstatat is what the C library makes of fstat; a path leads nowhere from here.
_CALLS: Final = {
    "read": (0, 63), "close": (3, 57), "fstat": (5, 80), "newfstatat": (262, 79), "poll": (7, None), "ppoll": (271, 73),
    "lseek": (8, 62), "pread64": (17, 67), "fcntl": (72, 25), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215),
    "mremap": (25, 216), "madvise": (28, 233), "brk": (12, 214), "futex": (202, 98), "sigaltstack": (131, 132),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "restart_syscall": (219, 128),
    "setitimer": (38, 103), "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113),
    "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211), "recvmsg": (47, 212), "getrandom": (318, 278),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getrusage": (98, 165), "rseq": (334, 293),
    "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)


def enter() -> tuple[str, ...]:
    """Give up all that can be given up, and return what could not be, a phrase each.

    With CAP_SETUID, CAP_SETGID and CAP_SYS_CHROOT the process becomes nobody in an empty root. Without them (the unit and the
    chart have none of the three) it keeps its user and root. In both cases it keeps no capability, can gain none, and can open
    nothing: by seccomp and by Landlock. Raises OSError where the kernel has neither of the two, or where a step fails that
    cannot fail.
    """
    missing = []
    root = os.geteuid() == 0
    _must(_PR_SET_NO_NEW_PRIVS, 1)  # seccomp and Landlock ask for it
    if root:
        missing += _leave_files()
    for limit, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_NOFILE, _FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))
    if root:
        missing += _leave_user()
    _drop_capabilities()
    _must(_PR_SET_DUMPABLE, 0)
    _must(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the change of user took the one we had
    closed = [_deny_files(), _filter_calls()]
    if all(closed):
        raise PermissionError(errno.EPERM, "; ".join(closed))
    return (*missing, *filter(None, closed))


def _must(what: int, argument: int) -> None:
    """These cannot fail on any kernel we run on. If one does, no file is read."""
    if _libc.prctl(what, argument, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {what}")


def _leave_files() -> list[str]:
    """Into a directory that is empty, and is not there any more."""
    try:
        place = tempfile.mkdtemp(prefix="exhume-")
        fd = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        os.rmdir(place)
        os.fchdir(fd)
        os.chroot(".")
        os.close(fd)
    except OSError as error:
        return [f"no chroot ({error.strerror})"]
    return []


def _leave_user() -> list[str]:
    """The bounding set goes where CAP_SETPCAP is held; without it no_new_privs keeps execve(2) from adding capabilities."""
    for capability in range(_LAST_CAPABILITY + 1):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    try:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    except PermissionError as error:
        return [f"it stays user {os.geteuid()} ({error.strerror})"]
    return []


def _drop_capabilities() -> None:
    """All of them: effective, permitted, inheritable. Giving up is always allowed."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _deny_files() -> str:
    """By Landlock: no file is opened, made, run or removed by its path. Descriptors that others opened are not affected."""
    version = _libc.syscall(_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION)
    if version < 1:
        return f"no Landlock ({os.strerror(ctypes.get_errno())})"
    files = max(count for since, count in _LANDLOCK_FILES.items() if since <= version)
    wanted = [(1 << files) - 1, *([3] if version >= _LANDLOCK_NET else []), *([3] if version >= _LANDLOCK_SCOPES else [])]
    rules = struct.pack(f"={len(wanted)}Q", *wanted)  # struct landlock_ruleset_attr
    ruleset = _libc.syscall(_LANDLOCK_CREATE, rules, len(rules), 0)
    if ruleset < 0:
        return f"no Landlock ({os.strerror(ctypes.get_errno())})"
    failed = _libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0) != 0
    reason = f"no Landlock ({os.strerror(ctypes.get_errno())})" if failed else ""
    os.close(ruleset)
    return reason


def _filter_calls() -> str:
    """Refuse every system call that is not in the list."""
    machine = os.uname().machine
    if machine not in _MACHINES:
        return f"no seccomp filter (the numbers of system calls on {machine} are not known)"
    calls = [numbers[machine == "aarch64"] for numbers in _CALLS.values()]
    code = filter_code(_MACHINES[machine], [call for call in calls if call is not None])
    program = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(code) // 8, ctypes.addressof(program))  # struct sock_fprog
    if _libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, head, 0, 0) != 0:
        return f"no seccomp filter ({os.strerror(ctypes.get_errno())})"
    return ""


def filter_code(machine: int, calls: list[int]) -> bytes:
    """The program: struct sock_filter after struct sock_filter."""
    code = [(_LOAD, 0, 0, 4), (_JUMP_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    code += [(_JUMP_EQUAL, len(calls) - at, 0, call) for at, call in enumerate(calls)]
    code += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
