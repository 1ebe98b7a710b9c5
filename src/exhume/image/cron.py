"""What cron and anacron would run: crontabs of the system and of its users, and the scripts of cron.hourly and the like.

Which files count differs between the crons, so the first question is which one is installed; with none, nothing runs.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from exhume.host.commands import shown
from exhume.host.service import Service
from exhume.host.tree import Tree, complain
from exhume.image.crontab import Job, Mistake, anacron_jobs, jobs
from exhume.image.sysv import UNITS
from exhume.text import from_path, printable

Dialect = Literal["debian", "cronie", "busybox", "systemd-cron"]

_UNIT_GENERATORS = ("/usr/lib/systemd/system-generators", "/lib/systemd/system-generators")
_SPOOLS = {
    "debian": ("/var/spool/cron/crontabs",),
    "cronie": ("/var/spool/cron",),
    "busybox": ("/var/spool/cron/crontabs", "/etc/crontabs"),
    "systemd-cron": ("/var/spool/cron/crontabs", "/var/spool/cron"),
}
PERIODIC = ("hourly", "daily", "weekly", "monthly", "yearly")
MOST_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Cron:
    name: str
    dialect: Dialect
    idle: str = ""
    """Why it does not run although it is there."""


def installed(tree: Tree) -> Cron | None:
    """The cron of this image, by its program. Debian's cron is /usr/sbin/cron; cronie, dcron and busybox have a crond."""
    if any(tree.entry(f"{place}/systemd-crontab-generator") for place in _UNIT_GENERATORS):
        return Cron("systemd-cron", "systemd-cron")
    if tree.entry("/usr/sbin/cron"):
        return Cron("cron", "debian", _idle(tree, "cron.service"))
    for path in ("/usr/sbin/crond", "/usr/bin/crond", "/sbin/crond"):
        if tree.entry(path):
            busybox = (tree.real(path) or "").endswith("/busybox")
            idle = _idle(tree, "crond.service") or _idle(tree, "cronie.service")
            return Cron("busybox crond", "busybox") if busybox else Cron("crond", "cronie", idle)
    return None


def _idle(tree: Tree, unit: str) -> str:
    """Whether systemd has a unit of that name and does not start it: masked, or wanted by nothing."""
    entries = [entry for place in UNITS if (entry := tree.entry(f"{place}/{unit}", follow=False))]
    if not entries:
        return ""
    if entries[0].kind == "link" and entries[0].target == "/dev/null":
        return f"{unit} is masked, so nothing runs it"
    for place in UNITS:
        for name in tree.names(place):
            if name.endswith((".wants", ".requires")) and tree.entry(f"{place}/{name}/{unit}", follow=False):
                return ""
    return f"{unit} is not enabled, so nothing runs it"


def read(tree: Tree) -> list[Service]:
    cron = installed(tree)
    anacron = any(tree.entry(path) for path in ("/usr/sbin/anacron", "/usr/bin/anacron"))
    # Without a cron the files are listed as Debian's would read them: they are what a cron would run, once there is one.
    dialect = cron.dialect if cron else "debian"
    found = list(_crontabs(tree, cron, dialect))
    if anacron or (cron and dialect == "systemd-cron"):
        found += _anacrontab(tree)
    return (found + list(_scripts(tree, cron, dialect, found)))[:MOST_JOBS]


def _crontabs(tree: Tree, cron: Cron | None, dialect: Dialect) -> Iterator[Service]:
    if dialect != "busybox":
        yield from _crontab(tree, "/etc/crontab", None, cron, "")
        for name in tree.names("/etc/cron.d"):
            why = "" if counts(name, dialect) else f"{cron.name if cron else 'cron'} ignores files of that name in /etc/cron.d"
            yield from _crontab(tree, f"/etc/cron.d/{name}", None, cron, why)
    seen = set()
    for spool in _SPOOLS[dialect]:
        for name in tree.names(spool):
            path = f"{spool}/{name}"
            if tree.real(path) not in seen and not name.startswith("."):
                seen.add(tree.real(path))
                yield from _crontab(tree, path, name, cron, "")


def counts(name: str, dialect: Dialect) -> bool:
    """Whether a file of /etc/cron.d is read, by its name.

    Debian: cron(8), "names must consist solely of letters, digits, underscores and hyphens"; cronie: not_a_crontab() of
    src/database.c; systemd-cron: hidden files and what packagers leave are left out.
    """
    if dialect == "debian":
        return bool(re.fullmatch(r"[A-Za-z0-9_-]+", name))
    return not (
        name.startswith((".", "#")) or name.endswith(("~", ".rpmsave", ".rpmorig", ".rpmnew", ".dpkg-old", ".dpkg-dist"))
    )


