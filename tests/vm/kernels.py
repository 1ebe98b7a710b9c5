"""Debian's cloud kernels, got from the archive and unpacked without being installed.

Only what a boot needs is kept: the kernel and the modules that stand between it and its root file system, in the order in
which they are to be loaded.
"""

import lzma
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from tests.vm.apt import PrivateApt
from tests.vm.cache import discard, scratch
from tests.vm.tools import INSTALL_SECONDS, Unavailable, run

SUITES = {"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie", "7.2": "sid"}
MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "veth")
"""Loaded by the initramfs where the kernel does not have them built in; ext4 and the serial port always are. veth is for
links between network namespaces; by itself it makes no device."""

_META = "linux-image-cloud-amd64"
_WANTED = "wanted"
_FRESH_SECONDS = 14 * 86400
# Since 7.0 or so the image package is empty and the kernel is in these.
_PARTS = re.compile(r"\b(linux-(?:binary|modules)-[a-z0-9.+-]+)")
_DEPENDS = re.compile(rb"\0depends=([a-zA-Z0-9_,-]*)\0")


@dataclass(frozen=True, slots=True)
class Kernel:
    release: str
    """What uname says once it runs."""
    image: Path
    modules: tuple[Path, ...]


def get(here: Path, version: str) -> Kernel:
    """The suite's current kernel of that version, from the cache while it is fresh or when the archive is out of reach."""
    if version not in SUITES:
        raise Unavailable(f"no kernel {version} is known here, only {', '.join(SUITES)}")
    shelf = here / "kernels" / version
    shelf.mkdir(parents=True, exist_ok=True)
    cached = max(filter(_whole, shelf.iterdir()), key=lambda path: path.stat().st_mtime, default=None)
    if cached is None or time.time() - cached.stat().st_mtime > _FRESH_SECONDS:
        try:
            cached = _fetch(here, shelf, version)
        except Unavailable:
            if cached is None:
                raise
            os.utime(cached)  # good for as long again, so that a machine without network does not ask every time
    return Kernel(cached.name, cached / "vmlinuz", tuple(sorted((cached / "modules").iterdir())))


def _whole(kept: Path) -> bool:
    """Whether it was kept with the modules that are asked for now."""
    wanted = kept / _WANTED
    return wanted.exists() and wanted.read_text() == " ".join(MODULES)


def _fetch(here: Path, shelf: Path, version: str) -> Path:
    with scratch(here) as work:
        apt = PrivateApt(work / "apt", SUITES[version])
        apt.update()
        meta = apt.show(_META)
        if not meta["Version"].startswith(f"{version}."):
            raise Unavailable(f"Debian's {SUITES[version]} now has kernel {meta['Version']}, no {version}")
        image = re.search(r"\blinux-image-([0-9][a-z0-9.+-]*)", meta.get("Depends", ""))
        if image is None:
            raise Unavailable(f"{_META} of Debian's {SUITES[version]} depends on no kernel")
        release = image[1]
        target = shelf / release
        if target.exists() and _whole(target):
            os.utime(target)
            return target
        packages = _PARTS.findall(apt.show(image[0]).get("Depends", "")) or [image[0]]
        (work / "packages").mkdir()
        for package in apt.download(packages, work / "packages"):
            run(["dpkg-deb", "--extract", package, work / "tree"], INSTALL_SECONDS)
        (work / release).mkdir()
        _pick(work / "tree", work / release)
        (work / release / _WANTED).write_text(" ".join(MODULES))
        discard(target)
        (work / release).rename(target)
    for old in shelf.iterdir():
        if old != target:
            discard(old)
    return target


def _pick(tree: Path, into: Path) -> None:
    """Move the kernel out of the unpacked packages, and the modules with what they depend on, first things first.

    modules.dep is made at installation; what a module needs is also in the module itself (MODULE_INFO "depends").
    """
    images = [*tree.glob("boot/vmlinuz-*"), *tree.glob("usr/lib/modules/*/vmlinuz")]
    if len(images) != 1:
        raise Unavailable(f"Debian's kernel packages hold {len(images)} kernels, not one")
    images[0].rename(into / "vmlinuz")
    files = {path.name.split(".ko")[0].replace("-", "_"): path for path in tree.rglob("*.ko*")}
    order: dict[str, bytes] = {}

    def want(name: str) -> None:
        if name in order or name not in files:
            return
        content = files[name].read_bytes()
        if files[name].suffix == ".xz":
            content = lzma.decompress(content)
        needs = _DEPENDS.search(content)
        for needed in needs[1].decode().split(",") if needs else ():
            want(needed.replace("-", "_"))
        order[name] = content

    for name in MODULES:
        want(name)
    (into / "modules").mkdir()
    for number, (name, content) in enumerate(order.items()):
        (into / "modules" / f"{number:02}-{name}.ko").write_bytes(content)
