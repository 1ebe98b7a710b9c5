"""What `exhume record --on` waits for, and how it tells why it came: kinds, the judge of the trigger, verdicts as they come."""

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from exhume.errors import UsageError
from exhume.host.quantities import SECOND, compact
from exhume.python import python
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.diagnosis.report import Report
    from exhume.recorder.trigger import Incident, Trigger
    from exhume.recorder.verdicts import Case, Verdicts
    from exhume.recording.recording import Node, Recording

ANY = "any"


def kinds_of(text: str | None) -> tuple[str, ...]:
    """`any` is every symptom, and everything that hurts a node by being there."""
    if text is None:
        return ()
    from exhume.diagnosis.findings.registry import CAUSES, PAINS, SYMPTOMS, TENANTS

    known = (*SYMPTOMS, *CAUSES, *TENANTS)
    named = tuple(kind.strip() for kind in text.split(",") if kind.strip())
    if not named:
        raise UsageError(f"--on needs kinds of findings: {ANY}, {', '.join(known)}")
    for kind in named:
        if kind not in (ANY, *known):
            raise UsageError(f"--on {kind!r} is not a kind of finding; there are {ANY}, {', '.join(known)}")
    kinds = tuple(kind for kind in named if kind != ANY)
    return tuple(dict.fromkeys((*kinds, *SYMPTOMS, *PAINS))) if ANY in named else kinds


def trigger(args: argparse.Namespace, node: "Node", kinds: tuple[str, ...]) -> "Trigger | None":
    if not kinds:
        return None
    from exhume.config import load, section
    from exhume.diagnosis.findings.registry import examine
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.recorder.trigger import Incident, Trigger

    thresholds = section(load(args.config), "thresholds", Thresholds)

    def judge(recording: "Recording") -> "list[Incident]":
        findings = [finding for examined in examine(recording, thresholds) for finding in examined.findings]
        return [
            Incident(f.kind, f.subject, f.start, f.end, f.summary, f.severity, recording.real_ns(f.start))
            for f in findings
            if f.kind in kinds and f.serious
        ]

    return Trigger(node, judge)


def verdicts(args: argparse.Namespace, line: bool) -> "Verdicts[Report]":
    """`line`: there is a progress line to be cleared first."""
    from exhume.diagnosis.report import from_json
    from exhume.recorder.verdicts import WINDOW_S, Verdicts

    command = python("-m", "exhume", "diagnose", args.dir, f"--from=-{compact(WINDOW_S * SECOND)}", "--json")
    command += ["--config", args.config] if args.config else []
    before = "\r\x1b[K" if line else ""

    def tell(case: "Case", report: "Report") -> None:
        with suppress(OSError, ValueError):  # whoever listened has gone: that is no reason to end the recording
            sys.stderr.write(f"{before}exhume: {sentence(report)}\n")
            sys.stderr.flush()
            if args.json:
                print(json_line(case, report), flush=True)

    def trouble(said: str) -> None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{before}exhume: {said}\n")
            sys.stderr.flush()

    return Verdicts(command, from_json, tell, trouble)


def sentence(report: "Report") -> str:
    verdict = report.verdict
    sure = f" (confidence {verdict.confidence:.0%})" if verdict.cause is not None else ""
    return f"{report.health}: {printable(verdict.summary, 500)}{sure}"


def json_line(case: "Case", report: "Report") -> str:
    import json
    import time

    from exhume.diagnosis.report import as_json

    incident = case.incident
    told: dict[str, Any] = {
        "at": _wall(time.time_ns()),
        "trigger": {
            "kind": incident.kind,
            "subject": incident.subject,
            "severity": incident.severity,
            "start": _wall(incident.real_ns),
            "summary": incident.summary,
            "attempt": case.attempt,
        },
        "report": as_json(report),
    }
    return json.dumps(told)


def _wall(real_ns: int) -> str:
    """RFC 3339 in UTC, to the millisecond."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(real_ns / 1e9, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
