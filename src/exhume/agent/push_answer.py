"""What a receiver's answer means for a profile: sent, try again, or never."""

import time
from email.utils import parsedate_to_datetime
from typing import Literal, NamedTuple

from exhume.text import decode, printable

LONGEST_AFTER_S = 3600.0
# Not known, not allowed, not by this proxy (RFC 9110, 15.5): it is the sender that is refused, not what it sends, and a token
# that has run out is replaced some time. Many receivers say 403 of one.
UNTRUSTED = (401, 403, 407)
UNTRUSTED_AFTER_S = 300.0


class Outcome(NamedTuple):
    state: Literal["sent", "again", "failed"]
    detail: str = ""
    """Why, for people."""
    after_s: float | None = None
    """How long the receiver wants to be left alone, if it says so."""
    answered: bool = False
    """It was the receiver that said so, about this profile; otherwise nobody was reached."""
    untrusted: bool = False
    """It is the token that the receiver does not like."""


def judged(status: int, reason: str, said: bytes, after: str | None, content_type: str = "") -> Outcome:
    """What an answer means. Of refusals 408 and 429 are passing ones, those of a token last until there is another, all others
    would be the same next time."""
    detail = f"{status} {printable(reason, 60)}"
    if 200 <= status < 300:
        refused = rejected(said) if content_type == "application/x-protobuf" else ""
        return Outcome("failed", f"{detail}, but: {refused}", answered=True) if refused else Outcome("sent", answered=True)
    if words := printable(decode(said[:300].strip()), 200):
        detail += f": {words}"
    if status in (408, 429) or status >= 500:
        return Outcome("again", detail, retry_after(after, time.time()), answered=True)
    if status in UNTRUSTED:
        wait_s = retry_after(after, time.time())
        detail += "; tried again every few minutes, and when agent.push.token_file changes"
        return Outcome("again", detail, UNTRUSTED_AFTER_S if wait_s is None else wait_s, answered=True, untrusted=True)
    if 300 <= status < 400:
        detail += "; redirects are not followed, name the right place in agent.push.url"
    return Outcome("failed", detail, answered=True)


def retry_after(value: str | None, now: float) -> float | None:
    """Seconds, from a number of them or from a date (RFC 9110, 10.2.3); None for what is neither."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdecimal():
        return min(float(value[:9]), LONGEST_AFTER_S)
    try:
        return min(max(0.0, parsedate_to_datetime(value).timestamp() - now), LONGEST_AFTER_S)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def rejected(said: bytes) -> str:
    """Why a collector that said yes took nothing: partial_success (1) of ExportProfilesServiceResponse, with rejected_profiles
    (1) and error_message (2). "" where it took it, or says something else; to send it again would be no use (OTLP, "Partial
    Success")."""
    partial = _fields(said).get(1)
    if not isinstance(partial, bytes):
        return ""
    found = _fields(partial)
    why = found.get(2)
    return (printable(decode(why), 200) if isinstance(why, bytes) and why else "it took nothing of it") if found.get(1) else ""


def _fields(data: bytes) -> dict[int, int | bytes]:
    """The numbers and bytes of a message by their fields, the last of each; what is no message has none."""
    found: dict[int, int | bytes] = {}
    at = 0
    try:
        while at < len(data):
            key, at = _varint(data, at)
            value, at = _varint(data, at)
            if key & 7 == 0:
                found[key >> 3] = value
            elif key & 7 == 2 and at + value <= len(data):
                found[key >> 3] = data[at : at + value]
                at += value
            else:
                return {}
    except IndexError:
        return {}
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError
