"""rc.local: the script that an administrator left behind. systemd runs it at boot, but only if it may be executed."""

from exhume.host.commands import shown
from exhume.host.service import Service
from exhume.host.tree import Tree
from exhume.text import decode

# RC_LOCAL_PATH of systemd's build (meson_options.txt, rc-local): Debian has the first, Fedora and SUSE have had the others.
PATHS = ("/etc/rc.local", "/etc/rc.d/rc.local", "/etc/init.d/boot.local")

# What brings it into a boot: systemd-rc-local-generator(8), or the script of sysvinit (/etc/init.d/rc.local).
_STARTERS = (
    "/usr/lib/systemd/system-generators/systemd-rc-local-generator",
    "/lib/systemd/system-generators/systemd-rc-local-generator",
    "/etc/init.d/rc.local",
)
_MASKS = ("/etc/systemd/system/rc-local.service", "/run/systemd/system/rc-local.service")

MOST_LINES = 200


def read(tree: Tree) -> list[Service]:
    found: list[Service] = []
    seen: set[str | None] = set()
    for path in PATHS:
        entry, real = tree.entry(path), tree.real(path)
        if entry is None or entry.kind != "file" or real in seen:
            continue
        seen.add(real)
        commands = lines(tree.read(path) or b"")
        hindrance = _hindrance(tree, executable=bool(entry.mode & 0o100))
        found.append(
            Service(
                name=path,
                kind="rc-local",
                state="disabled" if hindrance else "enabled",
                starts=not hindrance,
                path=path,
                description="rc.local of the administrator",
                command=commands,
                pulled_by=() if hindrance else ("multi-user.target",),
                conditions=(hindrance,) if hindrance else (),
                notes=() if commands else ("it has no command but exit",),
            )
        )
    return found


def lines(script: bytes) -> tuple[str, ...]:
    """What the script does, as far as it can be said without a shell: its lines, but comments and the exit that closes it."""
    commands = []
    for raw in script.split(b"\n"):
        line = decode(raw).strip()
        if line and not line.startswith("#") and line.split(maxsplit=1)[0] not in ("exit", "set", ":", "true"):
            commands.append(shown(line))
            if len(commands) == MOST_LINES:
                break
    return tuple(commands)


def _hindrance(tree: Tree, executable: bool) -> str:
    if not executable:
        return "it may not be executed, so systemd-rc-local-generator leaves it alone"
    for mask in _MASKS:
        entry = tree.entry(mask, follow=False)
        if entry is not None and entry.kind == "link" and entry.target == "/dev/null":
            return f"rc-local.service is masked by {mask}"
    if not any(tree.entry(starter) for starter in _STARTERS):
        return "nothing on this image starts it: neither systemd-rc-local-generator nor a script of sysvinit is there"
    return ""
