"""What a scenario is: a story, the truth that a verdict is held against, and how it is made and measured."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

from exhume.lab.workshop import Lab

Number = float | int


@dataclass(frozen=True, slots=True)
class Truth:
    """What is the case, for a machine: `exhume lab score` holds verdicts against it."""

    cause: str | None
    """The kind of finding that a right verdict names as the cause; None where nothing starves the node."""
    also_right: tuple[str, ...] = ()
    """Causes that say the same in other words, or less of it."""
    culprits: tuple[str, ...] = ()
    """Parts of a name, one of which the culprit has; {run} stands for the name of the run, {tag} for the end of it. Empty where
    there is nobody."""
    lesser: tuple[str, ...] = ()
    """Of a second culprit, whose part is smaller: named as well, after the first."""
    innocent: tuple[str, ...] = ()
    """Those who must not be named as the cause, whatever they look like."""
    health: tuple[str, ...] = ("warning", "critical")
    shared: bool = False
    """Whether others may be named beside the culprits, because all who are busy meanwhile have their part in it."""

    def of(self, run: str) -> "Truth":
        """With the run's name in it."""

        def named(names: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(name.format(run=run, tag=run.rpartition("-")[2]) for name in names)

        return replace(self, culprits=named(self.culprits), lesser=named(self.lesser), innocent=named(self.innocent))


@dataclass(frozen=True, slots=True)
class Promise:
    """What a scenario does, as measured by other means than exhume's own."""

    what: str
    """A key of what is measured."""
    sense: Literal[">=", "<=", "=="]
    bound: Number
    source: str
    """By what it was measured: /proc/cgroups, /proc/stat, packets across the link ..."""

    def kept(self, measured: Mapping[str, Number]) -> bool:
        value = measured.get(self.what)
        if value is None:
            return False
        return {">=": value >= self.bound, "<=": value <= self.bound, "==": value == self.bound}[self.sense]


@dataclass(frozen=True, slots=True)
class Settings:
    """How large and how long."""

    seconds: float = 60.0
    scale: int = 20_000
    """How many zombies, directories and the like, where a scenario has such."""


class Incident(Protocol):
    """One that goes on."""

    def measured(self) -> dict[str, Number]:
        """What it has done so far."""
        ...


@runtime_checkable
class Felt(Protocol):
    """An incident that knows when it was first felt."""

    def first_symptom(self) -> float | None:
        """By time.monotonic; None if it was not felt yet."""
        ...


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    summary: str
    """One line."""
    story: str
    """A paragraph: what happens, why it looks as it does, what a good verdict says."""
    truth: Truth
    promises: Callable[[Settings], tuple[Promise, ...]]
    make: Callable[[Lab, Settings], AbstractContextManager[Incident]]
    """Makes it and keeps it going until it is left. It returns when the incident is under way."""
    missing: Callable[[], str] = field(default=lambda: "")
    """Why it cannot be made here; "" if it can."""
    prepares: bool = False
    """Whether it takes long before it begins; it says when by calling `lab.begins`, at the latest when it is made."""

    def ground_truth(self, run: str, settings: Settings, measured: Mapping[str, Number]) -> dict[str, Any]:
        """Machine-readable: what is the case, what was promised and what was measured."""
        truth = self.truth.of(run)
        return {
            "schema": "exhume.lab/1",
            "scenario": self.name,
            "run": run,
            "truth": {
                "cause": truth.cause,
                "also_right": list(truth.also_right),
                "culprits": list(truth.culprits),
                "lesser": list(truth.lesser),
                "innocent": list(truth.innocent),
                "health": list(truth.health),
                "shared": truth.shared,
            },
            "promises": [
                {
                    "what": promise.what,
                    "sense": promise.sense,
                    "bound": promise.bound,
                    "measured": measured.get(promise.what),
                    "kept": promise.kept(measured),
                    "source": promise.source,
                }
                for promise in self.promises(settings)
            ],
            "measured": dict(measured),
        }


def passing(seconds: float, step: float = 0.2) -> Iterator[float]:
    """Lets time pass; yields the share of it that has."""
    start = time.monotonic()
    while (passed := time.monotonic() - start) < seconds:
        yield passed / seconds
        time.sleep(min(step, seconds - passed))
    yield 1.0
