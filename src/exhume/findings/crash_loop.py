"""crash-loop: a unit that systemd starts again and again. Loops inside a unit are not visible to systemd."""

from itertools import pairwise

from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "crash-loop"
MOST_TOLD = 5


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("units"):
        return Examined(KIND, unseen=recording.why_off("units"))
    by_unit: dict[str, list[dict[str, object]]] = {}
    for row in recording["units"].rows():
        by_unit.setdefault(row["unit"], []).append(row)
    findings = []
    for unit, rows in by_unit.items():
        restarts = [int(str(row["restarts"])) for row in rows]
        # NRestarts goes back to 0 when a unit is stopped for good, so only growth counts.
        grew = sum(max(0, after - before) for before, after in pairwise(restarts))
        # auto-restart; from systemd 254 auto-restart-queued and dead-before-auto-restart too
        waiting = any("auto-restart" in str(row["sub"]) for row in rows)
        if restarts[-1] <= 0 or not (grew or waiting or restarts[-1] >= thresholds.crash_restarts):
            continue
        crashes = restarts[-1] >= thresholds.crash_restarts and (grew or waiting) and not _ends_well(rows)
        severity: Severity = "warning" if crashes else "info"
        doing = f"{grew} while we looked" if grew else "waiting for the next one" if waiting else "running now"
        findings.append(_finding(unit, rows, restarts[-1], grew, doing, severity))
    if findings:
        findings.sort(key=lambda finding: (finding.severity != "warning", -finding.number("restarts")))
        return Examined(KIND, tuple(findings[:MOST_TOLD]))
    return Examined(KIND, ruled_out=f"none of {len(by_unit)} units restarts")


def _ends_well(rows: list[dict[str, object]]) -> bool:
    """Whether it was seen between two runs, and only with success: Restart=always is a way to do something now and then.

    Of one that runs, the result says nothing: service_start() sets it to success.
    """
    ended = {str(row["result"]) for row in rows if "auto-restart" in str(row["sub"])}
    return ended == {"success"}


def _finding(unit: str, rows: list[dict[str, object]], restarts: int, grew: int, doing: str, severity: Severity) -> Finding:
    last = rows[-1]
    evidence = [
        Evidence("restarts", restarts, "", "systemd NRestarts"),
        Evidence("restarts in the window", grew, "", "systemd NRestarts"),
        Evidence("state", f"{last['active']}/{last['sub']}", "", "systemd"),
        Evidence("result", str(last["result"]), "", "systemd"),
        Evidence("enabled", str(last["enabled"]), "", "systemd UnitFileState"),
    ]
    if last["cgroup"]:
        evidence.append(Evidence("cgroup", str(last["cgroup"]), "", "systemd ControlGroup"))
    start, end = int(str(rows[0]["time"])), int(str(last["time"]))
    return Finding(KIND, unit, severity, start, end, f"{unit} was restarted {restarts:,} times, {doing}", tuple(evidence))
