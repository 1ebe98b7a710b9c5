"""Names of units: which are valid, what is a template and what an instance of one, and how paths become names.

After systemd's src/basic/unit-name.c and systemd.unit(5). A valid name is plain ASCII: hostile bytes never get past here.
"""

import re
from functools import lru_cache
from typing import Literal

TYPES = ("service", "socket", "target", "device", "mount", "automount", "swap", "timer", "path", "slice", "scope")
ACTED_ON = ("service", "socket", "timer", "path")
"""Types that a remedy acts on: a target gathers others, a slice holds them, a mount or swap carries them, a scope is somebody's
session or container."""
LONGEST = 255  # UNIT_NAME_MAX, src/basic/unit-name.h
_NAME = re.compile(rf"(?!@)[A-Za-z0-9:_.\\@-]+\.({'|'.join(TYPES)})\Z", re.ASCII)
# src/basic/unit-file.c: unit_type_may_alias, unit_type_may_template
MAY_ALIAS = frozenset(("service", "socket", "target", "device", "timer", "path"))
MAY_TEMPLATE = frozenset(("service", "socket", "target", "timer", "path"))
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:_.")

Form = Literal["plain", "template", "instance"]


@lru_cache(maxsize=1 << 15)
def valid(name: str) -> bool:
    return len(name) <= LONGEST and _NAME.match(name) is not None


def kind(name: str) -> str:
    """service, socket, timer ..."""
    return name.rpartition(".")[2]


@lru_cache(maxsize=1 << 15)
def form(name: str) -> Form:
    prefix, at, instance = name.rpartition(".")[0].partition("@")
    return "plain" if not at or not prefix else ("instance" if instance else "template")


def prefix(name: str) -> str:
    """What is before the @ or, without one, before the type."""
    return name.rpartition(".")[0].partition("@")[0]


def instance(name: str) -> str:
    return name.rpartition(".")[0].partition("@")[2]


@lru_cache(maxsize=1 << 15)
def template(name: str) -> str:
    """The template that an instance is made from; empty for what is no instance."""
    return f"{prefix(name)}@.{kind(name)}" if form(name) == "instance" else ""


def with_instance(name: str, instance: str) -> str:
    """A template's instance, or another instance of the same template."""
    return f"{prefix(name)}@{instance}.{kind(name)}"


def with_kind(name: str, kind: str) -> str:
    return f"{name.rpartition('.')[0]}.{kind}"


def prefixes(name: str) -> tuple[str, ...]:
    """The names with which a-b-c.service shares drop-ins: a-b-.service and a-.service (systemd.unit(5))."""
    stem, found = prefix(name), []
    end = len(stem.rstrip("-") if stem.endswith("-") else stem)
    while (end := stem.rfind("-", 0, end)) > 0:
        found.append(f"{stem[: end + 1]}.{kind(name)}")
    return tuple(found)


def escape(text: str) -> str:
    """unit_name_escape: a slash becomes a dash, everything unusual its bytes in hexadecimal."""
    return "".join(
        "-" if c == "/" else c if c in _PLAIN and not (c == "." and i == 0) else _hexadecimal(c) for i, c in enumerate(text)
    )


def _hexadecimal(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def unescape(text: str) -> str:
    raw = re.sub(r"\\x([0-9a-fA-F]{2})|-", lambda m: chr(int(m[1], 16)) if m[1] else "/", text)
    return raw.encode("latin-1", "ignore").decode("utf-8", "replace") if "\\x" in text else raw


def of_path(path: str, kind: str) -> str:
    """The mount, automount, swap or device unit of a path: /var/lib is var-lib.mount, the root is -.mount."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return f"{escape('/'.join(parts)) if parts else '-'}.{kind}"


def to_path(name: str) -> str:
    """What a mount unit is mounted at, by its name."""
    stem = name.rpartition(".")[0]
    return "/" if stem == "-" else "/" + unescape(stem).lstrip("/")


def parent_slice(name: str) -> str:
    """a-b.slice is in a.slice, a.slice in -.slice; the root slice is in none (systemd.slice(5))."""
    stem = name.rpartition(".")[0]
    if stem == "-":
        return ""
    return f"{stem.rpartition('-')[0]}.slice" if "-" in stem else "-.slice"
