"""Facts of any kind with nothing in them but what a test sets."""

from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.loops import RestartCount
from exhume.diagnosis.findings.model import Facts, Finding, Severity, Span
from exhume.diagnosis.findings.soft_lockup import SoftLockup

F = TypeVar("F", bound=Facts)
SECOND: Final = 1_000_000_000
# Fields whose empty value has no sentence.
_SET: Final[dict[type[Facts], dict[str, Any]]] = {
    CrashLoop: {"ways": ("systemd",), "observation": RestartCount(1, 1, waiting=False, active="active")},
    SoftLockup: {"complaint": "soft-lockup"},
}


def facts(of: type[F], subject: str = "s", **given: Any) -> F:
    made: F = _made(of, {"subject": subject, **_SET.get(of, {}), **given})
    return made


def finding(
    of: type[F], severity: Severity = "warning", subject: str = "s", spans: Iterable[Span] = (), end: int = SECOND, **given: Any
) -> Finding[F]:
    return Finding(facts(of, subject, **given), severity, max(0, end - SECOND), end, tuple(spans))


def _made(of: type[Any], given: dict[str, Any]) -> Any:
    hints = get_type_hints(of)
    missing = [field.name for field in fields(of) if field.default is MISSING and field.default_factory is MISSING]
    return of(**{name: _empty(hints[name]) for name in missing if name not in given}, **given)


def _empty(hint: Any) -> Any:
    if get_origin(hint) is tuple:
        return ()
    if type(None) in get_args(hint):
        return None
    if get_origin(hint) is Literal:
        return get_args(hint)[0]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    return _made(hint, {}) if isinstance(hint, type) and is_dataclass(hint) else hint()
