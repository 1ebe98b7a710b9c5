"""Which of the things that start are somebody's choice: what runs a program of its own and is no part of booting itself."""

from exhume.host.service import Service
from exhume.text import decode, from_path

# Unit types that run a program, or have one run (systemd.unit(5)); the others put things in order, or mount and measure them.
RUNNING = (".service", ".timer", ".socket", ".path")
TRIGGERS = (".timer", ".socket", ".path")

# Packages whose static units are the boot itself: nobody enabled them and nobody can disable them.
_BOOT = ("systemd", "systemd-", "udev", "kmod", "util-linux", "dracut", "initramfs-tools", "plymouth")


def kept(name: str) -> str:
    """A name as text that any file may hold. From files it has bytes that are no UTF-8, from JSON halves of characters."""
    try:
        return from_path(name)
    except UnicodeEncodeError:
        return decode(name.encode("utf-8", "surrogatepass"))


def runs(service: Service) -> bool:
    """Whether it runs a program of its own; targets, slices, mounts and the like do not."""
    return service.kind not in ("unit", "user-unit") or service.name.endswith(RUNNING)


def part_of_boot(service: Service) -> bool:
    """A unit of systemd itself that cannot be enabled or disabled: wired into the targets that every boot goes through."""
    if service.kind not in ("unit", "user-unit") or service.state not in ("static", "indirect", "alias"):
        return False
    if not service.path.startswith(("/usr/lib/systemd/", "/lib/systemd/")):
        return False
    if service.package:
        return service.package in _BOOT or service.package.startswith("systemd-")
    return service.name.startswith("systemd-")


def concerns(service: Service) -> bool:
    """Whether a lifecycle policy has to list it: it starts, it runs something, and whoever made the image chose to have it."""
    return service.starts and runs(service) and not part_of_boot(service) and service.kind != "daemonset"
