"""What a detector returns: findings, or the number that rules the thing out, or why it could not see.

A finding carries its facts: a frozen class per kind, with typed fields. Rules, remedies, metrics and pictures read the fields.
`Shown` says how a field is displayed; the summary is a method of the facts. No code reads a label or a sentence back.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    TypeGuard,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from exhume.host.owners import owner
from exhume.record import record

if TYPE_CHECKING:
    from exhume.diagnosis.findings.offender import Offender

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")


@dataclass(frozen=True, slots=True)
class Shown:
    """How a field of facts is displayed. Unset and empty fields, False, and zeros that say nothing are left out."""

    label: str = ""
    """Without one, the parts of a nested class are shown one by one, with this unit and source unless they have their own."""
    unit: str = ""
    source: str = ""
    """Where the number was read, so that anyone can look for themselves. `.name`: as the field of that name says."""
    digits: int | None = None
    """Digits after the point."""
    zero: bool = True
    """Whether 0 is shown."""
    join: str = " < "
    """Between the items of a tuple; a stack has the innermost function first."""
    true: int | str = 1
    """How True is displayed."""
    spelled: Callable[[Any], str] | None = None
    """Spells the value, where a number with its unit would be hard to read."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A field as it is displayed."""

    what: str
    value: int | float | str
    unit: str
    source: str
    field: str = ""
    """The path of the field: `work.memcg_walk_ratio`."""
    spelled: str = ""

    @property
    def text(self) -> str:
        """The value with its unit."""
        number = f"{self.value:,}" if isinstance(self.value, int) and self.unit != "PID" else str(self.value)
        return self.spelled or f"{number} {self.unit}".rstrip()


@record(frozen=True, slots=True, kw_only=True)
class Facts(ABC):
    """What is known of one finding. Units are in the names of the fields; ratios are of 1."""

    kind: ClassVar[str]
    subject: str
    """What it is about: a core, a device, a unit, a cgroup, `node`."""

    @abstractmethod
    def summary(self) -> str:
        """One sentence."""

    @abstractmethod
    def short(self) -> tuple[str, str]:
        """For a box in a picture: what it is, and the numbers that matter."""

    @property
    def unit(self) -> str:
        """The systemd unit behind it; empty if there is none."""
        return unit_of(self.subject)

    # What reports and pictures point at; each kind overrides what it has. (Not named as fields are: a dataclass would take the
    # property for the field's default.)

    @property
    def focus_core(self) -> int | None:
        """The core that it is about, if it is about one."""
        return None

    @property
    def focus_offender(self) -> "Offender | None":
        """The program or thread that did it, if it was seen."""
        return None

    @property
    def focus_stack(self) -> tuple[str, ...]:
        return ()

    @property
    def focus_did(self) -> str:
        """What was done there, where the offender is unknown."""
        return ""

    @property
    def focus_line(self) -> str:
        """The line of the kernel log that says so."""
        return ""

    @property
    def blamed(self) -> str:
        """Of a symptom: the program that caused it; empty where the offender is a victim itself."""
        return ""

    @property
    def cgroup_paths(self) -> tuple[str, ...]:
        """Paths of cgroups that show whose the unit is: the node's own, a user's manager or a tenant."""
        return ()


def unit_of(name: str) -> str:
    """The unit that a name is, or whose cgroup the path is."""
    if "/" in name:
        return owner(name).unit
    return name if "." in name else ""


F = TypeVar("F", bound=Facts, covariant=True)
G = TypeVar("G", bound=Facts)


class Span(NamedTuple):
    """A time on a core; core -1 where it is unknown or where there is none."""

    core: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Finding(Generic[F]):
    """Something odd. Times are on the recording's clock."""

    facts: F
    severity: Severity
    start: int
    end: int
    spans: tuple[Span, ...] = ()
    """When exactly and on which core, where that is known."""

    @property
    def kind(self) -> str:
        return self.facts.kind

    @property
    def subject(self) -> str:
        return self.facts.subject

    @property
    def summary(self) -> str:
        return self.facts.summary()

    @property
    def serious(self) -> bool:
        return self.severity != "info"

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return evidence(self.facts)


def of(findings: Iterable[Finding[Facts]], facts: type[G]) -> list[Finding[G]]:
    """The findings of one kind, typed."""
    return [finding for finding in findings if is_of(finding, facts)]


def is_of(finding: Finding[Facts], facts: type[G]) -> TypeGuard[Finding[G]]:
    return isinstance(finding.facts, facts)


@dataclass(frozen=True, slots=True)
class Examined:
    """The outcome of one detector. Exactly one of three: findings, ruled out (with the number), or not seen (with why)."""

    kind: str
    findings: tuple[Finding[Facts], ...] = ()
    ruled_out: str = ""
    unseen: str = ""


def evidence(facts: Facts) -> tuple[Evidence, ...]:
    """The facts as they are displayed, in the order of their fields."""
    return tuple(_displayed(facts, Shown(), ""))


def _displayed(group: Any, outer: Shown, path: str) -> Iterator[Evidence]:
    for name, shown in shown_fields(type(group)):
        value = getattr(group, name)
        if value in (None, "", ()) or value is False or (value == 0 and not shown.zero):
            continue
        unit, source = shown.unit or outer.unit, shown.source or outer.source
        if source.startswith("."):
            source = getattr(group, source[1:])
        if shown.label:
            spelled = shown.spelled(value) if shown.spelled is not None else ""
            yield Evidence(shown.label, _value(value, shown), unit, source, path + name, spelled)
            continue
        for part in value if isinstance(value, tuple) else (value,):
            yield from _displayed(part, Shown(unit=unit, source=source), f"{path}{name}.")


def _value(value: object, shown: Shown) -> int | float | str:
    if isinstance(value, float):
        return value if shown.digits is None else round(value, shown.digits)
    if isinstance(value, bool):
        return shown.true
    if isinstance(value, int):
        return value
    return shown.join.join(map(str, value)) if isinstance(value, tuple) else str(value)


_shown_fields: dict[type[Any], tuple[tuple[str, Shown], ...]] = {}


def shown_fields(group: type[Any]) -> tuple[tuple[str, Shown], ...]:
    """The fields of a class of facts that are displayed, and how."""
    if group not in _shown_fields:
        _shown_fields[group] = tuple(_read_shown(group))
    return _shown_fields[group]


def _read_shown(group: type[Any]) -> Iterator[tuple[str, Shown]]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        hint = hints[field.name]
        if get_origin(hint) is Annotated:
            yield from ((field.name, extra) for extra in get_args(hint)[1:] if isinstance(extra, Shown))
