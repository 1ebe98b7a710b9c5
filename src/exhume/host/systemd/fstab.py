"""The mounts and swaps that systemd-fstab-generator(8) makes of /etc/fstab."""

from collections.abc import Iterator

from exhume.host.systemd import names
from exhume.host.tree import Tree

_MOST_LINES = 10_000
_NETWORK = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "lustre", "ncpfs", "ocfs2", "gfs2", "9p", "afs", "sshfs")
)
_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\", "\\043": "#"}  # fstab(5)


def mounts(tree: Tree) -> Iterator[tuple[str, bytes | str]]:
    for line in (tree.read("/etc/fstab") or b"").split(b"\n")[:_MOST_LINES]:
        try:
            fields = line.decode("utf-8").split()
        except UnicodeDecodeError:
            continue
        if len(fields) < 3 or fields[0].startswith("#") or b"\0" in line:
            continue
        what, where, kind = (_plain(field) for field in fields[:3])
        options = set(fields[3].split(",")) if len(fields) > 3 else set()
        if kind == "swap":
            yield from _swap(_device(what), options)
        elif where.startswith("/"):
            yield from _mount(_device(what), where, kind, options)


def _plain(field: str) -> str:
    for written, meant in _ESCAPES.items():
        field = field.replace(written, meant)
    return field


def _device(what: str) -> str:
    """fstab_node_to_udev_node(), src/shared/fstab-util.c"""
    tag, equals, value = what.partition("=")
    kinds = {"LABEL": "label", "UUID": "uuid", "PARTUUID": "partuuid", "PARTLABEL": "partlabel"}
    return f"/dev/disk/by-{kinds[tag]}/{value.strip(chr(34))}" if equals and tag in kinds else what


def _mount(what: str, where: str, kind: str, options: set[str]) -> Iterator[tuple[str, bytes | str]]:
    name = names.of_path(where, "mount")
    if not names.valid(name):
        return
    yield name, _unit("Mount", f"What={_escaped(what)}", f"Where={_escaped(where)}", f"Type={_escaped(kind)}")
    if where in ("/", "/usr"):
        yield "local-fs.target.wants/systemd-remount-fs.service", "/usr/lib/systemd/system/systemd-remount-fs.service"
    if "noauto" in options and "x-systemd.automount" not in options:
        return
    network = "_netdev" in options or kind in _NETWORK
    target = "remote-fs.target" if network else "local-fs.target"
    optional = "nofail" in options
    if "x-systemd.automount" in options:
        automount = names.with_kind(name, "automount")
        yield automount, _unit("Automount", f"Where={_escaped(where)}")
        name = automount
    yield f"{target}.{'wants' if optional else 'requires'}/{name}", f"../{name}"


def _swap(what: str, options: set[str]) -> Iterator[tuple[str, bytes | str]]:
    name = names.of_path(what, "swap")
    if not what.startswith("/") or not names.valid(name):
        return
    yield name, _unit("Swap", f"What={_escaped(what)}")
    if "noauto" not in options:
        yield f"swap.target.{'wants' if 'nofail' in options else 'requires'}/{name}", f"../{name}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("%", "%%").replace("\n", "\\n")


def _unit(section: str, *lines: str) -> bytes:
    return "\n".join(("[Unit]", "SourcePath=/etc/fstab", f"[{section}]", *lines, "")).encode()
