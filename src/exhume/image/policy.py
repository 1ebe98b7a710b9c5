"""The lifecycle policy: what an image may run, who answers for it and until when. A TOML file in the image's repository.

An agent that nobody owns is the one that nobody notices. Every mistake in the file is named by its key path: a policy that is
half understood would let through what it was written to keep out.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property

from exhume.errors import UsageError
from exhume.host.quantities import DAY, ago
from exhume.host.service import Inventory, Service
from exhume.image.audit_scope import concerns, kept
from exhume.text import printable

SCHEMA = "exhume.policy/1"
LARGEST = 4 << 20
"""Of a policy file: 10,000 agents with a sentence each have less than 2 MiB."""

_KEYS = {"owner": "text", "purpose": "text", "review": "a date", "images": "a list of texts", "keep": "true or false"}
_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class Listed:
    """What the policy says of one agent. The name may be a glob: getty@*.service."""

    name: str
    owner: str = ""
    purpose: str = ""
    review: date | None = None
    """When somebody has to ask again whether it is needed."""
    images: tuple[str, ...] = ()
    """Globs of the images that may have it; none means all."""
    keep: bool = False
    """Needed, whatever else speaks against it: somebody knows why."""


@dataclass(frozen=True)
class Policy:
    agents: tuple[Listed, ...] = ()

    def find(self, name: str) -> Listed | None:
        """Whoever is meant by that name: an exact one first, then the first glob of the file that fits."""
        name = kept(name)
        return self._exact.get(name) or next((one for one in self._globs if fnmatchcase(name, one.name)), None)

    def of(self, service: Service) -> Listed | None:
        """By its own name, or by another name of the same unit: sshd.service in a policy is ssh.service on Debian."""
        return next((listed for name in (service.name, *service.aliases) if (listed := self.find(name)) is not None), None)

    @cached_property
    def _exact(self) -> dict[str, Listed]:
        return {one.name: one for one in self.agents}

    @cached_property
    def _globs(self) -> list[Listed]:
        return [one for one in self.agents if any(mark in one.name for mark in "*?[")]


# In the order in which they are told.
DRIFTS = ("not-allowed", "new", "past-review", "no-owner", "gone")


@dataclass(frozen=True, slots=True)
class Drift:
    """Where the image and its policy have come apart."""

    kind: str
    """One of DRIFTS."""
    name: str
    message: str


def parse(raw: bytes, where: str) -> Policy:
    """The file as data; `where` is what to call it in a complaint."""
    try:
        document = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where} is not TOML: {printable(str(error))}") from None
    for key in document:
        if key not in ("schema", "agents"):
            raise UsageError(f'{where}: {_path(key)} is not known; there are schema and [agents."NAME"]')
    if document.get("schema", SCHEMA) != SCHEMA:
        raise UsageError(f"{where}: schema must be {SCHEMA!r}, not {_shown(document['schema'])}")
    agents = document.get("agents", {})
    if not isinstance(agents, dict):
        raise UsageError(f'{where}: agents must be sections, [agents."NAME"], not {_shown(agents)}')
    return Policy(tuple(_listed(name, value, where) for name, value in agents.items()))


def _listed(name: str, value: object, where: str) -> Listed:
    at = f"{where}: {_path('agents', name)}"
    if not isinstance(value, dict):
        raise UsageError(f"{at} must be a section, not {_shown(value)}")
    for key in value:
        if key not in _KEYS:
            near = get_close_matches(key, _KEYS, 1)
            hint = f", did you mean {near[0]}?" if near else f"; there are {', '.join(_KEYS)}"
            raise UsageError(f"{where}: {_path('agents', name, key)} is not known{hint}")
    images = value.get("images", [])
    right = {
        "owner": isinstance(value.get("owner", ""), str),
        "purpose": isinstance(value.get("purpose", ""), str),
        "review": "review" not in value or type(value["review"]) is date,  # a time of day is a date to isinstance
        "images": isinstance(images, list) and all(isinstance(glob, str) and glob for glob in images),
        "keep": isinstance(value.get("keep", False), bool),
    }
    for key, good in right.items():
        if not good:
            example = " as in review = 2027-01-31" if key == "review" else ""
            raise UsageError(f"{where}: {_path('agents', name, key)} must be {_KEYS[key]}{example}, not {_shown(value[key])}")
    if not name:
        raise UsageError(f"{at} has no name")
    return Listed(
        name, value.get("owner", ""), value.get("purpose", ""), value.get("review"), tuple(images), value.get("keep", False)
    )


def first_policy(services: Iterable[Service], known: Policy | None = None) -> Policy:
    """A policy of everything that starts, in the order of names; what is known already stays as it is."""
    agents = {one.name: one for one in known.agents} if known is not None else {}
    for service in services:
        if concerns(service) and (known is None or known.of(service) is None):
            name = kept(service.name)
            agents[name] = Listed(name, purpose=kept(service.description))
    return Policy(tuple(agents[name] for name in sorted(agents)))


def write(policy: Policy, system: str = "") -> str:
    """The file; owners that are not known are left open for somebody to fill in."""
    lines = [
        f"# What {printable(system) or 'this image'} starts by itself, and who answers for it.",
        "# owner: who is asked. purpose: why it is there. review = 2027-01-31: when to ask again. images: globs of the images",
        "# that may have it, all if there are none. keep = true: needed, whatever an audit may find.",
        f'schema = "{SCHEMA}"',
    ]
    for one in policy.agents:
        lines += ["", f"[{_path('agents', one.name, quoted=True)}]"]
        lines.append(f"owner = {_string(one.owner)}" + ("" if one.owner.strip() else "  # nobody yet"))
        lines.append(f"purpose = {_string(one.purpose)}")
        if one.review is not None:
            lines.append(f"review = {one.review.isoformat()}")
        if one.images:
            lines.append(f"images = [{', '.join(map(_string, one.images))}]")
        if one.keep:
            lines.append("keep = true")
    return "\n".join(lines) + "\n"


def drift(policy: Policy, inventory: Inventory, today: date) -> tuple[Drift, ...]:
    """Where the two differ: what is new, gone, past its date, without an owner or not allowed in this image."""
    here = image_names(inventory)
    seen: dict[str, list[str]] = {}
    found = []
    for service in inventory.services:
        if not service.starts:
            continue
        listed = policy.of(service)
        if listed is None:
            if concerns(service):
                how = f", by {', '.join(map(printable, service.pulled_by[:3]))}" if service.pulled_by else ""
                found.append(Drift("new", service.name, f"it starts by itself{how}, and the policy does not list it"))
            continue
        seen.setdefault(listed.name, []).append(service.name)
    for path in inventory.unknown:  # generators that are not known: listed by path, if at all
        if (listed := policy.find(path)) is not None:
            seen.setdefault(listed.name, []).append(path)
    for listed in policy.agents:
        allowed = not listed.images or any(fnmatchcase(name, glob) for glob in listed.images for name in here)
        there = seen.get(listed.name, [])
        if not there and allowed:
            found.append(Drift("gone", listed.name, "the policy lists it, and nothing of that name starts here any more"))
        if there and not allowed:
            globs = ", ".join(map(printable, listed.images))
            names = " or ".join(map(printable, here)) or "an image without a name"
            found.append(Drift("not-allowed", listed.name, f"it is allowed in {globs}, and this is {names}"))
        if there and not listed.owner.strip():
            found.append(Drift("no-owner", listed.name, "nobody is named who answers for it"))
        if there and listed.review is not None and listed.review < today:
            days = (today - listed.review).days
            found.append(Drift("past-review", listed.name, f"it was to be reviewed by {listed.review}, {ago(days * DAY)}"))
    return tuple(sorted(found, key=lambda one: (DRIFTS.index(one.kind), one.name)))


def image_names(inventory: Inventory) -> tuple[str, ...]:
    """What an image may be called in `images`: os-release's IMAGE_ID and PRETTY_NAME (os-release(5)), and its file's name."""
    names = (inventory.facts.get("image_id", ""), inventory.system, inventory.facts.get("file", ""))
    return tuple(dict.fromkeys(kept(name) for name in names if name))


def _path(*keys: str, quoted: bool = False) -> str:
    """A key path as TOML has it; for people, names are made safe to show."""
    if quoted:
        return ".".join(key if _BARE.fullmatch(key) else _string(key) for key in keys)
    return ".".join(key if _BARE.fullmatch(key) else f'"{printable(key)}"' for key in keys)


def _shown(value: object) -> str:
    return printable(repr(value), 60)


def _string(text: str) -> str:
    """A basic string of TOML 1.0: quotes, backslashes and control characters escaped, and what a terminal might obey."""
    escapes: Mapping[str, str] = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return '"' + "".join(escapes.get(c) or (c if c.isprintable() else _escaped(ord(c))) for c in text) + '"'


def _escaped(point: int) -> str:
    if 0xD800 <= point < 0xE000:
        return "\\uFFFD"  # no TOML can hold half a character; kept() has none
    return f"\\u{point:04X}" if point < 0x10000 else f"\\U{point:08X}"
