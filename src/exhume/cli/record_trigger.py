"""`exhume record --on`: the kinds it waits for, and what it prints when they come."""

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from exhume.errors import UsageError
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.diagnosis.report import Report
    from exhume.recorder.policy import Policy
    from exhume.recorder.session import Session
    from exhume.recorder.trigger import Incident
    from exhume.recorder.verdicts import Case
    from exhume.recording.recording import Node, Recording
    from exhume.recording.writer import Writer

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


def session(
    args: argparse.Namespace, policy: "Policy", node: "Node", store: "Writer", kinds: tuple[str, ...], line: bool
) -> "Session[Report]":
    """`line`: there is a progress line to be cleared before anything is said."""
    from exhume.config import load, section
    from exhume.diagnosis.detect import detect, incidents
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.diagnosis.report import from_json
    from exhume.recorder.session import OncePerEpisode, Session
    from exhume.recorder.verdicts import Verdicts, diagnose_command

    thresholds = section(load(args.config), "thresholds", Thresholds)
    before = "\r\x1b[K" if line else ""

    def say(text: str) -> None:
        with suppress(OSError, ValueError):  # nobody reads it any more: that is no reason to end the recording
            sys.stderr.write(f"{before}exhume: {text}\n")
            sys.stderr.flush()

    report = OncePerEpisode(say)

    def found(recording: "Recording", since: int) -> "list[Incident]":
        return incidents(recording, detect(recording, thresholds, since, report).found, kinds)

    def verdict(case: "Case", report: "Report") -> None:
        say(sentence(report))
        if args.json:
            with suppress(OSError, ValueError):
                print(json_line(case, report), flush=True)

    def pinned(incident: "Incident") -> None:
        say(f"pinned: {incident.kind}: {printable(incident.summary)}")

    command = diagnose_command(args.dir, policy, args.config)
    verdicts = Verdicts(command, from_json, verdict, report, policy=policy)
    return Session(node, store, found, verdicts, report, policy, args.around_ns, pinned)


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
