"""What the manager does where a unit says nothing: system.conf and its drop-ins (systemd-system.conf(5))."""

import math
import re
from dataclasses import dataclass

from exhume.host.quantities import timespan_s
from exhume.host.systemd.unit_file import Sections, merge, parse
from exhume.host.tree import Tree

_PLACES = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd")
_LIBRARY = re.compile(r"libsystemd-(?:shared|core)-([0-9]{2,4})\b.*\.so")
_LIBRARIES = ("/usr/lib/systemd", "/lib/systemd", "/usr/lib64/systemd", "/usr/lib/x86_64-linux-gnu/systemd")


@dataclass(frozen=True, slots=True)
class Defaults:
    """Times in seconds; the values are those that systemd is built with (src/core/manager.c, meson_options.txt)."""

    restart_s: float = 0.1
    interval_s: float = 10.0
    burst: int = 5
    timeout_start_s: float = 90.0
    version: int = 0
    """Of systemd; 0 when the image does not say."""


def read_defaults(tree: Tree, manager: str = "system") -> Defaults:
    sections = _configuration(tree, f"{manager}.conf")
    own = Defaults()
    return Defaults(
        _span(sections, own.restart_s, "DefaultRestartSec"),
        _span(sections, own.interval_s, "DefaultStartLimitIntervalSec", "DefaultStartLimitInterval"),
        whole(sections.last("Manager", "DefaultStartLimitBurst"), own.burst),
        _span(sections, own.timeout_start_s, "DefaultTimeoutStartSec") or math.inf,
        version(tree),
    )


def _configuration(tree: Tree, name: str) -> Sections:
    """The first file of that name, then the drop-ins of all places by their file names; the first place's counts."""
    main = next((raw for place in _PLACES if (raw := tree.read(f"{place}/{name}")) is not None), b"")
    chosen: dict[str, str] = {}
    for place in _PLACES:
        for file in tree.names(f"{place}/{name}.d"):
            if file.endswith(".conf"):
                chosen.setdefault(file, f"{place}/{name}.d/{file}")
    return merge([parse(main), *(parse(tree.read(path) or b"") for _, path in sorted(chosen.items()))])


def _span(sections: Sections, default: float, *keys: str) -> float:
    for section, key, value in reversed(sections.assignments):
        if section == "Manager" and key in keys and (span := timespan_s(value)) is not None:
            return span
    return default


def whole(text: str, default: int) -> int:
    """A number as safe_atou() takes it; anything else is passed over."""
    return int(text) if re.fullmatch(r"\+?[0-9]{1,10}", text, re.ASCII) and int(text) < 1 << 32 else default


def version(tree: Tree) -> int:
    """By the name of systemd's private library, which carries it; 0 where there is none."""
    found = [int(match[1]) for place in _LIBRARIES for name in tree.names(place) if (match := _LIBRARY.fullmatch(name))]
    return max(found, default=0)
