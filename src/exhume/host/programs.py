"""The catalogue of programs: everything that exhume knows about a program by its name is in programs/*.toml, with its source.

An entry is one program, or a family of one purpose. Other code asks by role ("which programs are a kubelet") and holds no names
of its own; the meaning of each role is in ROLES. A lookup by role parses only the entries that have it: all of them would cost
every command 25 ms. What only reading needs is imported then.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from typing import Any, Literal, cast, get_args

from exhume.errors import UsageError
from exhume.host.systemd import names
from exhume.record import record

Severity = Literal["info", "warning", "critical"]
Condition = tuple[tuple[str, str], ...]
"""Words of VOCABULARY with their values, all of which must hold."""
Role = Literal[
    "keep-running",
    "kubelet",
    "runtime",
    "reads-cgroup-statistics",
    "makes-cgroups",
    "starts-containers",
    "container-client",
    "docker-cli",
    "compose",
    "cluster-tool",
    "supervisor",
    "launcher",
    "shell",
    "interpreter",
    "starts-by-clock",
    "waits",
    "unseen-use",
    "everyone-connects",
    "message-bus",
    "common",
]

ROLES: dict[Role, str] = {
    "keep-running": "`fix` never stops its `unit_names` or a unit that runs its `commands`: the node, its network or the way "
    "to it would be lost",
    "kubelet": "runs the pods of a node; `services` are its units, `static_pods` its manifests",
    "runtime": "makes cgroups and containers because others ask for it: it is never named as their owner",
    "reads-cgroup-statistics": "reads the statistics of every memory cgroup on its own account",
    "makes-cgroups": "makes cgroups beside or below that of its unit; `cgroups` says for what",
    "starts-containers": "asks the runtime for containers that no unit file names; `starts` tells by what they are known",
    "container-client": "its arguments name a program that runs in a container",
    "docker-cli": "takes docker's commands: run, create, start",
    "compose": "starts compose projects",
    "cluster-tool": "is called by people and scripts to look at a node, and runs none",
    "supervisor": "starts what its own configuration names",
    "launcher": "may run a program that is named among its arguments",
    "shell": "runs scripts in the language of sh",
    "interpreter": "runs scripts; after one of its `code_options` stands a program as text",
    "starts-by-clock": "starts programs by the clock, or because somebody logged in",
    "waits": "is there to wait",
    "unseen-use": "is used in ways that systemd's dependencies do not show",
    "everyone-connects": "every service may be connected to its `services`: that proves no use",
    "message-bus": "starts units by their names on the bus, once one of its `services` runs",
    "common": "its name is found on every fleet, and stays as it is where names become pseudonyms",
}
VOCABULARY = {
    "always": "needed on every node; the value says why",
    "unit_active": "a unit, cron line, pod or container of this name (a glob) runs, or will start by itself",
    "path": "this file or directory is there",
    "contains": "with `path`: a line of the file that is no comment matches this regular expression",
    "filled": "the directory has something in it, or the file has a line that is no comment",
    "kubernetes": "the node runs a kubelet, or one that is built into another program (k3s, rke2, microk8s, k0s)",
    "cloud": "the node runs in this cloud: aws, gcp, azure or oracle",
    "hardware": "the node has it: nvidia, nvswitch, infiniband, efa, fibre-channel, modem or battery",
    "mount": "a file system of this type (a glob) is mounted, or stands in /etc/fstab",
    "used": "something is connected to this socket (a path, or tcp:PORT)",
}
CLOUDS = ("aws", "gcp", "azure", "oracle")
HARDWARE = ("nvidia", "nvswitch", "infiniband", "efa", "fibre-channel", "modem", "battery")

_COMM = 15
"""Of a process's name so many bytes are kept (TASK_COMM_LEN of include/linux/sched.h)."""
_ENTRY = re.compile(r"^(?=\[\[program\]\]$)", re.MULTILINE)
_TYPE = re.compile(rf"\.(?:{'|'.join(names.TYPES)})\Z", re.IGNORECASE)
_TEXTS = ("id", "name", "source")
_RECOGNISED = ("units", "packages", "executables", "images", "files")
_LISTS = (*_RECOGNISED, "sockets", "commands", "services", "unit_names", "roles", "code_options")
_JUDGED = ("needed_if", "harm", "off", "protected")
_OTHERS = ("purpose", "starts", "cgroups", "static_pods", *_JUDGED)
_CHOICES = {"cloud": CLOUDS, "hardware": HARDWARE}


