"""A unit's sockets as data. Apart from what reads them, so that judging an image loads nothing that reads a node."""

from dataclasses import dataclass

INIT = "init.scope"
"""PID 1 holds the sockets of socket units too, and of most of them only until the service is there."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One thing that a unit listens on."""

    protocol: str
    address: str
    connections: int = 0
    peers: tuple[str, ...] = ()
    """Who of this node is connected: units, pods, containers, else processes."""
    remotes: int = 0
    """How many addresses of other machines are."""
    made_s: float = -1.0
    """Of a socket file: how long ago it was made; -1 where it is not known."""
    touched_s: float = -1.0
    """How long ago somebody connected to it, by its access time, which the kernel sets at connect() (unix_find_bsd in
    net/unix/af_unix.c), to the day with relatime; -1 if nobody has since it was made, or where it is not known."""


@dataclass(frozen=True, slots=True)
class Sockets:
    listening: tuple[Endpoint, ...] = ()
    outgoing: int = 0
    """Connections that it made itself, to other machines."""
    talks_to: tuple[str, ...] = ()
    """Whom of this node it is connected to."""
    mounted_by: tuple[str, ...] = ()
    """Containers and pods that have its sockets, or the directories of these, mounted."""
