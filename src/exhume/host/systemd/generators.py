"""Generators make units at boot, and an image's are never run: what the known ones would make is worked out from their input.

Of many the answer is "nothing that is in the image": they go by the kernel's command line or by the hardware. Those that are
not known are listed, since what they would start cannot be told without running them.
"""

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from exhume.host.systemd import fstab, instances
from exhume.host.systemd.made import PLACE, Made
from exhume.host.tree import Tree
from exhume.text import from_path

# systemd.generator(7): a name in an earlier place hides it in the others; an empty file or a link to /dev/null switches it off.
_PLACES = (
    *("/run/systemd/system-generators", "/etc/systemd/system-generators"),
    *("/usr/local/lib/systemd/system-generators", "/usr/lib/systemd/system-generators", "/lib/systemd/system-generators"),
)
_USER_PLACES = tuple(place.replace("system-generators", "user-generators") for place in _PLACES)

MACHINE = "goes by the kernel's command line or the hardware, not by the image"
ELSEWHERE = "is read apart"

QUIET = {
    # What they make starts nothing that an image's files could tell, with the reason.
    "systemd-debug-generator": MACHINE,
    "systemd-getty-generator": MACHINE,
    "systemd-gpt-auto-generator": MACHINE,
    "systemd-hibernate-resume-generator": MACHINE,
    "systemd-run-generator": MACHINE,
    "systemd-bless-boot-generator": MACHINE,
    "systemd-tpm2-generator": MACHINE,
    "systemd-import-generator": MACHINE,
    "systemd-ssh-generator": MACHINE,
    "systemd-factory-reset-generator": MACHINE,
    "systemd-system-update-generator": "replaces default.target for one boot, when /system-update is there",
    "systemd-veritysetup-generator": MACHINE,
    "systemd-integritysetup-generator": MACHINE,
    "systemd-sysv-generator": ELSEWHERE,
    "systemd-rc-local-generator": ELSEWHERE,
    "podman-system-generator": ELSEWHERE,
    "podman-user-generator": ELSEWHERE,
    "snapd-generator": "mounts snaps in containers and nothing else",
    "snapd-environment-generator": "sets variables and starts nothing",
    "lvm2-activation-generator": "activates volumes and ends",
    "nfs-server-generator": "orders the server after the file systems that it exports",
    "friendly-recovery": MACHINE,
    "selinux-autorelabel-generator.sh": "replaces default.target for one boot",
    "zram-generator": "makes swap on zram",
    "kdump-dep-generator.sh": "orders kdump after the target that it writes to",
    "ostree-system-generator": "mounts /var",
    "systemd-xdg-autostart-generator": "starts a desktop's programs, where there is a desktop",
}


@dataclass(frozen=True, slots=True)
class Generators:
    tree: Tree
    """With what they would make on top."""
    unknown: tuple[str, ...]
    """Paths of those that are not known."""
    known: dict[str, str] = field(default_factory=dict)
    """Of each one that is: what it makes, in words."""


Model = Callable[[Tree], Iterator[tuple[str, bytes | str]]]
MODELS: dict[str, Model] = {
    # Each gives paths below the generator's directory, with a file's content or a link's target.
    "systemd-fstab-generator": fstab.mounts,
    "systemd-cryptsetup-generator": instances.crypttab,
    "openvpn-generator": instances.openvpn,
    "postgresql-generator": instances.postgresql,
    "netplan": instances.netplan,
    "cloud-init-generator": instances.cloud_init,
    "rpc-pipefs-generator": instances.rpc_pipefs,
}


def model(tree: Tree, manager: str = "system") -> Generators:
    """Where they have run, what they made is in /run: nothing is put on top then, and none is unknown."""
    if manager == "system" and tree.names(PLACE):
        return Generators(tree, ())
    files: dict[str, bytes] = {}
    links: dict[str, str] = {}
    known: dict[str, str] = {}
    unknown: list[str] = []
    for name, path in _present(tree, _PLACES if manager == "system" else _USER_PLACES):
        made = MODELS.get(name)
        if made is not None:
            known[name] = "is worked out from what it reads"
            for where, what in made(tree):
                if isinstance(what, bytes):
                    files[f"{PLACE}/{where}"] = what
                else:
                    links[f"{PLACE}/{where}"] = what
        elif name in QUIET:
            known[name] = QUIET[name]
        else:
            unknown.append(from_path(path))
    return Generators(Made(tree, files, links) if files or links else tree, tuple(unknown), known)


def _present(tree: Tree, places: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for place in dict.fromkeys(tree.real(place) for place in places):
        for name in tree.names(place) if place else ():
            if name in seen:
                continue
            seen.add(name)
            own = tree.entry(f"{place}/{name}", follow=False)
            if own is None or own.target == "/dev/null":
                continue
            entry = tree.entry(f"{place}/{name}")
            # One that links out of what an archive keeps has no entry; its name still says what it is.
            if entry is None or (entry.kind == "file" and entry.size and entry.mode & 0o111):
                yield posixpath.basename(name), f"{place}/{name}"