def _crontab(tree: Tree, path: str, user: str | None, cron: Cron | None, why: str) -> Iterator[Service]:
    entry = tree.entry(path)
    if entry is None or entry.kind != "file" or (text := tree.read(path)) is None:
        return
    if not why and user is None and entry.mode & 0o022 and cron and cron.dialect in ("debian", "cronie"):
        # process_crontab() of both: "INSECURE MODE" and "BAD FILE MODE"
        why = "its group or others may write to it, and cron refuses such a file"
    owner = None if user is None else printable(from_path(user))
    asked = list(jobs(text, owner, quiet=cron is not None and cron.dialect == "cronie"))
    mistakes = [one for one in asked if isinstance(one, Mistake)]
    name = from_path(path)
    for mistake in mistakes[:3]:
        complain(tree.troubles, f"{printable(name)}: line {mistake.line} is not understood: {mistake.why}.")
    if not why and cron and cron.dialect == "debian":
        # Debian's load_user() drops the whole file; other crons leave out the line.
        if mistakes:
            why = f"line {mistakes[0].line} is wrong, and Debian's cron then ignores the whole file"
        elif text and not text.endswith(b"\n"):
            why = "its last line has no newline, and Debian's cron then ignores the whole file"
    for job in asked:
        if isinstance(job, Job):
            yield _service(f"{name}:{job.line}", path, job, cron.name if cron else "", why or _without(cron))


def _without(cron: Cron | None) -> str:
    return cron.idle if cron else "no cron is installed on this image, so nothing runs it"


def _service(name: str, path: str, job: Job, starter: str, why: str) -> Service:
    return Service(
        name=name,
        kind="cron",
        state="disabled" if why else "enabled",
        starts=not why,
        path=path,
        description=f"{job.when}, as {printable(job.user)}",
        command=(job.command,) if job.command else (),
        pulled_by=() if why else (starter,),
        conditions=(why,) if why else (),
    )


def _anacrontab(tree: Tree) -> Iterator[Service]:
    path = "/etc/anacrontab"
    for job in anacron_jobs(tree.read(path) or b""):
        if isinstance(job, Mistake):
            complain(tree.troubles, f"{path}: line {job.line} is not understood: {job.why}.")
        else:
            yield _service(f"{path}:{job.line}", path, job, "anacron", "")


def _scripts(tree: Tree, cron: Cron | None, dialect: Dialect, lines: list[Service]) -> Iterator[Service]:
    """Scripts of cron.hourly and the like run only if a line of some crontab runs the directory (or a timer does)."""
    places = [f"/etc/cron.{period}" for period in PERIODIC]
    places += [f"/etc/periodic/{period}" for period in ("15min", *PERIODIC)]
    debian = tree.entry("/var/lib/dpkg/status") is not None or dialect == "busybox"
    for place in places:
        runners = tuple(line.name for line in lines if line.starts and any(_runs(command, place) for command in line.command))
        if not runners and dialect == "systemd-cron" and place.startswith("/etc/cron."):
            runners = (f"cron-{place.rpartition('.')[2]}.timer",)
        for name in tree.names(place):
            path = f"{place}/{name}"
            entry = tree.entry(path)
            if entry is None or entry.kind != "file" or name == ".placeholder":
                continue
            if not entry.mode & 0o111:
                why = "it may not be executed, and run-parts leaves it out"
            elif not run_parts_takes(name, debian):
                why = "run-parts leaves out files of that name"
            else:
                why = "" if runners else _without(cron) or f"no line of any crontab runs {place}"
            yield Service(
                name=from_path(path),
                kind="cron",
                state="disabled" if why else "enabled",
                starts=not why,
                path=path,
                description=f"script of {place}",
                command=(shown(from_path(path)),),
                pulled_by=() if why else runners,
                conditions=(why,) if why else (),
            )


def _runs(command: str, place: str) -> bool:
    return re.search(rf"{re.escape(place)}/?(?:[\s;)&'\"]|$)", command) is not None


def run_parts_takes(name: str, debian: bool) -> bool:
    """run-parts(8) of debianutils takes names of four kinds of characters; that of Fedora's crontabs all but leftovers."""
    if debian:
        return bool(re.fullmatch(r"[A-Za-z0-9_-]+", name))
    ends = ("~", ",", ".rpmsave", ".rpmorig", ".rpmnew", ".swp", ",v", ".cfsaved")
    return not (name.startswith(".") or name.endswith(ends))
