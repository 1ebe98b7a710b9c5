"""The state of a source: on, partial or off, and typed reasons for it. Programs ask for the type of a reason; its sentence is
for people."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar, assert_never, get_args

from exhume.host.quantities import MILLISECOND, duration, milliseconds
from exhume.record import record
from exhume.text import from_json

State: TypeAlias = Literal["on", "partial", "off"]
STATES: Final[tuple[State, ...]] = get_args(State)
# From this gap between two looks on, the absence of a stall proves nothing.
BLIND_MS: Final = 500
Visible: TypeAlias = Literal["hierarchy", "processes", "devices"]


@record(frozen=True, slots=True)
class Text:
    """Free text of a recording that has no codes: made before they were stored, or by a newer exhume that has more of them."""

    code: ClassVar = "text"
    limits: ClassVar = False
    text: str


@record(frozen=True, slots=True)
class Note:
    """How the source was read. Nothing is missing from it."""

    code: ClassVar = "note"
    limits: ClassVar = False
    text: str


@record(frozen=True, slots=True)
class Limit:
    """Something is missing from the source; no code depends on what."""

    code: ClassVar = "limit"
    limits: ClassVar = True
    text: str


@record(frozen=True, slots=True)
class Imported:
    """Read from a file of another tool."""

    code: ClassVar = "imported"
    limits: ClassVar = False
    format: str


@record(frozen=True, slots=True)
class ContainerOnly:
    """Only the container's own part of the node is visible."""

    code: ClassVar = "container-only"
    limits: ClassVar = True
    visible: Visible
    consequence: str = ""


@record(frozen=True, slots=True)
class NotNamed:
    """Zombies are counted; which cgroups they were is not known."""

    code: ClassVar = "not-named"
    limits: ClassVar = True
    because: str


@record(frozen=True, slots=True)
class Weaker:
    """The usual way to read the source failed; another one, which shows less, is used instead."""

    code: ClassVar = "weaker"
    limits: ClassVar = True
    instead: str
    because: str


@record(frozen=True, slots=True)
class Gap:
    """The longest time between two looks. A stall that fits between them may not be seen."""

    code: ClassVar = "gap"
    gap_ms: int

    @property
    def limits(self) -> bool:
        """A shorter one is common on a busy node, and leaves the stalls that matter visible."""
        return self.gap_ms >= BLIND_MS


@record(frozen=True, slots=True)
class Failed:
    """The source cannot be read: the message of Unreadable or OSError."""

    code: ClassVar = "unreadable"
    limits: ClassVar = True
    message: str


@record(frozen=True, slots=True)
class Absent:
    """The node does not run what the source reads: the message of NotPresent. Nothing is hidden."""

    code: ClassVar = "absent"
    limits: ClassVar = True
    message: str


@record(frozen=True, slots=True)
class Timeout:
    """A read did not return; the kernel holds the reader."""

    code: ClassVar = "timeout"
    limits: ClassVar = True
    timeout_ms: int


@record(frozen=True, slots=True)
class NotRequested:
    """The options of this recording leave the source out."""

    code: ClassVar = "not-requested"
    limits: ClassVar = True


@record(frozen=True, slots=True)
class Bug:
    """The reader raised an error that it should not raise."""

    code: ClassVar = "bug"
    limits: ClassVar = True
    error: str


Reason: TypeAlias = (
    Text | Note | Limit | Imported | ContainerOnly | NotNamed | Weaker | Gap | Failed | Absent | Timeout | NotRequested | Bug
)
Reasons: TypeAlias = tuple[Reason, ...]
Kind = TypeVar("Kind", bound=Reason)

CODES: Final[Mapping[str, type[Reason]]] = {kind.code: kind for kind in get_args(Reason)}
_CONTAINER: Final[dict[Visible, str]] = {
    "hierarchy": "only this container's part of the hierarchy is visible",
    "processes": "only this container's processes are visible",
    "devices": "sees this container's devices only",
}