@record(frozen=True, slots=True)
class Harm:
    severity: Severity
    text: str
    source: str


@record(frozen=True, slots=True)
class Off:
    """How to turn it off: units to stop and disable, a switch in its configuration, packages to leave out of the image."""

    units: tuple[str, ...] = ()
    config: str = ""
    packages: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class Starts:
    """By what a container is known as one that this program asked for."""

    why: str
    containers: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    """Without registry and tag."""
    labels: tuple[str, ...] = ()
    runtime: str = ""
    """What `host.owners` reads from the place of its cgroup."""


@record(frozen=True, slots=True)
class Program:
    id: str
    name: str
    group: str
    """The file that it stands in: aws, gpu, kubernetes ..."""
    purpose: str
    """Empty for a program that is no service of its own: no audit recognises it."""
    source: str
    """Where its names come from."""
    units: tuple[str, ...] = ()
    """Of units, with globs."""
    packages: tuple[str, ...] = ()
    executables: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    """Repositories of container images, with globs, without registry of the default kind, tag and digest."""
    files: tuple[str, ...] = ()
    """Crontabs and scripts of cron that belong to it, with globs."""
    sockets: tuple[str, ...] = ()
    """Where those who use it connect to: a path, or tcp:PORT."""
    commands: tuple[str, ...] = ()
    """Names of its executables and processes, wherever they lie; all roles hold for all of them."""
    services: tuple[str, ...] = ()
    """The units that it runs in as a daemon, the most usual first."""
    unit_names: tuple[str, ...] = ()
    """Of units without type and instance, in small letters, with globs."""
    roles: frozenset[Role] = frozenset()
    code_options: tuple[str, ...] = ()
    starts: tuple[Starts, ...] = ()
    cgroups: str = ""
    """What it does that makes cgroups, as the end of a sentence."""
    static_pods: str = ""
    """The directory of manifests that it starts by itself."""
    needed_if: tuple[Condition, ...] = ()
    """Empty if nothing that can be looked up tells who needs it."""
    needless: bool = False
    """Whether nothing on a server needs it; then there are no conditions."""
    harm: tuple[Harm, ...] = ()
    off: Off = Off()
    protected: bool = False
    """Never a target of audit or fix: without it the node, its network, or the way to it is lost."""


def every() -> list[Program]:
    """Parses all files: for audits, remedies and tests."""
    return [program for name, text in _files() for program in read(text, name)]


@cache
def with_role(role: Role) -> tuple[Program, ...]:
    """Never empty: a protection that cannot be read must not be taken for none."""
    told = f'"{role}"'
    found = [
        program
        for name, text in _files()
        for entry in _ENTRY.split(text)
        if told in entry
        for program in read(entry, name)
        if role in program.roles
    ]
    if not found:
        raise LookupError(f"no program has the role {role}")
    return tuple(found)


@cache
def commands(*roles: Role) -> frozenset[str]:
    """Names of the programs that have any of these roles."""
    return frozenset(command for role in roles for program in with_role(role) for command in program.commands)


@cache
def services(*roles: Role) -> tuple[str, ...]:
    """The units of the programs that have any of these roles, as the catalogue orders them."""
    return tuple(dict.fromkeys(unit for role in roles for program in with_role(role) for unit in program.services))


@cache
def paths(command: str) -> tuple[str, ...]:
    """Where a program of this name is installed."""
    told = f'/{command}"'
    found = (read(entry, name) for name, text in _files() for entry in _ENTRY.split(text) if told in entry)
    return tuple(path for (program,) in found for path in program.executables if path.rpartition("/")[2] == command)


