"""The catalogue of platform agents: what an agent is, how it is recognised, what needs it, what harm it is known for.

The facts are data, in agents/*.toml, each with its source. Reading them checks every key, so that a mistake is named by
its place.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from exhume.host.needs import Condition, Facts
from exhume.host.service import Service

Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True, slots=True)
class Harm:
    severity: Severity
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Off:
    """How to turn it off: units to stop and disable, a switch in its configuration, packages to leave out of the image."""

    units: tuple[str, ...] = ()
    config: str = ""
    packages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Agent:
    id: str
    name: str
    group: str
    """The file that it stands in: aws, gpu, kubernetes ..."""
    purpose: str
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
    needed_if: tuple[Condition, ...] = ()
    """Empty if nothing that can be looked up tells who needs it."""
    needless: bool = False
    """Whether nothing on a server needs it; then there are no conditions."""
    harm: tuple[Harm, ...] = ()
    off: Off = Off()
    protected: bool = False
    """Never a target: without it the node, its network, or the way to it is lost."""

    def needed(self, facts: Facts) -> str | None:
        """Why it is needed, as the end of a sentence, or None if nothing that is known needs it."""
        return next((reason for condition in self.needed_if if (reason := facts.holds(condition))), None)

    def undecided(self, facts: Facts) -> bool:
        """Whether something may need it that these facts cannot tell: an image at rest does not know its cloud."""
        if not self.needed_if:
            return not self.needless
        return self.needed(facts) is None and any(not facts.decides(condition) for condition in self.needed_if)


class Catalogue:
    """All agents, looked up by what a service is called, where it lies, what it runs, and which package brought it."""

    def __init__(self, agents: Iterable[Agent]) -> None:
        self.agents = {agent.id: agent for agent in agents}
        self._units = _Names((agent, agent.units) for agent in self.agents.values())
        self._files = _Names((agent, agent.files) for agent in self.agents.values())
        self._images = _Names((agent, agent.images) for agent in self.agents.values())
        self._executables = _Names((agent, agent.executables) for agent in self.agents.values())
        self._packages = _Names((agent, agent.packages) for agent in self.agents.values())

    def recognise(self, service: Service) -> Agent | None:
        """By its name first, its package last: a package may bring several services."""
        found = None
        if service.name.endswith(_UNIT_ENDS):
            found = self._units.find(service.name)
        if found is None and service.kind in ("cron", "sysv", "rc-local"):
            found = self._files.find(service.path)
        if found is None and service.kind in ("container", "static-pod", "daemonset"):
            found = _first(self._images.find(repository(image)) for image in service.description.split())
        if found is None:
            found = _first(self._executables.find(program(line)) for line in service.command)
        if found is None and service.package and service.kind != "generator":
            found = self._packages.find(service.package)
        return found


_UNIT_ENDS = (".service", ".socket", ".timer", ".path", ".mount", ".automount", ".target", ".slice", ".swap", ".device")


def _first(found: Iterable[Agent | None]) -> Agent | None:
    return next((agent for agent in found if agent is not None), None)


def repository(image: str) -> str:
    """An image's name without digest, tag and the default registry: docker.io/library/x:1 is x (distribution/reference)."""
    name = image.partition("@")[0]
    if ":" in name.rpartition("/")[2]:
        name = name.rpartition(":")[0]
    return name.removeprefix("docker.io/").removeprefix("library/")


def program(line: str) -> str:
    """The program of a command line: its first word, without the signs that may stand before it in ExecStart=."""
    words = line.split(None, 1)
    return words[0].lstrip("@-:+!|") if words else ""


class _Names:
    """Names and globs to agents. A glob is compiled only if what stands before its first star fits: there are hundreds."""

    def __init__(self, names: Iterable[tuple[Agent, tuple[str, ...]]]) -> None:
        self._exact: dict[str, Agent] = {}
        self._globs: list[tuple[str, str, Agent]] = []
        for agent, patterns in names:
            for pattern in patterns:
                if is_glob(pattern):
                    self._globs.append((re.split(r"[*?\[]", pattern, maxsplit=1)[0], pattern, agent))
                else:
                    self._exact.setdefault(pattern, agent)

    def find(self, name: str) -> Agent | None:
        if not name:
            return None
        if name in self._exact:
            return self._exact[name]
        fitting = (one for one in self._globs if name.startswith(one[0]))
        return next((agent for _, pattern, agent in fitting if fnmatchcase(name, pattern)), None)


def is_glob(pattern: str) -> bool:
    return any(character in pattern for character in "*?[")


def overlap(one: str, other: str) -> bool:
    """Whether a name can be seen that both patterns match, as far as each is tried on the other with its stars taken out."""
    return fnmatchcase(other.replace("*", "x"), one) or fnmatchcase(one.replace("*", "x"), other)


def load(more: Iterable[str] = ()) -> Catalogue:
    """The catalogue that comes with exhume, and files of the same form that add to it; a later agent replaces one of its id."""
    from exhume.host.catalogue_file import read

    return Catalogue(read(more))
