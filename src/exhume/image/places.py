"""What of an archive is worth its memory: the places that say what runs by itself, and who brought it.

Everything else is kept by name and kind alone, because units ask whether it is there (ConditionPathExists= and its like).
"""

from typing import Final

from exhume.host.tree import LARGEST

_DATABASE: Final = 96 << 20

# Places in the root, and the largest file of each that is kept whole.
_PLACES: Final = (
    ("etc", LARGEST),
    ("run", LARGEST),
    ("usr/lib/systemd", LARGEST),
    ("usr/local/lib/systemd", LARGEST),
    ("usr/local/share/systemd", LARGEST),
    ("usr/share/systemd", LARGEST),
    ("usr/lib/os-release", LARGEST),
    ("usr/lib/modules-load.d", LARGEST),
    ("usr/lib/tmpfiles.d", LARGEST),
    ("usr/lib/udev/rules.d", LARGEST),
    ("usr/share/containers", LARGEST),  # quadlets: podman-systemd.unit(5)
    ("usr/share/dbus-1", LARGEST),
    ("usr/share/user-tmpfiles.d", LARGEST),
    ("usr/etc", LARGEST),
    ("var/lib/cloud", LARGEST),
    ("var/lib/containerd/io.containerd.metadata.v1.bolt", _DATABASE),
    ("var/lib/containers/storage/db.sql", _DATABASE),
    ("var/lib/containers/storage/libpod", _DATABASE),
    ("var/lib/containers/storage/overlay-containers", LARGEST),
    ("var/lib/docker/containers", LARGEST),
    ("var/lib/kubelet", LARGEST),
    ("var/lib/rancher", LARGEST),
    ("var/lib/snapd", LARGEST),
    ("var/lib/systemd", LARGEST),
    ("var/spool/at", LARGEST),
    ("var/spool/cron", LARGEST),
    ("lib/systemd", LARGEST),
    ("lib/modules-load.d", LARGEST),
    ("lib/udev/rules.d", LARGEST),
    ("var/lib/dpkg", _DATABASE),
    ("var/lib/rpm", _DATABASE),
    ("usr/lib/sysimage/rpm", _DATABASE),
    ("lib/apk/db", _DATABASE),
    ("usr/lib/apk/db", _DATABASE),
    ("var/lib/pacman/local", LARGEST),
)

_UNWANTED: Final = ("etc/ssl", "etc/pki", "etc/alternatives", "etc/selinux", "usr/lib/systemd/boot", "usr/lib/systemd/catalog")

_NO_USE: Final = (".md5sums", ".templates", ".symbols", ".shlibs")  # of var/lib/dpkg/info, half of its bytes

_UNITS: Final = (
    *(".service", ".socket", ".target", ".timer", ".path", ".mount", ".automount", ".slice", ".swap", ".scope"),
    *(".container", ".kube", ".pod", ".preset"),
)

_LINKED: Final = ("systemd", "cron", "init.d", "manifests", "dbus-1", "rc.local")
"""Names of directories where a link stands for the file it points to, wherever that is."""


def wanted(path: str) -> int:
    """How many bytes of a file are worth keeping; 0 for one that is none of ours. The path has no slash at its beginning."""
    if path.startswith(_DIRECTORIES) or path in _NAMES:
        return (
            0
            if path.startswith(_NOT_THESE) or path.endswith(_NO_USE)
            else next(size for place, size in _PLACES if path.startswith(place))
        )
    if path.endswith(_UNITS) or (path.startswith(_HOMES) and "/.config/" in path):
        return LARGEST
    return 0


def matters(path: str) -> bool:
    """Whether a directory is one of the places, or on the way to one."""
    return path in _ON_THE_WAY or (path + "/").startswith(_DIRECTORIES)


def links_matter(path: str) -> bool:
    """Whether a link there stands for its target: a unit file, a crontab, a static pod that is kept somewhere else."""
    return any(name in _LINKED or name.startswith("cron.") for name in path.split("/"))


_DIRECTORIES: Final = tuple(place + "/" for place, _ in _PLACES)
_ON_THE_WAY: Final = frozenset(place.rsplit("/", count)[0] for place, _ in _PLACES for count in range(place.count("/") + 1))
_NAMES: Final = frozenset(place for place, _ in _PLACES)
_NOT_THESE: Final = tuple(place + "/" for place in _UNWANTED)
_HOMES: Final = ("home/", "root/")
