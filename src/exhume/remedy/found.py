"""What is at a path, whole: enough to put it back byte for byte, and small enough to be written into a journal."""

import base64
import hashlib
from dataclasses import dataclass, replace
from typing import Literal, get_args

from exhume.errors import ExhumeError, UsageError
from exhume.remedy.plan_model import from_base64

Kind = Literal["absent", "file", "link", "other"]
_UNKNOWN = "the journal does not say in a form that is known here what was there before"


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
    try:
        pairs = tuple((str(name), from_base64(value, "an attribute")) for name, value in attributes.items())
        content = from_base64(told.get("content", ""), "a file's content")
    except UsageError:
        raise ExhumeError(_UNKNOWN) from None
    mode, uid, gid = (_number(told.get(name)) for name in ("mode", "uid", "gid"))
    return Found(told["kind"], content, target, mode, uid, gid, mtime_ns, pairs)


def _number(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise ExhumeError(_UNKNOWN)
    return value
