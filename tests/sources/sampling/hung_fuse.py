"""A FUSE file system in a mount namespace of its own that stops answering.

python -m tests.sources.sampling.hung_fuse DIRECTORY WHEN

WHEN is `silent` (nothing is taken up but the first greeting), `lookup` (all is taken up and nothing answered) or `read` (files
can be opened, not read): the kernel lets a process that waits be killed in the first case alone. It says `ready`, and
stays until it is killed, which ends every request that waits. Numbers are those of include/uapi/linux/fuse.h.
"""

import ctypes
import errno
import os
import struct
import sys
import time

_LOOKUP, _GETATTR, _OPEN, _READ, _STATFS, _INIT = 1, 3, 14, 15, 17, 26
_CLONE_NEWNS, _MS_REC, _MS_PRIVATE = 0x20000, 0x4000, 0x40000
_FILE = 2

libc = ctypes.CDLL(None, use_errno=True)


def attributes(node: int) -> bytes:
    mode = 0o100644 if node == _FILE else 0o040755
    return struct.pack("<QQQQQQIIIIIIIIII", node, 1 << 20, 2048, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode: int, node: int) -> bytes | int:
    if opcode == _INIT:
        return struct.pack("<IIIIHHIIHHI28x", 7, 31, 0, 0, 1, 1, 4096, 1, 1, 0, 0)
    if opcode == _LOOKUP:
        return struct.pack("<QQQQII", _FILE, 1, 60, 60, 0, 0) + attributes(_FILE)
    if opcode == _GETATTR:
        return struct.pack("<QII", 60, 0, 0) + attributes(node)
    if opcode == _OPEN:
        return struct.pack("<QII", 1, 0, 0)
    return -errno.ENOSYS


def main(directory: str, when: str) -> None:
    if libc.unshare(_CLONE_NEWNS) or libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None):
        sys.exit("a mount namespace cannot be made here")
    try:
        fuse = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        sys.exit(str(error))
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"fuse", directory.encode(), b"fuse", 0, options):
        sys.exit(os.strerror(ctypes.get_errno()))
    print("ready", flush=True)
    while True:
        request = os.read(fuse, 1 << 20)
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        if opcode != _INIT and (when == "lookup" or opcode == _READ):
            continue
        told = answer(opcode, node)
        body = told if isinstance(told, bytes) else b""
        if when == "silent":
            os.write(fuse, struct.pack("<IiQ", 16 + len(body), 0, unique) + body)
            time.sleep(1000)
        os.write(fuse, struct.pack("<IiQ", 16 + len(body), 0 if isinstance(told, bytes) else told, unique) + body)


if __name__ == "__main__":
    main(*sys.argv[1:])
