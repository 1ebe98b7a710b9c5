"""Capabilities by name: to give them up in this process, or to start a command with some of them."""

import ctypes
import struct
from collections.abc import Collection

# include/uapi/linux/capability.h
NUMBERS = {
    "DAC_READ_SEARCH": 2, "KILL": 5, "SETGID": 6, "SETUID": 7, "SETPCAP": 8, "SYS_CHROOT": 18, "SYS_PTRACE": 19,
    "SYS_ADMIN": 21, "SYS_NICE": 23, "SYS_RESOURCE": 24, "SYSLOG": 34, "PERFMON": 38, "BPF": 39, "CHECKPOINT_RESTORE": 40,
}  # fmt: skip
_VERSION_3 = 0x20080522


def setpriv(kept: Collection[str]) -> list[str]:
    """The words before a command that runs as root with these capabilities and no others; by number, since setpriv of 2022 does
    not know the names of all."""
    return ["setpriv", "--bounding-set=" + ",".join(["-all", *(f"+cap_{NUMBERS[one]}" for one in kept)]), "--no-new-privs"]


def keep(kept: Collection[str]) -> None:
    """Give up all others in this process, for good. Without root nothing is held anyway."""
    libc = ctypes.CDLL(None, use_errno=True)
    bits = sum(1 << NUMBERS[one] for one in kept)
    for number in range(64):
        if not bits >> number & 1:
            libc.prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP
    low, high = bits & 0xFFFFFFFF, bits >> 32
    libc.capset(struct.pack("=Ii", _VERSION_3, 0), struct.pack("=6I", low, low, 0, high, high, 0))
