"""Which unit asked the runtime for a container: by its cgroup, its labels, what is known of agents, and what unit files start.

| how it is known | confidence |
|---|---|
| its cgroup lies in the unit | 1.0 |
| podman's own label | 0.97 |
| the kubelet's cgroups, names or labels; the ECS agent's | 0.95, or 0.6 where the node has no such unit |
| one unit file starts a container of that name | 0.9, shared if several do |
| a unit file starts the compose project | 0.8 |
| one unit file runs that image | 0.7 |
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from exhume.host.owners import Owner
from exhume.host.programs import Starts, commands, services, with_role
from exhume.host.root import Root
from exhume.text import decode

# Where unit files are, the first of a name counts (systemd.unit(5)); quadlets, of which podman makes units (quadlet(5)).
_PLACES = (
    "etc/systemd/system",
    "run/systemd/system",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
_QUADLETS = ("etc/containers/systemd", "run/containers/systemd", "usr/share/containers/systemd")
_MOST_FILES, _LARGEST_FILE = 4000, 256 << 10

_STARTERS = frozenset({"run", "create", "start", "restart"})
_SEPARATORS = frozenset({";", "&&", "||", "|", "&"})
_CONTINUED = re.compile(rb"\\\r?\n(?:[ \t]*[#;][^\n]*\n)*")
_QUOTES = str.maketrans("\"'", "  ")
_IMAGE = re.compile(r"^(?:[^/]*[.:][^/]*/|localhost/)?(?P<name>[^@]*?)(?::[^:/@]*)?(?:@.*)?$")


class Asked(NamedTuple):
    """Who asked for a container; nothing at all if `how` is empty."""

    unit: str = ""
    confidence: float = 0.0
    how: str = ""


class Start(NamedTuple):
    """A container that a unit file starts."""

    unit: str
    container: str
    """The name it is given or called by; "" if it is given none."""
    words: frozenset[str]
    """All words of the command, the image among them."""


class Compose(NamedTuple):
    """A compose project that a unit file starts."""

    unit: str
    directory: str
    words: frozenset[str]


class Units:
    """The unit files of a node, as far as they start containers."""

    def __init__(self, root: Root) -> None:
        self._root = root

    def asked_for(self, owner: Owner, name: str, image: str, labels: Mapping[str, str], pod: str) -> Asked:
        """The unit that asked for a container, of which the runtime knows this much."""
        unit = labels.get("PODMAN_SYSTEMD_UNIT", "")
        if owner.unit and owner.unit not in services("runtime"):
            return Asked(owner.unit, 1.0, f"its cgroup lies in {owner.unit}")
        if unit and unit not in services("runtime"):
            return Asked(unit, 0.97, "podman's label PODMAN_SYSTEMD_UNIT says so")
        if owner.pod or pod or "io.kubernetes.pod.name" in labels:
            return self._known(services("kubelet"), "it is of a pod, and those the kubelet asks for")
        if owner.runtime and (known := self._by_table(lambda known: known.runtime == owner.runtime)):
            return known
        return (
            self._by_name(name)
            or self._by_table(lambda known: _is_of(known, name, bare_image(image), labels))
            or self._by_project(labels)
            or self._by_image(image)
            or Asked()
        )

    def _known(self, units: Iterable[str], why: str) -> Asked:
        there = [unit for unit in units if unit in self.files]
        if there:
            return Asked(there[0], 0.95, why)
        first = next(iter(units))
        return Asked(first, 0.6, f"{why}; this node has no unit file {first}")

    def _by_name(self, name: str) -> Asked | None:
        if not name:
            return None
        found = sorted({_instance(start, name) for start in self.starts} - {""})
        if not found:
            return None
        if len(found) == 1:
            return Asked(found[0], 0.9, f"the unit file of {found[0]} starts a container {name}")
        return Asked(found[0], 0.9 / len(found), f"a container {name} is started by the unit files of {', '.join(found[:4])}")

    def _by_table(self, fits: Callable[[Starts], bool]) -> Asked | None:
        known = ((program, known) for program in with_role("starts-containers") for known in program.starts if fits(known))
        return next((self._known(program.services, known.why) for program, known in known), None)

    def _by_project(self, labels: Mapping[str, str]) -> Asked | None:
        project = labels.get("com.docker.compose.project", "")
        if not project:
            swarm = labels.get("com.docker.swarm.service.name", "")
            return Asked("", 0.9, f"the swarm service {swarm} asked for it") if swarm else None
        directory = labels.get("com.docker.compose.project.working_dir", "").rstrip("/")
        files = {file for file in labels.get("com.docker.compose.project.config_files", "").split(",") if file}
        for compose in self.composes:
            if (directory and compose.directory == directory) or files & compose.words or project in compose.words:
                return Asked(compose.unit, 0.8, f"the unit file of {compose.unit} starts the compose project {project}")
        return Asked("", 0.9, f"the compose project {project} asked for it, which no unit file starts")

    def _by_image(self, image: str) -> Asked | None:
        found = sorted({start.unit for start in self.starts if not start.container and image in start.words}) if image else []
        return Asked(found[0], 0.7, f"the unit file of {found[0]} runs the image {image}") if len(found) == 1 else None

    @cached_property
    def files(self) -> dict[str, bytes]:
        """Unit files and quadlets by the name of their unit, drop-ins at their end; what is masked starts nothing."""
        found: dict[str, bytes] = {}
        dropped: list[tuple[str, bytes]] = []
        left = _MOST_FILES
        for place in (*_PLACES, *_QUADLETS):
            ending = ".container" if place in _QUADLETS else ".service"
            for name in sorted(self._root.first_names(place, left)):
                left -= 1
                if name.endswith(ending):
                    unit = name.removesuffix(ending) + ".service"
                    if unit not in found:
                        found[unit] = self._root.regular(f"{place}/{name}", _LARGEST_FILE) or b""
                elif name.endswith(".service.d"):
                    for drop_in in sorted(self._root.first_names(f"{place}/{name}", left)):
                        left -= 1
                        if drop_in.endswith(".conf"):
                            text = self._root.regular(f"{place}/{name}/{drop_in}", _LARGEST_FILE)
                            dropped.append((name.removesuffix(".d"), text or b""))
        for unit, text in dropped:
            if found.get(unit):
                found[unit] += b"\n" + text
        return {unit: text for unit, text in found.items() if text}

    @cached_property
    def starts(self) -> list[Start]:
        return [start for unit, text in self.files.items() for start in starts(unit, text)]

    @cached_property
    def composes(self) -> list[Compose]:
        return [compose for unit, text in self.files.items() for compose in composes(unit, text)]


def _is_of(known: Starts, name: str, image: str, labels: Mapping[str, str]) -> bool:
    return name in known.containers or image in known.images or any(label in labels for label in known.labels)


def bare_image(image: str) -> str:
    """An image without registry, tag and digest."""
    match = _IMAGE.match(image)
    return match["name"] if match is not None else ""


def starts(unit: str, text: bytes) -> Iterator[Start]:
    """The containers that a unit file starts, whether by itself or through a shell."""
    for section, key, value in settings(text):
        if section == "Container" and key == "ContainerName":
            yield Start(unit, specified(unit, value), frozenset())
        elif section == "Container" and key == "Image":
            yield Start(unit, specified(unit, "systemd-%N"), frozenset({value}))
        elif section == "Service" and key.startswith("ExecStart"):
            words = _words(unit, value)
            for at, word in enumerate(words):
                if word.rsplit("/", 1)[-1] in commands("docker-cli"):
                    yield from _started(unit, _until_separator(words[at + 1 :]))


def _started(unit: str, words: list[str]) -> Iterator[Start]:
    # Options of the client itself may come first (docker -H ... run), and the noun (docker container run).
    verb = next((at for at, word in enumerate(words) if word in _STARTERS), -1)
    if verb < 0:
        return
    rest = words[verb + 1 :]
    everything = frozenset(rest)
    if words[verb] in ("start", "restart"):
        for word in rest:
            if not word.startswith("-"):
                yield Start(unit, word, everything)
        return
    name = ""
    for at, word in enumerate(rest):
        if word.startswith("--name="):
            name = word.removeprefix("--name=")
        elif word == "--name" and at + 1 < len(rest):
            name = rest[at + 1]
    yield Start(unit, name, everything)


def composes(unit: str, text: bytes) -> Iterator[Compose]:
    directory, composed = "", []
    for section, key, value in settings(text):
        if section == "Service" and key == "WorkingDirectory":
            directory = specified(unit, value).lstrip("-").rstrip("/")
        elif section == "Service" and key.startswith("ExecStart"):
            words = _words(unit, value)
            programs = [word.rsplit("/", 1)[-1] for word in words]
            if commands("compose").intersection(programs) or (
                "compose" in words and commands("docker-cli").intersection(programs)
            ):
                composed.append(frozenset(words))
    for command in composed:
        yield Compose(unit, directory, command)


def settings(text: bytes) -> Iterator[tuple[str, str, str]]:
    """(section, key, value) of a unit file, continued lines joined (systemd.syntax(7))."""
    section = ""
    for raw in _CONTINUED.sub(b" ", text).split(b"\n"):
        line = decode(raw).strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif line and line[0] not in "#;" and "=" in line:
            key, _, value = line.partition("=")
            yield section, key.strip(), value.strip()


def specified(unit: str, text: str) -> str:
    """With the specifiers that the unit's name alone decides (systemd.unit(5)); %i of a template stays, to be matched."""
    stem = unit.rsplit(".", 1)[0]
    prefix, _, instance = stem.partition("@")
    for specifier, value in (("%n", unit), ("%N", stem), ("%p", prefix), ("%i", instance), ("%I", instance)):
        if value and not (value.endswith(("@", "@.service"))):
            text = text.replace(specifier, value)
    return text


def _instance(start: Start, name: str) -> str:
    """The unit, if it starts a container of that name: of a template, the instance that would."""
    if start.container == name:
        return start.unit
    template, at, ending = start.unit.partition("@.")
    if not at or not re.search("%[iInN]", start.container):
        return ""
    parts = re.split("(%[iInN])", start.container)
    forms = {"%i": "(.+)", "%I": "(.+)", "%N": f"{re.escape(template)}@(.+)", "%n": f"{re.escape(template)}@(.+)\\.{ending}"}
    match = re.fullmatch("".join(forms.get(part, re.escape(part)) for part in parts), name)
    return f"{template}@{match[1]}.{ending}" if match is not None and len(set(match.groups())) == 1 else ""


def _words(unit: str, value: str) -> list[str]:
    return specified(unit, value.translate(_QUOTES).replace(";", " ; ")).split()


def _until_separator(words: list[str]) -> list[str]:
    end = next((at for at, word in enumerate(words) if word in _SEPARATORS), len(words))
    return words[:end]
