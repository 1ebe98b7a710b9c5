"""What systemd says of its units in the journal, known by MESSAGE_ID: text is translated and changes, these do not.

| MESSAGE_ID | kind of event | fields |
|---|---|---|
| 5eb03494b6584870a536b337290809b3 | unit-restart | restarts, of N_RESTARTS |
| 98e322203f7a4ed290d09fe03c09fe15 | unit-exited | code and status, of EXIT_CODE and EXIT_STATUS |
| d9b373ed55a64feb8242e02dbe79a49c | unit-failed | result, of UNIT_RESULT |
| be02cf6855d2428ba40df7e9d022f03d | unit-start-failed | |
| fe6faa94e7774663a0da52717891d8ef | unit-oom | |

They are in systemd's sd-messages.h. Anybody may write a MESSAGE_ID, but nobody else _PID=1: fields with an underscore are
journald's own word (systemd.journal-fields(7)).
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from exhume.recording.recording import Labels, labels


class Said(NamedTuple):
    """An event of a unit, but for its time."""

    kind: str
    subject: str
    severity: str
    message: str
    fields: Labels


_KINDS = {
    "5eb03494b6584870a536b337290809b3": ("unit-restart", "info", {"restarts": "N_RESTARTS"}),
    "98e322203f7a4ed290d09fe03c09fe15": ("unit-exited", "warning", {"code": "EXIT_CODE", "status": "EXIT_STATUS"}),
    "d9b373ed55a64feb8242e02dbe79a49c": ("unit-failed", "warning", {"result": "UNIT_RESULT"}),
    "be02cf6855d2428ba40df7e9d022f03d": ("unit-start-failed", "warning", {}),
    "fe6faa94e7774663a0da52717891d8ef": ("unit-oom", "warning", {}),
}
IDS = tuple(_KINDS)
FIELDS = (
    "MESSAGE_ID",
    "MESSAGE",
    "UNIT",
    "_PID",
    "_BOOT_ID",
    *(name for *_, names in _KINDS.values() for name in names.values()),
)
_MARK = re.compile("|".join(IDS).encode())
_NAME = b'"MESSAGE_ID"'
_PID_1 = "1"


def interesting(line: bytes) -> bool:
    """Whether a line of JSON may be one of these: asked of every line, so it is only looked at."""
    return _NAME in line and _MARK.search(line) is not None


def said(text: Callable[[str], str]) -> Said | None:
    """What an entry says, asked for its fields by name ("" for what it does not have); None if it is not PID 1's."""
    known = _KINDS.get(text("MESSAGE_ID"))
    unit = text("UNIT")
    if known is None or not unit or text("_PID") != _PID_1:
        return None
    kind, severity, names = known
    return Said(kind, unit, severity, text("MESSAGE") or kind, _fields({key: text(name) for key, name in names.items()}))


def _fields(known: Mapping[str, str]) -> Labels:
    return labels(**{key: value for key, value in known.items() if value})
