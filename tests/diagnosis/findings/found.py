"""What a detector found, typed."""

from typing import TypeVar

from exhume.diagnosis.findings.model import Examined, Facts, Finding, of

F = TypeVar("F", bound=Facts)
T = TypeVar("T")


def only(examined: Examined, facts: type[F]) -> Finding[F]:
    """The one finding of a detector, with facts of that class."""
    assert len(examined.findings) == 1, examined
    (finding,) = of(examined.findings, facts)
    return finding


def known(value: T | None) -> T:
    """A fact that may be unknown and is not."""
    assert value is not None
    return value
