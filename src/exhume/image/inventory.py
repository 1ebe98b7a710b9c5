"""Everything that an image or a node will run by itself, from every source there is, in one list with the packages attached."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from exhume.errors import ExhumeError
from exhume.host.service import Inventory, Service
from exhume.host.systemd.units import GONE, read_units
from exhume.host.tree import Tree, complain
from exhume.image import containers, cron, inventory_pods, packages, rc_local, static_pods, sysv
from exhume.text import decode

Progress = Callable[[float], None]

_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")  # in this order, os-release(5)
_READERS = (sysv.read, rc_local.read, cron.read, static_pods.read, containers.read)


def take_inventory(tree: Tree, progress: Progress = lambda part: None) -> Inventory:
    """All of it. A source that cannot be read is said in `troubles` and hides nothing of the others."""
    troubles: list[str] = []
    services: list[Service] = []
    unknown: list[str] = []

    def units() -> Iterable[Service]:
        for manager in ("system", "user"):
            read = read_units(tree, manager)
            services.extend(found := read.services())
            for service in found:
                if service.pulled_by and not service.starts and (note := next(iter(service.notes), "")).startswith(GONE):
                    complain(troubles, f"{service.name} is enabled, but {note}. What it would run cannot be told.")
            if manager == "system":
                unknown.extend(read.unknown)
        return ()

    readers: list[Callable[[], Iterable[Service]]] = [units, *((lambda read=read: read(tree)) for read in _READERS)]
    if tree.live:
        readers.append(lambda: inventory_pods.read(tree))
    for number, reader in enumerate(readers):
        try:
            services.extend(reader())
        except ExhumeError as error:
            complain(troubles, str(error))
        progress((number + 1) / (len(readers) + 1))
    if (units_there := [one for one in services if one.kind == "unit"]) and not any(one.starts for one in units_there):
        complain(
            troubles, "There are units and no default.target that starts any: systemd does not boot this, or parts are missing."
        )
    generators = tuple(service for service in services if service.kind == "generator")
    services = [service for service in services if service.kind != "generator"]
    services = with_packages(tree, services)
    progress(1.0)
    release = os_release(tree)
    facts = {
        "image_id": release.get("IMAGE_ID", ""),
        "id": release.get("ID", ""),
        "version": release.get("VERSION_ID", ""),
        "file": tree.name.rstrip("/").rpartition("/")[2],
    }
    return Inventory(
        release.get("PRETTY_NAME", "") or release.get("NAME", ""),
        tuple(sorted(services, key=lambda service: (service.name, service.kind, service.path))),
        tuple(dict.fromkeys((*troubles, *tree.troubles))),
        tuple(sorted({*unknown, *(service.path or service.name for service in generators)})),
        {key: value for key, value in facts.items() if value},
    )


def with_packages(tree: Tree, services: Iterable[Service]) -> list[Service]:
    """Each with the package that brought its file, where the image keeps books that can be read."""
    services = list(services)
    wanted = {service.path for service in services if service.path and not service.package}
    owners = packages.owners(tree, sorted(wanted))
    return [
        replace(service, package=owners[service.path]) if service.path in owners and not service.package else service
        for service in services
    ]


def os_release(tree: Tree) -> dict[str, str]:
    """Assignments of os-release(5), a subset of shell's: values may be quoted, once."""
    raw = next((raw for path in _OS_RELEASE if (raw := tree.read(path, 1 << 16)) is not None), b"")
    found: dict[str, str] = {}
    for line in raw.split(b"\n"):
        name, equals, value = line.strip().partition(b"=")
        if not equals or not name or name.startswith(b"#"):
            continue
        text = decode(value)
        if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
            text = text[1:-1]
        found[decode(name)] = text.replace('\\"', '"').replace("\\$", "$").replace("\\\\", "\\")
    return found
