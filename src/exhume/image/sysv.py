"""Scripts of /etc/init.d, where systemd has no unit of that name: systemd-sysv-generator makes a unit of each at boot.

The generator is not run; its rules are those of systemd-sysv-generator(8) and src/sysv-generator/sysv-generator.c.
"""

import re

from exhume.host.service import Service
from exhume.host.systemd.places import SYSTEM
from exhume.host.tree import Tree
from exhume.text import decode, from_path

SCRIPTS = "/etc/init.d"
UNITS = tuple(path for path, role in SYSTEM if role != "generator")
"""Where a native unit may lie; what generators made is not one."""
_GENERATORS = tuple(
    f"{place}/system-generators/systemd-sysv-generator" for place in ("/usr/lib/systemd", "/lib/systemd", "/etc/systemd")
)
# rcnd_table of sysv-generator.c: runlevels 2 to 4 are one target; those of S, 0 and 6 are not looked at any more.
TARGETS = {
    "1": "rescue.target",
    "2": "multi-user.target",
    "3": "multi-user.target",
    "4": "multi-user.target",
    "5": "graphical.target",
}
# Of no package's service: helpers that lie there, and sysvinit's own.
_NOT_SERVICES = {
    "README",
    "functions",
    "skeleton",
    "rc",
    "rcS",
    "rc.local",
    "halt",
    "reboot",
    "single",
    "killall",
    "boot.local",
}
_LINK = re.compile(r"[SK]([0-9]{2})(.+)", re.DOTALL)
_HEADER_LINE = re.compile(rb"^#\s*([A-Za-z][A-Za-z-]*):\s*(.*)$")


def read(tree: Tree) -> list[Service]:
    systemd = any(tree.entry(place) for place in ("/usr/lib/systemd/systemd", "/lib/systemd/systemd"))
    starting = _starting(tree)
    runlevel = None if systemd else _runlevel(tree)
    generated = any(tree.entry(path) for path in _GENERATORS)
    units = {name for place in UNITS for name in tree.names(place)} if systemd else set()
    found = []
    for name in tree.names(SCRIPTS):
        path = f"{SCRIPTS}/{name}"
        entry = tree.entry(path)
        unit = name.removesuffix(".sh") + ".service"  # sysv_translate_name()
        if name in _NOT_SERVICES or entry is None or entry.kind != "file" or not entry.mode & 0o100 or unit in units:
            continue
        levels = starting.get(name, [])
        header = lsb_header(tree.read(path) or b"")
        if systemd:
            pulled = tuple(dict.fromkeys(TARGETS[level] for level in levels if level in TARGETS))
        else:
            pulled = tuple(f"runlevel {level}" for level in levels if level in ("S", runlevel))
        starts = bool(pulled) and (generated or not systemd)
        conditions = ("systemd-sysv-generator is not on this image, so nothing starts it",) if pulled and not starts else ()
        found.append(
            Service(
                name=from_path(unit),
                kind="sysv",
                state="enabled" if starts else "disabled",
                starts=starts,
                path=path,
                description=header.get("short-description", ""),
                command=(f"{from_path(path)} start",),
                pulled_by=pulled,
                needs=tuple(header.get("required-start", "").split()),
                conditions=conditions,
            )
        )
    return found


def _starting(tree: Tree) -> dict[str, list[str]]:
    """The runlevels whose directory has an S link to each script, by the name of the script.

    The generator goes by the name of the link, as does sysvinit's rc: where it points does not matter.
    """
    levels: dict[str, list[str]] = {}
    for level in "S12345":
        for place in (f"/etc/rc{level}.d", f"/etc/rc.d/rc{level}.d", f"/etc/init.d/rc{level}.d"):
            names = tree.names(place)
            for name in names:
                match = _LINK.fullmatch(name)
                if match and name[0] == "S":
                    levels.setdefault(match[2], []).append(level)
            if names:
                break
    return levels


def _runlevel(tree: Tree) -> str:
    """The runlevel that init brings up: inittab(5), initdefault. Debian's sysvinit has 2."""
    match = re.search(rb"(?m)^[^:#\n]{0,14}:([0-9]):initdefault:", tree.read("/etc/inittab") or b"")
    return match[1].decode() if match else "2"


def lsb_header(script: bytes) -> dict[str, str]:
    """The comment between BEGIN and END INIT INFO, names in lower case (Linux Standard Base, "Comment conventions")."""
    found: dict[str, str] = {}
    inside = False
    for line in script[: 64 << 10].split(b"\n"):
        line = line.rstrip()
        if line == b"### BEGIN INIT INFO":
            inside = True
        elif line == b"### END INIT INFO":
            break
        elif inside and (match := _HEADER_LINE.match(line)):
            found.setdefault(match[1].decode().lower(), decode(match[2].strip()[:500]))
    return found
