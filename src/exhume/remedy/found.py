"""What is at a path, whole: enough to put it back byte for byte, and small enough to be written into a journal."""

import base64
import hashlib
import os
from dataclasses import dataclass, replace
from typing import Literal, get_args

from exhume.errors import ExhumeError, Refused, UsageError
from exhume.remedy.plan_model import from_base64

Kind = Literal["absent", "file", "link", "other"]
_UNKNOWN = "the journal does not say in a form that is known here what was there before"
_LATEST_NS = 1 << 63
"""In the year 2262; a later time does not fit into 64 bits."""
_POWERS = "security.capability"
SET_ID = 0o7000
"""The set-user-ID, set-group-ID and sticky bits (chmod(2)): no configuration has them, so none is written."""


@dataclass(frozen=True, slots=True)
class Found:
    kind: Kind
    """Other is what is never ours to change: directories, devices, sockets, pipes."""
    content: bytes = b""
    target: str = ""
    """Of a link, as it is written in it."""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int | None = None
    """None: whenever it is written."""
    attributes: tuple[tuple[str, bytes], ...] = ()
    """Extended attributes, access control lists and security labels among them."""


ABSENT = Found("absent")


def raises_privilege(found: Found) -> bool:
    """Whether running the file gives other rights: set-id bits, or capabilities of the file (capabilities(7))."""
    return found.kind == "file" and (bool(found.mode & SET_ID) or any(name == _POWERS for name, _ in found.attributes))


def same(one: Found, other: Found) -> bool:
    """Whether both are the same to everybody who reads them.

    Times and extended attributes are put back, but not compared: a new file gets the labels and the access control list that
    its directory and the security policy give it, which nobody knows beforehand.
    """
    return replace(one, mtime_ns=None, attributes=()) == replace(other, mtime_ns=None, attributes=())


def mark(found: Found) -> str:
    """A short text that is different for everything that `same` tells apart. For what a plan expects to find."""
    if found.kind == "file":
        digest = hashlib.sha256(found.content).hexdigest()
        return f"file {found.mode:04o} {found.uid}:{found.gid} sha256:{digest}"
    return f"link {found.uid}:{found.gid} {found.target}" if found.kind == "link" else found.kind


def to_json(found: Found) -> dict[str, object]:
    if found.kind in ("absent", "other"):
        return {"kind": found.kind}
    told: dict[str, object] = {
        "kind": found.kind,
        "mode": found.mode,
        "uid": found.uid,
        "gid": found.gid,
        "mtime_ns": found.mtime_ns,
        "attributes": {name: base64.b64encode(value).decode() for name, value in found.attributes},
    }
    if found.kind == "file":
        told["content"] = base64.b64encode(found.content).decode()
    else:
        told["target"] = found.target
    return told


def from_json(told: object) -> Found:
    """ExhumeError where it is not what `to_json` writes: a journal of another version, or not a journal."""
    if not isinstance(told, dict) or told.get("kind") not in get_args(Kind):
        raise ExhumeError(_UNKNOWN)
    if told["kind"] in ("absent", "other"):
        return Found(told["kind"])
    mtime_ns, attributes, target = told.get("mtime_ns"), told.get("attributes"), told.get("target", "")
    if not isinstance(mtime_ns, int | None) or not isinstance(attributes, dict) or not isinstance(target, str):
        raise ExhumeError(_UNKNOWN)
    if not all(map(_nameable, (target, *attributes))) or not -_LATEST_NS <= (mtime_ns or 0) <= _LATEST_NS:
        raise ExhumeError(_UNKNOWN)
    try:
        pairs = tuple((str(name), from_base64(value, "an attribute")) for name, value in attributes.items())
        content = from_base64(told.get("content", ""), "a file's content")
    except UsageError:
        raise ExhumeError(_UNKNOWN) from None
    mode, uid, gid = (_number(told.get(name)) for name in ("mode", "uid", "gid"))
    found = Found(told["kind"], content, target, mode, uid, gid, mtime_ns, pairs)
    if raises_privilege(found):
        raise Refused("the journal tells of a file with set-id bits or capabilities, and such a file is never written")
    return found


def _nameable(text: object) -> bool:
    """Whether the kernel can be given it as a name."""
    try:
        return b"\0" not in os.fsencode(str(text))
    except UnicodeEncodeError:
        return False


def _number(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise ExhumeError(_UNKNOWN)
    return value
