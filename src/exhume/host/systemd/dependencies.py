"""What one unit depends on: what it says itself, the links in its .wants directories, and what systemd adds by itself.

The implicit and default dependencies are those of systemd.service(5), systemd.socket(5) and so on, and of the source where the
manual is silent. Ordering (Before=, After=) is left out: it starts and needs nothing.
"""

from collections.abc import Iterator

from exhume.host.systemd import names
from exhume.host.systemd.fragments import Fragments, families
from exhume.host.systemd.specifiers import expand
from exhume.host.systemd.unit_file import Sections, split

EXPLICIT = {
    **{key: key for key in ("Requires", "Requisite", "Wants", "BindsTo", "PartOf", "Upholds", "Conflicts", "OnFailure")},
    "OnSuccess": "OnSuccess",
    # Names of old, src/core/load-fragment-gperf.gperf.in
    "BindTo": "BindsTo",
    "RequiresOverridable": "Requires",
    "RequisiteOverridable": "Requisite",
}
IN_CGROUPS = frozenset(("service", "socket", "mount", "swap", "slice", "scope"))
EXECUTES = frozenset(("service", "socket", "mount", "swap"))

Edge = tuple[str, str]
"""The kind of dependency, and on whom."""


def dependencies(fragments: Fragments, name: str, manager: str = "system") -> list[Edge]:
    """Each once, in the order in which they were found; names are canonical."""
    if fragments.masked(name) or (fragments.found(name) is None and names.kind(name) not in ("slice", "scope")):
        return []  # what is not found has nothing, not even what systemd adds
    sections = fragments.merged(name)
    found: dict[Edge, None] = {}
    for edges in (_said, _linked, _implicit, _mounts):
        for kind, other in edges(fragments, name, sections, manager):
            target = fragments.canonical(other)
            if target != name:
                found[kind, target] = None
    return list(found)


def fill(other: str, name: str) -> str:
    """The unit that a name in a unit's settings means: specifiers filled in, a template given the unit's instance or prefix."""
    other = expand(other, name)
    if names.valid(other) and names.form(other) == "template":  # resolve_template(), src/core/unit.c
        return names.with_instance(other, names.instance(name) or names.prefix(name))
    return other


def _said(fragments: Fragments, name: str, sections: Sections, manager: str) -> Iterator[Edge]:
    for key in sections.values.get("Unit", {}):
        kind = EXPLICIT.get(key)
        if kind is not None:
            for word in sections.every_word("Unit", key):
                if names.valid(other := fill(word, name)):
                    yield kind, other


def _linked(fragments: Fragments, name: str, sections: Sections, manager: str) -> Iterator[Edge]:
    """process_deps(), src/core/load-dropin.c: of links of the same name the first place's counts; one to /dev/null hides."""
    everywhere = fragments.layout.links
    owners = {family for each in (name, *fragments.aliases(name)) for family in families(each) if family in everywhere}
    links = [link for owner in sorted(owners) for link in everywhere[owner]]
    seen: set[tuple[str, str]] = set()
    for link in sorted(links, key=lambda link: fragments.ranks[link.place.path]):
        if (link.kind, link.name) not in seen:
            seen.add((link.kind, link.name))
            if not link.masks:
                yield link.kind, fill(link.name, name)


def _implicit(fragments: Fragments, name: str, sections: Sections, manager: str) -> Iterator[Edge]:
    kind = names.kind(name)
    if kind in IN_CGROUPS and (slice_ := slice_of(name, sections, manager)):
        yield "Requires", slice_
    yield from _own(fragments, name, sections)
    if kind == "mount" and extrinsic(name, manager):
        return
    # slice_load_root_slice(), slice_load_system_slice(), src/core/slice.c: those two are there for ever.
    if sections.flag("Unit", "DefaultDependencies", True) and name not in ("-.slice", "system.slice"):
        yield from _default(name, kind, manager)


def extrinsic(name: str, manager: str) -> bool:
    """Mounts that are the system's own, not managed (fstab_is_extrinsic(), src/shared/fstab-util.c)."""
    where = f"{names.to_path(name)}/"
    return manager != "system" or where in ("//", "/usr/", "/etc/") or where.startswith(_SYSTEMS_OWN)


_SYSTEMS_OWN = ("/run/initramfs/", "/run/nextroot/", "/proc/", "/sys/", "/dev/")


def slice_of(name: str, sections: Sections, manager: str = "system") -> str:
    """Where the unit's cgroup is: Slice=, or unit_set_default_slice() of src/core/unit.c."""
    kind = names.kind(name)
    if kind == "slice":
        return names.parent_slice(name)
    said = expand(sections.last(kind.capitalize(), "Slice"), name)
    if names.valid(said) and names.kind(said) == "slice":
        return said
    base = "system" if manager == "system" else "app"
    if names.form(name) == "instance":
        return f"{base}-{names.escape(names.prefix(name))}.slice"
    if name == "init.scope" or (kind == "mount" and extrinsic(name, manager)):
        return "-.slice"
    return f"{base}.slice"


