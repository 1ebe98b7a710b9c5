"""Somebody on the node with programs of his own: a cgroup of one name in the hierarchies that matter, as a container has."""

import subprocess
from collections.abc import Iterable
from typing import Final

from exhume.lab.cgroup import Cgroup, hierarchies
from exhume.lab.workshop import Lab

CONTROLLERS: Final = ("memory", "cpu")


def without(*controllers: str) -> str:
    """Which of these cannot be had here; "" if all can."""
    there = {controller for hierarchy in hierarchies() for controller in hierarchy.controllers}
    lacking = [controller for controller in controllers if controller not in there]
    return f"it takes a cgroup hierarchy with the {lacking[0]} controller" if lacking else ""


class Tenant:
    def __init__(self, lab: Lab, *names: str) -> None:
        self._lab = lab
        self._groups = {controller: lab.cgroup(controller, *names) for controller in CONTROLLERS if not without(controller)}

    def group(self, controller: str) -> Cgroup:
        return self._groups[controller]

    @property
    def groups(self) -> Iterable[Cgroup]:
        return self._groups.values()

    def work(self, what: str, *arguments: object, network: str = "") -> "subprocess.Popen[str]":
        """A little program of this tenant, if need be in one of the lab's network namespaces."""
        before = ("in-network", f"/run/netns/{network}") if network else ()
        first, *others = self.groups
        process = self._lab.work(*before, what, *arguments, into=first)
        for group in others:
            group.enter(process.pid)
        return process
