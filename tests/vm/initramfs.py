"""The first file system of a machine, made for each run: busybox, the kernel's modules, and what the run brings along."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.vm.tools import Unavailable

# What is below /payload goes to /run, which systemd takes over as it finds it. So the disk image stays the same for all runs.
_INIT = b"""#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev
for module in /modules/*.ko; do
    [ -e "$module" ] && $b insmod "$module"
done
tries=0
until [ -b /dev/vda ] || [ $tries -ge 100 ]; do
    $b sleep 0.1
    tries=$((tries + 1))
done
$b mount -t ext4 /dev/vda /root || exit 1
$b mount -t tmpfs -o mode=0755,size=128m run /root/run || exit 1
$b cp -r /payload/. /root/run/ || exit 1
exec $b switch_root /root /sbin/init
"""


def make(path: Path, modules: tuple[Path, ...], payload: Mapping[str, bytes]) -> None:
    """Write it to `path`. The payload's names are relative to /run."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise Unavailable("needs busybox (Debian: busybox-static)")
    files = {"init": _INIT, "bin/busybox": Path(busybox).read_bytes()}
    files |= {f"modules/{module.name}": module.read_bytes() for module in modules}
    files |= {f"payload/{name}": content for name, content in payload.items()}
    path.write_bytes(_newc(files, ("dev", "root", "modules", "payload")))


def _newc(files: Mapping[str, bytes], empty: tuple[str, ...]) -> bytes:
    """A cpio archive in the kernel's format (Documentation/driver-api/early-userspace/buffer-format.rst)."""
    folders = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
    out = bytearray()
    for number, name in enumerate(sorted(folders | set(empty)) + sorted(files)):
        _entry(out, number, name, 0o100755 if name in files else 0o040755, files.get(name, b""))
    _entry(out, 0, "TRAILER!!!", 0, b"")
    return bytes(out)


def _entry(out: bytearray, inode: int, name: str, mode: int, content: bytes) -> None:
    encoded = name.encode() + b"\0"
    # ino mode uid gid nlink mtime filesize major minor rmajor rminor namesize check
    fields = (inode, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0)
    out += b"070701" + b"".join(b"%08x" % field for field in fields) + encoded
    out += bytes(-len(out) % 4) + content
    out += bytes(-len(out) % 4)
