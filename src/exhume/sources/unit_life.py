"""How each service lives right now, asked of systemd over D-Bus: since when, how often restarted, how it ended, what it used.

For the audit of a live node: an image says what would start, this says what became of it.
"""

import time as clock
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.errors import Unreadable

if TYPE_CHECKING:
    from exhume.host.root import Root

DEADLINE_S = 3.0
"""For the whole of it. An audit is in no hurry, and PID 1 may be."""

_SERVICE = "org.freedesktop.systemd1.Service"
_UNIT = "org.freedesktop.systemd1.Unit"
# The most telling first, in case time runs out (org.freedesktop.systemd1(5)).
_QUESTIONS = (
    (_SERVICE, "NRestarts"),
    (_SERVICE, "Result"),
    (_SERVICE, "ExecMainCode"),
    (_SERVICE, "ExecMainStatus"),
    (_SERVICE, "ControlGroup"),
    (_SERVICE, "CPUUsageNSec"),
    (_UNIT, "StateChangeTimestampMonotonic"),
    (_SERVICE, "MainPID"),
)
_NOT_SET = (1 << 64) - 1
"""What systemd says of a number that it does not have, CPUUsageNSec without accounting for one."""


@dataclass(frozen=True, slots=True)
class Life:
    """One service as systemd knows it now; -1 and "" for what it did not say."""

    unit: str
    active: str
    sub: str
    restarts: int = -1
    result: str = ""
    exit_code: int = 0
    """How the main process last ended: CLD_EXITED, CLD_KILLED ... of waitid(2); 0 if it never did."""
    exit_status: int = 0
    cgroup: str = ""
    cpu_s: float = -1.0
    since_s: float = -1.0
    """How long it has been in this state."""
    main_pid: int = 0

    @property
    def running(self) -> bool:
        return self.active in ("active", "reloading", "activating") and "auto-restart" not in self.sub


def read_life(root: "Root") -> tuple[dict[str, Life], str]:
    """Every loaded service by its name, and a note when that is not all of it. Unreadable where systemd cannot be asked."""
    from exhume.host.bus import connected
    from exhume.sources.units import MOST_ASKED, ask, list_services

    deadline = clock.monotonic() + DEADLINE_S
    answers: dict[str, dict[str, object]] = {}
    with connected(root, deadline) as bus:
        listed = list_services(bus)
        asked = [service for service in listed if not service.settled]
        asked.sort(key=lambda service: service.active == "active")
        few = asked[:MOST_ASKED]
        note = ask(bus, [(service, interface, name) for interface, name in _QUESTIONS for service in few], answers)
    if len(asked) > MOST_ASKED and not note:
        note = f"only {MOST_ASKED} of {len(asked)} services that are not inactive were asked"
    now_us = _monotonic_us(root)
    return {one.unit: life(one.unit, one.active, one.sub, answers.get(one.unit, {}), now_us) for one in listed}, note


def life(unit: str, active: str, sub: str, known: Mapping[str, object], now_us: int) -> Life:
    def number(name: str, default: int) -> int:
        value = known.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def text(name: str) -> str:
        value = known.get(name)
        return value if isinstance(value, str) else ""

    used, changed = number("CPUUsageNSec", _NOT_SET), number("StateChangeTimestampMonotonic", 0)
    return Life(
        unit,
        active,
        sub,
        number("NRestarts", -1),
        text("Result"),
        number("ExecMainCode", 0),
        number("ExecMainStatus", 0),
        text("ControlGroup"),
        -1.0 if used >= _NOT_SET else used / 1e9,
        (now_us - changed) / 1e6 if 0 < changed <= now_us else -1.0,
        number("MainPID", 0),
    )


def _monotonic_us(root: "Root") -> int:
    """The clock that systemd's times are in: ours, or what the other root's uptime says, which also counts sleep (proc(5))."""
    if root.own:
        return clock.clock_gettime_ns(clock.CLOCK_MONOTONIC) // 1000
    try:
        words = root.read("proc/uptime", 128).split()
    except Unreadable:
        return 0
    return int(float(words[0]) * 1e6) if words and words[0].replace(b".", b"", 1).isdigit() and len(words[0]) < 20 else 0


def try_life(root: "Root") -> tuple[dict[str, Life], str]:
    """The same; where systemd cannot be asked there is nothing, and the reason why."""
    try:
        return read_life(root)
    except Unreadable as error:
        return {}, str(error)
