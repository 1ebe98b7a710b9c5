"""Objects of the API server as they come, JSON, and how to look into them without trusting their shape."""

import re
from datetime import UTC, datetime
from typing import Any

from exhume.errors import UsageError
from exhume.text import printable

Document = dict[str, Any]

MANAGER = "exhume"
"""Our name in managedFields: whose a field is can be read from there."""

# apimachinery, validation.IsDNS1123Subdomain: the names of nodes and of most other objects.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


def within(told: object, *way: str) -> Any:
    """What is at the end of the way, or None where it breaks off."""
    for name in way:
        if not isinstance(told, dict):
            return None
        told = told.get(name)
    return told


def text_in(told: object, *way: str) -> str:
    found = within(told, *way)
    return found if isinstance(found, str) else ""


def list_in(told: object, *way: str) -> list[Document]:
    found = within(told, *way)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def names_in(told: object, *way: str) -> dict[str, str]:
    """Labels or annotations."""
    found = within(told, *way)
    return {key: value for key, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}


def checked_name(name: str, what: str = "node") -> str:
    """A name that may be put into an address."""
    if len(name) > 253 or not _NAME.fullmatch(name):
        raise UsageError(f"{printable(name) or 'nothing'} is not the name of a {what}: small letters, digits, - and . only")
    return name


def stamp(seconds: float) -> str:
    """A time as the API server takes it (metav1.Time: RFC 3339, whole seconds)."""
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(told: str) -> float | None:
    """None for what is no time."""
    try:
        moment = datetime.fromisoformat(told)
        return moment.timestamp() if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None
