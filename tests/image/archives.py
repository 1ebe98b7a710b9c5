"""A small root with everything that makes reading one hard, as a directory and as archives, and the archives' parts."""

import bz2
import gzip
import io
import json
import lzma
import os
import tarfile
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

from exhume.host.tree import Tree

UNIT = b"[Unit]\nDescription=Agent\n[Service]\nExecStart=/usr/bin/agent\nRestart=on-failure\n"


def make_root(root: Path) -> None:
    """Merged /usr, links of every kind, a name that is no UTF-8, a unit that is kept somewhere else."""
    for name in (
        "etc/systemd/system/multi-user.target.wants",
        "usr/lib/systemd/system",
        "usr/bin",
        "opt/agent",
        "var/spool/cron",
    ):
        (root / name).mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "usr/lib/systemd/system/agent.service").write_bytes(UNIT)
    (root / "etc/systemd/system/multi-user.target.wants/agent.service").symlink_to("/lib/systemd/system/agent.service")
    (root / "etc/systemd/system/masked.service").symlink_to("/dev/null")
    (root / "etc/systemd/system/outside.service").symlink_to("../../../../../../opt/agent/unit")
    (root / "opt/agent/unit").write_bytes(b"[Service]\nExecStart=/opt/agent/run\n")
    (root / "etc/systemd/system/empty.service").touch()
    (root / "usr/bin/agent").write_bytes(b"\x7fELF" + bytes(5000))
    (root / "usr/bin/agent").chmod(0o755)
    (root / "etc/os-release").write_text('PRETTY_NAME="A node"\n')
    (root / "etc/large").write_bytes(bytes(range(256)) * 1000)
    (root / ("etc/" + "long" * 50)).mkdir()
    (root / ("etc/" + "long" * 50) / ("name" * 40)).write_text("deep")
    os.link(root / "etc/os-release", root / "etc/hard")
    with open(os.fsencode(root) + b"/etc/\xff\n.service", "wb") as file:
        file.write(UNIT)
    (root / "etc/around").symlink_to("around")


def everything(tree: Tree, unread: tuple[str, ...] = ()) -> dict[str, object]:
    """All that a tree says about all its paths, but for the content below places that an archive keeps no content of."""
    said: dict[str, object] = {}
    ways = ["/"]
    while ways:
        path = ways.pop()
        entry = tree.entry(path, follow=False)
        assert entry is not None
        read = None if path.startswith(unread) or entry.kind != "file" else tree.read(path)
        shape = (entry.kind, entry.target) if unread and path.startswith(unread) else entry
        said[path] = (shape, tree.real(path), tree.names(path), read)
        if entry.kind == "directory":
            ways.extend(path.rstrip("/") + "/" + name for name in tree.names(path))
    return said


class Info(tarfile.TarInfo):
    """A member with what is in it."""

    content = b""


def member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, target: str = "", mode: int = 0o644) -> Info:
    info = Info(name)
    info.type, info.size, info.linkname, info.mode = kind, len(content), target, mode
    info.content = content
    return info


def directory(name: str) -> Info:
    return member(name, kind=tarfile.DIRTYPE, mode=0o755)


def link(name: str, target: str) -> Info:
    return member(name, kind=tarfile.SYMTYPE, target=target)


def tar(infos: Iterable[Info], form: int = tarfile.GNU_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, errors="surrogateescape") as archive:
        for info in infos:
            archive.addfile(info, io.BytesIO(info.content))
    return out.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {"": bytes, "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


def pack(root: Path, path: Path, how: str = "") -> None:
    """A directory as tar -C root . makes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(str(root), ".")
    path.write_bytes(PACKED[how](out.getvalue()))


def docker(layers: list[bytes]) -> bytes:
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = json.dumps([{"Config": "c.json", "RepoTags": ["a:1"], "Layers": names}]).encode()
    return tar([*(member(*one) for one in zip(names, layers, strict=True)), member("manifest.json", manifest)])


def blob(content: bytes) -> tuple[str, dict[str, object]]:
    digest = sha256(content).hexdigest()
    return f"blobs/sha256/{digest}", {"digest": f"sha256:{digest}", "size": len(content)}


def oci(layers: list[bytes]) -> dict[str, bytes]:
    """The files of an OCI layout."""
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
    described = []
    for layer in layers:
        name, descriptor = blob(layer)
        files[name] = layer
        described.append(descriptor)
    manifest = json.dumps({"schemaVersion": 2, "layers": described}).encode()
    name, descriptor = blob(manifest)
    files[name] = manifest
    files["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [descriptor]}).encode()
    return files
