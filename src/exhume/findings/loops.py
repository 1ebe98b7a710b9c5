"""Loops by what each source shows of them: systemd's counter, the journal, cgroups and containers, processes.

systemd misses what a unit supervises itself: a supervisor that starts its own container again leaves NRestarts at 0. Hence the
rhythm of cgroups and processes, too. A rhythm alone is no crash: how the lives end says that, or what they leave behind.
"""

from dataclasses import dataclass, field
from itertools import pairwise

from exhume.findings.leak_restarts import restarted
from exhume.findings.model import Evidence
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

# The order of strength: who counts restarts knows best.
WAYS = ("systemd", "journal", "containers", "cgroup churn", "processes")


@dataclass(frozen=True, slots=True)
class Loop:
    """Something that is started again and again, as one source shows it."""

    subject: str
    by: str
    restarts: int
    """While we looked."""
    crashes: bool
    """It ends badly, or leaks: not only a rhythm."""
    start: int
    end: int
    said: str
    total: int = -1
    period_ns: int = -1
    cgroup: str = ""
    unit: str = ""
    process: str = ""
    supervisor: str = ""
    removed: int = 0
    unreleased: int = 0
    more: tuple[Evidence, ...] = field(default=())


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
        rose = [0, *map(restarted, pairwise(restarts))]
        more = sum(rose)
        # auto-restart; from systemd 254 auto-restart-queued and dead-before-auto-restart too
        waits = ["auto-restart" in str(row["sub"]) for row in rows]
        waiting = any(waits)
        if restarts[-1] <= 0 or not (more or waiting or restarts[-1] >= thresholds.crash_restarts):
            continue
        crashes = restarts[-1] >= thresholds.crash_restarts and bool(more or waiting) and not _ends_well(rows)
        last = rows[-1]
        doing = f"{more} while we looked" if more else "waiting for the next one" if waiting else f"{last['active']} now"
        # One that runs may be well again since: it was seen to loop when it was started again or waited for that.
        looped = [row for row, risen, waited in zip(rows, rose, waits, strict=True) if risen or waited]
        start, end = int(str(rows[0]["time"])), int(str((looped or rows)[-1]["time"]))
        found.append(
            Loop(
                unit,
                "systemd",
                more,
                crashes,
                start,
                end,
                f"was restarted {restarts[-1]:,} times, {doing}",
                total=restarts[-1],
                period_ns=(end - start) // more if more > 1 else -1,
                cgroup=str(last["cgroup"]),
                unit=unit,
                more=(
                    Evidence("state", f"{last['active']}/{last['sub']}", "", "systemd"),
                    Evidence("result", str(last["result"]), "", "systemd"),
                    Evidence("enabled", str(last["enabled"]), "", "systemd UnitFileState"),
                ),
            )
        )
    return found


def _ends_well(rows: list[dict[str, object]]) -> bool:
    """Whether it was seen between two runs, and only with success: Restart=always is a way to do something now and then.

    Of one that runs, the result says nothing: service_start() sets it to success.
    """
    ended = {str(row["result"]) for row in rows if "auto-restart" in str(row["sub"])}
    return ended == {"success"}