@record(frozen=True, slots=True)
class SourceState:
    state: State
    reasons: Reasons = ()

    @classmethod
    def read(cls, reasons: Reasons = ()) -> Self:
        """Of a source that could be read: partial if one of the reasons says that something is missing."""
        return cls("partial" if any(reason.limits for reason in reasons) else "on", reasons)

    @classmethod
    def off(cls, reason: Reason) -> Self:
        return cls("off", (reason,))

    @property
    def up(self) -> bool:
        """On or partial."""
        return self.state != "off"

    @property
    def reason(self) -> str:
        """All reasons as one sentence, for people."""
        return sentences(self.reasons)

    def find(self, kind: type[Kind]) -> Kind | None:
        """The reason of that type, if there is one."""
        return next((reason for reason in self.reasons if isinstance(reason, kind)), None)


class SourceRow(NamedTuple):
    """A row of the sources table."""

    time: int
    name: str
    state: SourceState
    cost_ns: int = 0


def sentence(reason: Reason) -> str:
    """A reason for people. The only place where one is spelled."""
    match reason:
        case Text(text) | Note(text) | Limit(text):
            return text
        case Imported(format):
            return f"imported: {format}"
        case ContainerOnly(visible, consequence):
            return _CONTAINER[visible] + (f": {consequence}" if consequence else "")
        case NotNamed(because):
            return f"not named, {because}"
        case Weaker(instead, because):
            return f"weaker, from {instead}: {because}"
        case Gap(gap_ms):
            return f"looked {milliseconds(gap_ms)} apart at worst: a stall shorter than that may have been missed"
        case Failed(message) | Absent(message):
            return message
        case Timeout(timeout_ms):
            return f"no answer within {duration(timeout_ms * MILLISECOND)}"
        case NotRequested():
            return "not asked for"
        case Bug(error):
            return f"a bug in exhume, please report it: {error}"
    assert_never(reason)


def sentences(reasons: Reasons) -> str:
    return "; ".join(filter(None, map(sentence, reasons)))


def as_json(state: SourceState) -> dict[str, Any]:
    """For reports: the sentence for people, and each reason as its code and its parameters by name."""
    return {"state": state.state, "reason": state.reason, "reasons": _entries(state.reasons)}


def _entries(reasons: Reasons) -> list[dict[str, str | int]]:
    return [{"code": one.code, **{field.name: getattr(one, field.name) for field in fields(one)}} for one in reasons]


def changed(reason: Reason, change: Callable[[str], str]) -> Reason:
    """The same with other free text."""
    texts = {field.name: change(getattr(reason, field.name)) for field in fields(reason) if field.type is str}
    return replace(reason, **texts)  # type: ignore[arg-type]


def encoded(reasons: Reasons) -> str:
    """As the column `reasons` has them."""
    return json.dumps(_entries(reasons), ensure_ascii=False, separators=(",", ":")) if reasons else "[]"


def decoded(text: str, stored: str) -> Reasons:
    """Of a row with this sentence and this column `reasons`, which old recordings do not have. What cannot be read, or has a
    code that is not known here, leaves the sentence."""
    try:
        entries = from_json(stored) if stored else None
    except ValueError:
        entries = None
    found = [_decoded(entry) for entry in entries] if isinstance(entries, list) else []
    known = tuple(reason for reason in found if reason is not None)
    return known if known and len(known) == len(found) else (Text(text),) if text else ()


def _decoded(entry: object) -> Reason | None:
    """None: its code is not known, or a parameter is missing or of another type."""
    if not isinstance(entry, dict) or not isinstance(code := entry.get("code"), str) or code not in CODES:
        return None
    kind: Any = CODES[code]
    given = {field.name: entry.get(field.name) for field in fields(kind)}
    for field in fields(kind):
        value = given[field.name]
        if field.type is int:
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
                return None
        elif not isinstance(value, str) or (field.type is not str and value not in get_args(field.type)):
            return None
        else:
            given[field.name] = value.encode("utf-8", "backslashreplace").decode()  # a lone surrogate cannot be written again
    reason: Reason = kind(**given)
    return reason
