"""What the generators of some packages make: instances of their templates, one for each configuration file that they find."""

import re
from collections.abc import Iterator

from exhume.host.systemd import names
from exhume.host.systemd.unit_file import merge, parse
from exhume.host.tree import Tree

Pieces = Iterator[tuple[str, bytes | str]]
_UNITS = "/usr/lib/systemd/system"


def crypttab(tree: Tree) -> Pieces:
    """systemd-cryptsetup-generator(8): a service for each line of /etc/crypttab that is not noauto."""
    for line in (tree.read("/etc/crypttab") or b"").decode("utf-8", "replace").split("\n"):
        fields = line.split()
        if len(fields) < 2 or fields[0].startswith("#"):
            continue
        unit = f"systemd-cryptsetup@{names.escape(fields[0])}.service"
        if not names.valid(unit):
            continue
        options = set(fields[3].split(",")) if len(fields) > 3 else set()
        yield unit, b"[Unit]\nSourcePath=/etc/crypttab\nDefaultDependencies=no\n[Service]\nType=oneshot\nRemainAfterExit=yes\n"
        if "noauto" not in options:
            target = "remote-cryptsetup.target" if "_netdev" in options else "cryptsetup.target"
            yield f"{target}.{'wants' if 'nofail' in options else 'requires'}/{unit}", f"../{unit}"


def openvpn(tree: Tree) -> Pieces:
    """Debian's openvpn-generator: AUTOSTART of /etc/default/openvpn chooses among /etc/openvpn/*.conf; unset is all."""
    said = re.findall(rb"(?m)^\s*AUTOSTART=[\"']?([^\"'#\n]*)", tree.read("/etc/default/openvpn") or b"")
    chosen = said[-1].decode("utf-8", "replace").split() if said else ["all"]
    if "none" in chosen:
        return
    for file in tree.names("/etc/openvpn"):
        stem = file.removesuffix(".conf")
        unit = f"openvpn@{stem}.service"
        if file.endswith(".conf") and names.valid(unit) and (stem in chosen or not chosen or chosen == ["all"]):
            yield f"openvpn.service.wants/{unit}", f"{_UNITS}/openvpn@.service"


def postgresql(tree: Tree) -> Pieces:
    """postgresql-common: each /etc/postgresql/VERSION/CLUSTER whose start.conf does not say manual or disabled."""
    for version in tree.names("/etc/postgresql"):
        for cluster in tree.names(f"/etc/postgresql/{version}"):
            place = f"/etc/postgresql/{version}/{cluster}"
            unit = f"postgresql@{version}-{cluster}.service"
            if tree.entry(f"{place}/postgresql.conf") is None or not names.valid(unit):
                continue
            start = re.search(rb"(?m)^\s*(auto|manual|disabled)\b", tree.read(f"{place}/start.conf") or b"")
            if start is None or start[1] == b"auto":
                yield f"postgresql.service.wants/{unit}", f"{_UNITS}/postgresql@.service"


def netplan(tree: Tree) -> Pieces:
    """netplan-generate(8): with a configuration for networkd that service is enabled; its files are not units."""
    places = ("/etc/netplan", "/run/netplan", "/usr/lib/netplan", "/lib/netplan")
    texts = [
        tree.read(f"{place}/{file}") or b""
        for place in places
        for file in tree.names(place)
        if file.endswith((".yaml", ".yml"))
    ]
    if texts and not any(re.search(rb"(?m)^\s*renderer:\s*NetworkManager", text) for text in texts):
        for target, unit in (
            ("multi-user.target", "systemd-networkd.service"),
            ("network-online.target", "systemd-networkd-wait-online.service"),
        ):
            if tree.entry(f"{_UNITS}/{unit}") is not None:
                yield f"{target}.wants/{unit}", f"{_UNITS}/{unit}"


def cloud_init(tree: Tree) -> Pieces:
    """cloud-init's generator: cloud-init.target is wanted unless a file disables it. A machine without a cloud it leaves alone,
    which the image cannot tell."""
    if tree.entry("/etc/cloud/cloud-init.disabled") is None and tree.entry(f"{_UNITS}/cloud-init.target") is not None:
        yield "multi-user.target.wants/cloud-init.target", f"{_UNITS}/cloud-init.target"


def rpc_pipefs(tree: Tree) -> Pieces:
    """nfs-common: pipefs-directory of nfs.conf(5), where it is not the one that the package's own units have."""
    said = merge([parse(tree.read("/etc/nfs.conf") or b"")]).last("general", "pipefs-directory")
    mount = names.of_path(said, "mount")
    if said.startswith("/") and said.rstrip("/") != "/var/lib/nfs/rpc_pipefs" and names.valid(mount):
        yield "rpc_pipefs.target", f"[Unit]\nRequires={mount}\nAfter={mount}\n".encode()
        unit = f"[Unit]\nDefaultDependencies=no\nConflicts=umount.target\n[Mount]\nWhat=sunrpc\nWhere={said}\nType=rpc_pipefs\n"
        yield mount, unit.encode()
