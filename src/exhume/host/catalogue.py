"""Which program of the catalogue a service is: by its unit's name, its file, its image, what it runs, or its package."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from exhume.host.programs import Program, every, is_glob
from exhume.host.service import Service


class Catalogue:
    """The programs that images start by themselves (agents), looked up by a service."""

    def __init__(self, programs: Iterable[Program]) -> None:
        self.agents = {program.id: program for program in programs if program.purpose}
        self._units = _Names((agent, agent.units) for agent in self.agents.values())
        self._files = _Names((agent, agent.files) for agent in self.agents.values())
        self._images = _Names((agent, agent.images) for agent in self.agents.values())
        self._executables = _Names((agent, agent.executables) for agent in self.agents.values())
        self._packages = _Names((agent, agent.packages) for agent in self.agents.values())

    def recognise(self, service: Service) -> Program | None:
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


def _first(found: Iterable[Program | None]) -> Program | None:
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

    def __init__(self, names: Iterable[tuple[Program, tuple[str, ...]]]) -> None:
        self._exact: dict[str, Program] = {}
        self._globs: list[tuple[str, str, Program]] = []
        for agent, patterns in names:
            for pattern in patterns:
                if is_glob(pattern):
                    self._globs.append((re.split(r"[*?\[]", pattern, maxsplit=1)[0], pattern, agent))
                else:
                    self._exact.setdefault(pattern, agent)

    def find(self, name: str) -> Program | None:
        if not name:
            return None
        if name in self._exact:
            return self._exact[name]
        fitting = (one for one in self._globs if name.startswith(one[0]))
        return next((agent for _, pattern, agent in fitting if fnmatchcase(name, pattern)), None)


def overlap(one: str, other: str) -> bool:
    """Whether a name can be seen that both patterns match, as far as each is tried on the other with its stars taken out."""
    return fnmatchcase(other.replace("*", "x"), one) or fnmatchcase(one.replace("*", "x"), other)


def load() -> Catalogue:
    return Catalogue(every())
