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

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from exhume.host.directory import Directory
from exhume.host.owners import Owner
from exhume.host.programs import Starts, commands, services, with_role
from exhume.host.root import Root
from exhume.host.systemd import names
from exhume.host.systemd.fragments import Fragments
from exhume.host.systemd.places import QUADLETS, read_layout, search_path
from exhume.host.systemd.specifiers import expand
from exhume.host.systemd.unit_file import Sections, merge, split

_MOST_UNITS = 4000
_STARTS = ("ExecStartPre", "ExecStart", "ExecStartPost")
_STARTERS = frozenset({"run", "create", "start", "restart"})
_SEPARATORS = frozenset({";", "&&", "||", "|", "&"})
_DEEPEST = 4  # shells in shells
_ANY = "\0"
"""Stands for the instance of a template, which only the container's name tells."""
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
    def files(self) -> dict[str, Sections]:
        """Services and quadlets by the name of their unit, with their drop-ins; what is masked starts nothing."""
        with Directory(self._root.path) as tree:
            fragments = Fragments(tree, read_layout(tree, search_path(tree)))
            services = {fragments.canonical(name) for name in fragments.known() if names.kind(name) == "service"}
            units = [unit for unit in sorted(services) if not fragments.masked(unit)][:_MOST_UNITS]
            found = {unit: fragments.merged(unit) for unit in units}
            for place in QUADLETS:
                for name in tree.names(place)[: _MOST_UNITS - len(found)]:
                    unit = name.removesuffix(".container") + ".service"
                    if name.endswith(".container") and unit not in services:
                        drop_ins = fragments.chosen([f"{place}/{name}.d"])
                        found.setdefault(unit, merge(fragments.text(path) for path in (f"{place}/{name}", *drop_ins)))
        return found

    @cached_property
    def starts(self) -> list[Start]:
        return [start for unit, sections in self.files.items() for start in starts(unit, sections)]

    @cached_property
    def composes(self) -> list[Compose]:
        return [compose for unit, sections in self.files.items() for compose in composes(unit, sections)]


def _is_of(known: Starts, name: str, image: str, labels: Mapping[str, str]) -> bool:
    return name in known.containers or image in known.images or any(label in labels for label in known.labels)


def bare_image(image: str) -> str:
    """An image without registry, tag and digest."""
    match = _IMAGE.match(image)
    return match["name"] if match is not None else ""


def starts(unit: str, sections: Sections) -> Iterator[Start]:
    """The containers that a unit starts, whether by itself or through a shell."""
    if name := sections.last("Container", "ContainerName"):
        yield Start(unit, _expand(name, unit), frozenset())
    if image := sections.last("Container", "Image"):
        yield Start(unit, _expand("systemd-%N", unit), frozenset({image}))
    for words in _commands(unit, sections):
        for at, word in enumerate(words):
            if posixpath.basename(word) in commands("docker-cli"):
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


def composes(unit: str, sections: Sections) -> Iterator[Compose]:
    directory = _expand(sections.last("Service", "WorkingDirectory"), unit).lstrip("-").rstrip("/")
    for words in _commands(unit, sections):
        programs = {posixpath.basename(word) for word in words}
        if programs & commands("compose") or ("compose" in words and programs & commands("docker-cli")):
            yield Compose(unit, directory, frozenset(words))


def _commands(unit: str, sections: Sections) -> Iterator[list[str]]:
    """The words of each command line; those of a script that is given to a shell among them."""
    for line in (line for key in _STARTS for line in sections.lines("Service", key)):
        yield [_expand(word, unit) for word in _words(line, _DEEPEST)]


def _words(text: str, depth: int) -> Iterator[str]:
    for word in split(text):
        if depth and any(space in word for space in " \t\n"):
            yield from _words(word.replace(";", " ; "), depth - 1)
        else:
            yield word


def _expand(text: str, unit: str) -> str:
    return expand(text, names.with_instance(unit, _ANY) if names.form(unit) == "template" else unit)


def _instance(start: Start, name: str) -> str:
    """The unit, if it starts a container of that name: of a template, the instance that would."""
    if start.container == name:
        return start.unit
    if _ANY not in start.container:
        return ""
    match = re.fullmatch("(.+)".join(map(re.escape, start.container.split(_ANY))), name)
    return names.with_instance(start.unit, match[1]) if match is not None and len(set(match.groups())) == 1 else ""


def _until_separator(words: list[str]) -> list[str]:
    end = next((at for at, word in enumerate(words) if word in _SEPARATORS), len(words))
    return words[:end]