def _default(name: str, kind: str, manager: str) -> Iterator[Edge]:
    if kind in ("service", "socket", "timer", "path"):
        if manager == "system":
            yield "Requires", "sysinit.target"
        elif kind == "service":
            yield "Requires", "basic.target"
        yield "Conflicts", "shutdown.target"
    elif kind in ("target", "slice", "scope"):
        yield "Conflicts", "shutdown.target"
    elif kind in ("mount", "automount", "swap"):
        yield "Conflicts", "umount.target"


def triggered(name: str, sections: Sections) -> str:
    """What a timer, path, socket or automount starts: Unit=, Service=, or the unit of the same name."""
    kind = names.kind(name)
    if kind == "automount":
        return names.with_kind(name, "mount")
    if kind == "socket" and sections.flag("Socket", "Accept", False):
        return f"{names.prefix(name)}@.service"
    said = {
        "socket": sections.last("Socket", "Service"),
        "timer": sections.last("Timer", "Unit"),
        "path": sections.last("Path", "Unit"),
    }.get(kind)
    if said is None:
        return ""
    other = fill(said, name)
    return other if names.valid(other) else names.with_kind(name, "service")


def _private_tmp(name: str, sections: Sections) -> bool:
    if (kind := names.kind(name)) not in EXECUTES:
        return False
    own = kind.capitalize()
    # DynamicUser= implies it (systemd.exec(5)).
    return sections.flag(own, "PrivateTmp", False) or sections.flag(own, "DynamicUser", False)


def _own(fragments: Fragments, name: str, sections: Sections) -> Iterator[Edge]:
    """Of the type's own settings."""
    if _private_tmp(name, sections):  # unit_add_exec_dependencies(), src/core/unit.c: wanted only, so that it may be masked
        yield "Wants", "tmp.mount"
    target = triggered(name, sections)
    if target and names.form(target) != "template":
        yield "Triggers", target
    if names.kind(name) != "service":
        return
    if sections.last("Service", "Type", "dbus") == "dbus" and sections.last("Service", "BusName"):
        yield "Requires", "dbus.socket"
    for word in sections.every_word("Service", "Sockets"):
        other = fill(word, name)
        if names.valid(other) and names.kind(other) == "socket":
            yield "Wants", other
    namespace = sections.last("Service", "LogNamespace")
    if namespace:  # unit_add_exec_dependencies(), src/core/unit.c
        yield "Requires", f"systemd-journald@{names.escape(expand(namespace, name))}.socket"
        yield "Requires", f"systemd-journald-varlink@{names.escape(expand(namespace, name))}.socket"
    if sections.last("Service", "RootImage"):
        yield "Wants", "modprobe@loop.service"
        yield "Wants", "modprobe@dm_mod.service"


_DIRECTORIES = {
    "StateDirectory": "/var/lib",
    "CacheDirectory": "/var/cache",
    "LogsDirectory": "/var/log",
    "ConfigurationDirectory": "/etc",
}


def paths_needed(name: str, sections: Sections) -> Iterator[str]:
    """The paths whose mounts a unit requires: RequiresMountsFor= and the settings that imply it (systemd.unit(5))."""
    kind = names.kind(name)
    own = kind.capitalize()
    for value in sections.lines("Unit", "RequiresMountsFor"):
        yield from (expand(word, name) for word in split(value))
    if kind in EXECUTES:
        for key in ("WorkingDirectory", "RootDirectory", "RootImage"):
            yield expand(sections.last(own, key), name).lstrip("-")
        for key, above in _DIRECTORIES.items():
            yield from (f"{above}/{expand(word, name)}".partition(":")[0] for word in sections.words(own, key))
        if _private_tmp(name, sections):
            yield "/var/tmp"
    if kind == "timer" and sections.flag("Timer", "Persistent", False):
        yield "/var/lib/systemd/timers"
    if kind == "path":
        for key in ("PathExists", "PathExistsGlob", "PathChanged", "PathModified", "DirectoryNotEmpty"):
            yield from (expand(value, name) for value in sections.lines("Path", key))
    if kind == "socket":
        for key in ("ListenStream", "ListenDatagram", "ListenSequentialPacket", "ListenFIFO", "ListenSpecial"):
            yield from (expand(value, name) for value in sections.lines("Socket", key))
    if kind == "mount":
        yield names.to_path(name).rpartition("/")[0] or "/"
        yield expand(sections.last("Mount", "What"), name)


def _mounts(fragments: Fragments, name: str, sections: Sections, manager: str) -> Iterator[Edge]:
    """unit_add_mount_dependencies(), src/core/unit.c: required are those mounts on the way that have a file of their own."""
    mounts = fragments.mounts
    for path in paths_needed(name, sections) if mounts else ():
        if not path.startswith("/"):
            continue
        where = ""
        for part in path.split("/"):
            where = f"{where}/{part}" if part else where
            if (where or "/") in mounts:
                yield "Requires", mounts[where or "/"]
