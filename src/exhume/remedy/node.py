"""The node that a remedy acts on: its root directory, its service manager if one runs, and the way every change is made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.host.root import Root
from exhume.remedy.files import Files
from exhume.remedy.manager import Manager, running
from exhume.remedy.operations import Operations

if TYPE_CHECKING:
    from exhume.cluster.client import Client


def _cluster() -> "Client":
    from exhume.cluster.client import connect

    return connect()


def _quietly(what: str, ratio: float) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Node:
    root: Root
    manager: Manager | None
    """None: nothing runs there (an image, a mounted root), so that only its files can be changed."""
    operations: Operations
    progress: Callable[[str, float], None] = _quietly
    """Told what goes on inside a long step, and how far it is."""
    cluster: Callable[[], "Client"] = _cluster
    """How the API server is reached, for steps that speak to it; by the usual kubeconfig unless somebody says otherwise."""

    @property
    def files(self) -> Files:
        return Files(self.root.path, self.operations)


def at(path: str = "/", operations: Operations | None = None) -> Node:
    """The node whose root directory that is, with its manager if it runs."""
    root = Root(path)
    return Node(root, running(root), operations or Operations())
