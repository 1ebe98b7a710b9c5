"""Loops by what each source shows of them: systemd's counter, the journal, cgroups and containers, processes.

systemd misses what a unit supervises itself: a supervisor that starts its own container again leaves NRestarts at 0. Hence the
rhythm of cgroups and processes, too. A rhythm alone is no crash: how the lives end says that, or what they leave behind.
"""

from abc import ABC, abstractmethod
from enum import Enum
from typing import Literal

from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import duration
from exhume.record import record
from exhume.recording.events import risen
from exhume.recording.recording import Recording

Way = Literal["systemd", "journal", "containers", "cgroup-churn", "processes"]
# In the order of strength: a count of restarts is better than a rhythm.
WAYS: tuple[Way, ...] = ("systemd", "journal", "containers", "cgroup-churn", "processes")


class Pauses(Enum):
    """Between the end of one run and the start of the next."""

    STEADY = "steady"
    DOUBLING = "doubling"

    def __str__(self) -> str:
        return "pauses that double" if self is Pauses.DOUBLING else "the same pause each time"


@record(frozen=True, slots=True)
class UnitState:
    """ActiveState and SubState of systemd."""

    active: str
    sub: str

    def __str__(self) -> str:
        return f"{self.active}/{self.sub}"


class _Observed(ABC):
    """What one source saw of a loop, for the sentence."""

    __slots__ = ()

    @abstractmethod
    def parts(self) -> tuple[str, str, str]:
        """The statement, a separator, and the details, which may be empty; the loop itself is the grammatical subject."""

    def sentence(self) -> str:
        statement, separator, details = self.parts()
        return f"{statement}{separator}{details}" if details else statement


@record(frozen=True, slots=True)
class RestartCount(_Observed):
    """NRestarts of systemd."""

    total: int
    in_window: int
    waiting: bool
    """For the next restart."""
    active: str
    """The last ActiveState."""

    def parts(self) -> tuple[str, str, str]:
        if self.in_window:
            doing = f"{self.in_window} while we looked"
        else:
            doing = "waiting for the next one" if self.waiting else f"{self.active} now"
        return f"was restarted {self.total:,} times", ", ", doing


@record(frozen=True, slots=True)
class JournalRestarts(_Observed):
    """Restarts that systemd logged."""

    restarts: int
    ended_with: str
    """How most of the runs before ended; empty if well."""

    def parts(self) -> tuple[str, str, str]:
        after = f"after {self.ended_with}" if self.ended_with else ""
        return f"was started again by systemd {self.restarts:,} times", ", ", after


@record(frozen=True, slots=True)
class CgroupChurn(_Observed):
    """Cgroups that follow each other in one place."""

    starts: int
    period_ns: int
    containers: bool
    killed: int
    """By the kernel, for memory."""
    removed: int
    unreleased: int

    def parts(self) -> tuple[str, str, str]:
        what = "containers" if self.containers else "cgroups"
        details = f"{self.starts:,} {what}, one after the other, every {duration(self.period_ns)}"
        if self.killed:
            details += f", {self.killed:,} of them killed for memory"
        if self.unreleased:
            details += f", {self.unreleased:,} of {self.removed:,} left behind as zombies"
        return "is started again and again", ": ", details


@record(frozen=True, slots=True)
class ProcessStarts(_Observed):
    """Processes of one name that follow each other in one place."""

    comm: str
    starts: int
    period_ns: int

    def parts(self) -> tuple[str, str, str]:
        details = f"{self.starts:,} times, every {duration(self.period_ns)}"
        return f"starts {self.comm} again and again", ": ", details


Observation = RestartCount | JournalRestarts | CgroupChurn | ProcessStarts


@record(frozen=True, slots=True)
class Loop:
    """Something that is started again and again, as one source shows it."""

    subject: str
    by: Way
    restarts: int
    """While we looked."""
    crashes: bool
    """It ends badly, or leaks: not only a rhythm."""
    start: int
    end: int
    observation: Observation
    total: int = -1
    period_ns: int = -1
    cgroup: str = ""
    unit: str = ""
    process: Process | None = None
    """What is started; another PID each time."""
    supervisor: Process | None = None
    """What starts it."""
    removed: int = 0
    unreleased: int = 0
    state: UnitState | None = None
    result: str = ""
    enabled: str = ""
    """UnitFileState of systemd."""
    pauses: Pauses | None = None
    life_ns: int = -1
    bad_ends: int | None = None
    bad_ends_source: str = ""
    ended_with: str = ""


def by_systemd(recording: Recording, thresholds: Thresholds) -> list[Loop]:
    """By NRestarts, which exists from systemd 235 on and goes back to 0 when a unit is stopped for good."""
    table = recording["units"]
    names = table.texts("unit")
    ever = {names[at] for at in (table.ints("restarts") > 0).nonzero()[0].tolist()}
    by_unit: dict[str, list[dict[str, object]]] = {}
    for row in sorted(table.rows() if ever else (), key=lambda row: (row["time"], row["restarts"], row["unit"])):
        if row["unit"] in ever:
            by_unit.setdefault(row["unit"], []).append(row)
    found = []
    for unit, rows in by_unit.items():
        restarts = [int(str(row["restarts"])) for row in rows]
        rises = list(risen([(int(str(row["time"])), count) for row, count in zip(rows, restarts, strict=True)]))
        more, rose = sum(count for _, count in rises), {time for time, _ in rises}
        # auto-restart; from systemd 254 auto-restart-queued and dead-before-auto-restart too
        waits = ["auto-restart" in str(row["sub"]) for row in rows]
        waiting = any(waits)
        if restarts[-1] <= 0 or not (more or waiting or restarts[-1] >= thresholds.crash_restarts):
            continue
        crashes = restarts[-1] >= thresholds.crash_restarts and bool(more or waiting) and not _ends_well(rows)
        last = rows[-1]
        # One that runs may be well again since: it was seen to loop when it was started again or waited for that.
        looped = [row for row, waited in zip(rows, waits, strict=True) if int(str(row["time"])) in rose or waited]
        start, end = int(str(rows[0]["time"])), int(str((looped or rows)[-1]["time"]))
        found.append(
            Loop(
                unit,
                "systemd",
                more,
                crashes,
                start,
                end,
                RestartCount(restarts[-1], more, waiting, str(last["active"])),
                total=restarts[-1],
                period_ns=(end - start) // more if more > 1 else -1,
                cgroup=str(last["cgroup"]),
                unit=unit,
                state=UnitState(str(last["active"]), str(last["sub"])),
                result=str(last["result"]),
                enabled=str(last["enabled"]),
            )
        )
    return found


def _ends_well(rows: list[dict[str, object]]) -> bool:
    """Whether it was seen between two runs, and only with success: Restart=always is a way to do something now and then.

    Of one that runs, the result says nothing: service_start() sets it to success.
    """
    ended = {str(row["result"]) for row in rows if "auto-restart" in str(row["sub"])}
    return ended == {"success"}
