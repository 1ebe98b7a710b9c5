"""What runs by itself, as data: one `Service` for each thing that somebody or something would start without being asked."""

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "unit",  # a systemd unit of the system manager, of any type
    "user-unit",  # of the users' managers (systemd --user)
    "sysv",  # a script of /etc/init.d with links in rcN.d, where systemd has no unit of that name
    "rc-local",
    "cron",  # a line of a crontab, or a script of /etc/cron.{hourly,daily,weekly,monthly}
    "static-pod",
    "container",  # that a runtime starts again by its own restart policy
    "daemonset",  # what Kubernetes puts on the node
    "generator",  # a program that makes units at boot and that we do not model
]

STATES = (
    # as `systemctl list-unit-files` has them (systemctl(1), is-enabled)
    *("enabled", "enabled-runtime", "linked", "linked-runtime", "alias", "masked", "masked-runtime"),
    *("static", "indirect", "disabled", "generated", "transient", "bad"),
)


@dataclass(frozen=True, slots=True)
class Restart:
    """How a thing comes back when it ends, and whether anything ever stops it from coming back."""

    policy: str
    """Restart= of systemd, or the restart policy of a container."""
    delay_s: float
    burst: int
    interval_s: float
    endless: bool
    """Whether it can go on for ever when every start fails at once: the start limit cannot bite."""
    why: str
    """The arithmetic, in a sentence."""
    prevent: str = ""
    """RestartPreventExitStatus=, where there is any."""


@dataclass(frozen=True, slots=True)
class Service:
    name: str
    """ecs.service; cron: the file and the line; a container's or a pod's own name."""
    kind: Kind
    state: str
    """Of units one of STATES; of everything else enabled or disabled."""
    starts: bool
    """Whether it will run by itself: by boot, by a timer, a socket, a path, or because something that starts wants it."""
    path: str = ""
    """The file that it is read from."""
    description: str = ""
    command: tuple[str, ...] = ()
    """What it runs, a line each; without arguments that look like secrets."""
    package: str = ""
    pulled_by: tuple[str, ...] = ()
    """What starts it: targets that want it, timers, sockets, paths and D-Bus names that trigger it."""
    needed_by: tuple[str, ...] = ()
    """What would miss it: units that require or want it and are not targets alone."""
    needs: tuple[str, ...] = ()
    restart: Restart | None = None
    cgroups: str = ""
    """Why it makes cgroups of its own (Delegate=, containers); empty if nothing says so."""
    conditions: tuple[str, ...] = ()
    """Conditions that would keep it from starting on this image, and why."""
    preset: str = ""
    """What the presets say: enable, disable, or nothing."""
    notes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other names of the same unit, by links that are there."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that will run by itself, and what could not be read."""

    system: str
    """The image's name for itself: PRETTY_NAME of os-release."""
    services: tuple[Service, ...]
    troubles: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """What may start things and cannot be known without running it: generators that we do not model."""
    facts: dict[str, str] = field(default_factory=dict)
