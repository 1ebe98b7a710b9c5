"""unused-agent: a unit that starts by itself, is in trouble, and that no other unit needs. Nobody would miss it.

It alone never makes a node sick. What systemd does not know of is not known here either: who calls it over the network, or what
the node is there for. So those that nodes are run or reached by are left alone.
"""

from exhume.findings import crash_loop, memcg_leak
from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.thresholds import Thresholds
from exhume.node.unit_needs import UNASKED
from exhume.recording.recording import Recording
from exhume.text import printable

KIND = "unused-agent"
MOST_TOLD = 5
# Unit file states of what starts by itself (systemctl(1), is-enabled).
_ENABLED = ("enabled", "enabled-runtime")
# By the beginning of their names: what people and clusters reach a node by, and what runs its work.
_NEEDED_ANYWAY = (
    *("systemd-", "dbus", "user@", "getty", "serial-getty", "console-getty", "ssh", "cron", "chrony", "ntp", "cloud-"),
    *("NetworkManager", "networking", "wpa_supplicant", "containerd", "docker", "crio", "podman"),
    *("kubelet", "k3s", "rke2", "k0s", "snap.microk8s"),
)


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("units"):
        return Examined(KIND, unseen=recording.why_off("units"))
    loops = {str(loop.value("unit") or loop.subject): loop for loop in crash_loop.detect(recording, thresholds).findings}
    leaks = {str(leak.value("unit") or leak.subject) for leak in memcg_leak.detect(recording, thresholds).findings}
    latest: dict[str, dict[str, str]] = {}
    table = recording["units"]
    texts = (table.texts(name) for name in ("unit", "active", "enabled", "needed_by"))
    for _, unit, active, enabled, needed_by in sorted(zip(table.ints("time").tolist(), *texts, strict=True)):
        known = latest.setdefault(unit, {"enabled": "", "needed_by": UNASKED})
        known["active"] = active
        known["enabled"] = enabled or known["enabled"]
        known["needed_by"] = needed_by if needed_by != UNASKED else known["needed_by"]
    findings, troubled, unasked = [], 0, 0
    for unit, known in sorted(latest.items()):
        trouble = _trouble(unit, known, loops, leaks)
        if not trouble or known["enabled"] not in _ENABLED or unit.startswith(_NEEDED_ANYWAY):
            continue
        troubled += 1
        unasked += known["needed_by"] == UNASKED
        if known["needed_by"] == "":
            findings.append(_finding(recording, unit, known, trouble, loops.get(unit)))
    if findings:
        findings.sort(key=lambda finding: (finding.severity != "warning", finding.subject))
        return Examined(KIND, tuple(findings[:MOST_TOLD]))
    if unasked:
        return Examined(KIND, unseen=f"who needs {unasked} of {troubled} enabled units in trouble was not asked")
    if troubled:
        return Examined(KIND, ruled_out=f"other units need each of the {troubled} that are enabled and in trouble")
    return Examined(KIND, ruled_out=f"none of {len(latest)} units is enabled and in trouble")


def _trouble(unit: str, known: dict[str, str], loops: dict[str, Finding], leaks: set[str]) -> str:
    if unit in loops:
        return "is started again and again"
    if known["active"] == "failed":
        return "has failed"
    return "leaks memory cgroups" if unit in leaks else ""


def _finding(recording: Recording, unit: str, known: dict[str, str], trouble: str, loop: Finding | None) -> Finding:
    severity: Severity = "warning" if loop is not None and loop.severity != "info" else "info"
    start, end = recording.window
    evidence = (
        Evidence("unit", unit, "", "systemd"),
        Evidence("enabled", known["enabled"], "", "systemd UnitFileState"),
        Evidence("needed by", "no other unit", "", "systemd RequiredBy, BoundBy, WantedBy, TriggeredBy and the like"),
        Evidence("state", known["active"], "", "systemd ActiveState"),
        Evidence("trouble", trouble, "", "crash-loop" if loop is not None else "systemd"),
    )
    summary = f"{printable(unit)} is enabled and {trouble}, and no other unit needs it"
    return Finding(KIND, unit, severity, start, end, summary, evidence)