@lru_cache(maxsize=1 << 14)
def protected_unit(unit: str) -> bool:
    """Whether a unit is one to keep running: by its name, whatever its type, its instance and its case; escapes undone."""
    stem = _TYPE.sub("", unit).casefold()
    if stem == unit.casefold() or "/" in unit:
        return False
    forms = {stem, names.unescape(stem.replace("-", "\\x2d")).casefold()}
    forms |= {_TYPE.sub("", form) for form in forms}
    forms |= {form.partition("@")[0] for form in forms}
    patterns = [pattern for program in with_role("keep-running") for pattern in program.unit_names]
    return any(fnmatchcase(form, pattern) for form in forms if form for pattern in patterns)


@cache
def as_processes(role: Role) -> frozenset[str]:
    """The commands of a role as the kernel names their processes: whole, and cut."""
    return commands(role) | {command[:_COMM] for command in commands(role)}


@cache
def _files() -> tuple[tuple[str, str], ...]:
    from importlib.resources import files

    place = files("exhume.host").joinpath("programs")
    found = sorted((file for file in place.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return tuple((file.name, file.read_text("utf-8")) for file in found)


def read(text: str, name: str) -> list[Program]:
    """Every key is known, every value of its kind, and a mistake is named by its file and its place."""
    import tomllib

    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{name} is not TOML: {error}") from None
    _known(document, ("program",), name, "")
    found: dict[str, Program] = {}
    for number, table in enumerate(_rows(document, "program", name, ""), 1):
        program = _program(_table(table, name, f"program[{number}]"), name, f"program[{number}]")
        if program.id in found:
            raise UsageError(f"{name}: program[{number}].id: {program.id} is there twice")
        found[program.id] = program
    return list(found.values())


def _program(table: dict[str, Any], name: str, place: str) -> Program:
    identifier = _text(table, "id", name, place)
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", identifier):
        raise UsageError(f"{name}: {place}.id must be of small letters, digits and hyphens, not {identifier!r}")
    place = f"program {identifier}"
    _known(table, (*_TEXTS, *_LISTS, *_OTHERS), name, place + ".")
    lists = {key: _list(table, key, name, place) for key in _LISTS}
    _check_names(table, lists, name, place)
    protected = table.get("protected", False)
    if not isinstance(protected, bool):
        raise UsageError(f"{name}: {place}.protected must be true or false")
    off = _off(table, lists, name, place)
    if protected and "off" in table:
        raise UsageError(f"{name}: {place} is protected and says how to turn it off")
    conditions = tuple(_condition(row, name, where) for row, where in _numbered(table, "needed_if", name, place))
    roles = lists.pop("roles")
    return Program(
        id=identifier,
        name=_text(table, "name", name, place),
        group=name.removesuffix(".toml"),
        purpose=_text(table, "purpose", name, place) if "purpose" in table else "",
        source=_text(table, "source", name, place),
        **lists,
        roles=frozenset(cast(tuple[Role, ...], roles)),
        starts=tuple(_starts(row, name, where) for row, where in _numbered(table, "starts", name, place)),
        cgroups=_text(table, "cgroups", name, place) if "cgroups" in table else "",
        static_pods=_text(table, "static_pods", name, place) if "static_pods" in table else "",
        needed_if=conditions,
        needless="needed_if" in table and not conditions,
        harm=tuple(_harm(row, name, where) for row, where in _numbered(table, "harm", name, place)),
        off=Off() if protected else off,
        protected=protected,
    )


def _check_names(table: dict[str, Any], lists: dict[str, tuple[str, ...]], name: str, place: str) -> None:
    recognised = any(lists[key] for key in _RECOGNISED)
    if recognised != ("purpose" in table) or (not recognised and any(key in table for key in _JUDGED)):
        raise UsageError(f"{name}: {place} needs both a purpose and something by which it is recognised, or neither")
    if not recognised and not lists["roles"]:
        raise UsageError(f"{name}: {place} has nothing by which it could be recognised")
    for key in (*_RECOGNISED, "unit_names"):
        for pattern in lists[key]:
            if len(pattern.strip("*?/")) < 2:
                raise UsageError(f"{name}: {place}.{key}: {pattern!r} would match almost anything")
    for role in lists["roles"]:
        if role not in ROLES:
            raise UsageError(f"{name}: {place}.roles: {role} is not known" + _meant(role, ROLES))


def _off(table: dict[str, Any], lists: dict[str, tuple[str, ...]], name: str, place: str) -> Off:
    """What is not said is plain: the units that are named in full, and the packages."""
    said = _table(table.get("off", {}), name, f"{place}.off")
    place = f"{place}.off"
    _known(said, ("units", "config", "packages"), name, place + ".")
    plain = {key: tuple(one for one in lists[key] if not is_glob(one)) for key in ("units", "packages")}
    return Off(
        units=_list(said, "units", name, place) if "units" in said else plain["units"],
        config=_text(said, "config", name, place) if "config" in said else "",
        packages=_list(said, "packages", name, place) if "packages" in said else plain["packages"],
    )


def _starts(table: dict[str, Any], name: str, place: str) -> Starts:
    keys = ("containers", "images", "labels")
    _known(table, (*keys, "runtime", "why"), name, place + ".")
    lists = {key: _list(table, key, name, place) for key in keys}
    return Starts(
        _text(table, "why", name, place), **lists, runtime=_text(table, "runtime", name, place) if "runtime" in table else ""
    )


def _condition(table: dict[str, Any], name: str, place: str) -> Condition:
    _known(table, tuple(VOCABULARY), name, place + ".")
    if not table or ("contains" in table and "path" not in table):
        raise UsageError(f"{name}: {place} needs a word of the vocabulary, and `contains` a `path`")
    words = []
    for key, value in table.items():
        if key == "kubernetes":
            if value is not True:
                raise UsageError(f"{name}: {place}.kubernetes can only be true")
            value = "true"
        value = _text(table, key, name, place) if value != "true" else value
        if key in _CHOICES and value not in _CHOICES[key]:
            raise UsageError(f"{name}: {place}.{key} must be one of {', '.join(_CHOICES[key])}, not {value!r}")
        if key in ("path", "filled") and not value.startswith("/"):
            raise UsageError(f"{name}: {place}.{key} must begin with a slash")
        if key == "contains":
            try:
                re.compile(value)
            except re.error as error:
                raise UsageError(f"{name}: {place}.contains is no regular expression: {error}") from None
        words.append((key, value))
    return tuple(words)


def _harm(table: dict[str, Any], name: str, place: str) -> Harm:
    _known(table, ("severity", "text", "source"), name, place + ".")
    severity = _text(table, "severity", name, place)
    if severity not in get_args(Severity):
        raise UsageError(f"{name}: {place}.severity must be one of {', '.join(get_args(Severity))}, not {severity!r}")
    return Harm(cast(Severity, severity), _text(table, "text", name, place), _text(table, "source", name, place))


def is_glob(pattern: str) -> bool:
    return any(character in pattern for character in "*?[")


def _known(table: dict[str, Any], keys: tuple[str, ...], name: str, place: str) -> None:
    for key in table:
        if key not in keys:
            raise UsageError(f"{name}: {place}{key} is not known" + _meant(key, keys))


def _meant(word: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, known, 1)
    return f", did you mean {near[0]}?" if near else ""


def _table(value: Any, name: str, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name}: {place} must be a table")
    return value


def _rows(table: dict[str, Any], key: str, name: str, place: str) -> list[Any]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise UsageError(f"{name}: {place}{key} must be a list of tables")
    return value


def _numbered(table: dict[str, Any], key: str, name: str, place: str) -> Iterator[tuple[dict[str, Any], str]]:
    for number, row in enumerate(_rows(table, key, name, place + "."), 1):
        yield _table(row, name, f"{place}.{key}[{number}]"), f"{place}.{key}[{number}]"


def _text(table: dict[str, Any], key: str, name: str, place: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{name}: {place}.{key} must be a text that is not empty")
    return value


def _list(table: dict[str, Any], key: str, name: str, place: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
        raise UsageError(f"{name}: {place}.{key} must be a list of texts")
    return tuple(value)
