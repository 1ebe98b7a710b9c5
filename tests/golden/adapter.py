"""Turns the judgements of exhume into plain data. It is the only module of the oracle that knows the result types of exhume.

When a type changes, change this module until `tests/golden` passes with the golden files as they are. That shows that no
judgement has changed.
"""

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from exhume.agent.gathering import Gathered
from exhume.cli.check import CODES
from exhume.cli.verify import CODES as PROOF_CODES
from exhume.diagnosis.diagnose import diagnose, diagnose_folder
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.judge import judge
from exhume.diagnosis.report import Incident, Report, Verdict, as_json, from_json
from exhume.errors import Refused, UsageError
from exhume.fleet.cohorts import Cohorts
from exhume.fleet.cohorts_facts import Condition
from exhume.host.directory import Directory
from exhume.host.systemd.units import read_units
from exhume.image.audit import Audit, told
from exhume.image.gate_model import Gate
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording
from exhume.remedy import plan_zombies
from exhume.remedy.criteria import Status
from exhume.remedy.node import Node
from exhume.remedy.plan import Planner
from exhume.remedy.plan_zombies import Zombies
from exhume.remedy.proof import prove
from exhume.remedy.protected_plan import known_agents
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps import cgroups, reversible
from exhume.render.scene import told as incident_of
from tests.golden.numbers import NUMBERS

Data = dict[str, Any]
_MOST_SPANS = 4
MILLISECOND = 1_000_000


def number(value: float | int | None) -> float | int | None:
    """Four significant digits for fractions; whole numbers as they are."""
    if value is None or isinstance(value, int):
        return value
    if not math.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short


_PROCESS = re.compile(r" \[\d+(?: and \d+ more)?\]")


def name(subject: str) -> str:
    """A subject without the numbers of processes, which are spelled for people."""
    return _PROCESS.sub("", subject)


# Reports.


def diagnosed(recording: Recording, thresholds: Thresholds | None = None) -> Report:
    """As `exhume diagnose` judges a recording."""
    return diagnose(recording, thresholds or Thresholds())


def checked(recording: Recording, thresholds: Thresholds | None = None) -> Report:
    """As `exhume check` judges what it has just recorded."""
    return judge(recording, thresholds or Thresholds())


def diagnosed_folder(path: Path, thresholds: Thresholds | None = None) -> tuple[Report, int]:
    folder = Folder(str(path))
    return diagnose_folder(folder, thresholds or Thresholds()), folder.window[0]


def report(found: Report, start: int) -> Data:
    """`start`: the first moment of the recording. All times are milliseconds from then on."""
    return {
        "health": found.health,
        "exit_code": CODES[found.health],
        **_verdict(found.verdict),
        "incidents": [
            [_ms(one.start, start), _ms(one.end, start), one.health, one.verdict.cause, name(one.verdict.subject)]
            for one in found.incidents
        ],
        "incidents_not_judged": len(found.further) + found.more,
        "findings": _findings(found.findings, start),
        "sources_on": sorted(source.name for source in found.sources if source.state != "off"),
        "sources_off": sorted(source.name for source in found.sources if source.state == "off"),
    }


def last_incident(found: Report, start: int) -> Data | None:
    """As `exhume diagnose --last` shows it; None where there is no incident."""
    one: Incident | None = incident_of(found, last=True)
    if one is None:
        return None
    return {
        "health": one.health,
        "span_ms": [_ms(one.start, start), _ms(one.end, start)],
        **_verdict(one.verdict),
        "finding_kinds": sorted({finding.kind for finding in one.findings if finding.severity != "info"}),
    }


def _verdict(verdict: Verdict) -> Data:
    return {
        "cause": verdict.cause,
        "subject": name(verdict.subject),
        "confidence": round(verdict.confidence, 2),
        "chain": [[link.finding.kind, name(link.finding.subject), round(link.confidence, 2)] for link in verdict.chain],
        "culprits": [[name(culprit.subject), round(culprit.share, 2)] for culprit in verdict.culprits],
        "remedies": [[remedy.id, name(remedy.target)] for remedy in verdict.remedies],
        "ruled_out": sorted(one.kind for one in verdict.ruled_out),
        "unseen": sorted(one.kind for one in verdict.unseen),
    }


def _findings(findings: Iterable[Finding[Facts]], start: int) -> list[Data]:
    made = [_finding(finding, start) for finding in findings]
    return sorted(made, key=lambda one: (one["kind"], one["subject"], one["span_ms"]))


def _finding(finding: Finding[Facts], start: int) -> Data:
    data: Data = {
        "kind": finding.kind,
        "severity": finding.severity,
        "subject": name(finding.subject),
        "span_ms": [_ms(finding.start, start), _ms(finding.end, start)],
    }
    if finding.spans:
        spans = sorted((span.start, span.end, span.core) for span in finding.spans)
        data["spans"] = len(spans)
        data["first_spans_ms"] = [[core, _ms(first, start), _ms(last, start)] for first, last, core in spans[:_MOST_SPANS]]
    data["numbers"] = _numbers(finding)
    return data


def _numbers(finding: Finding[Facts]) -> Data:
    """By the key of numbers.py. One that has no key yet is shown by its field, with a question mark before it."""
    keys = NUMBERS.get(finding.kind, {})
    found: dict[str, list[float | int | None]] = {}
    for evidence in finding.evidence:
        if isinstance(evidence.value, int | float):
            found.setdefault(keys.get(evidence.field, f"? {evidence.field}"), []).append(number(evidence.value))
    return {key: values[0] if len(values) == 1 else values for key, values in sorted(found.items())}


def _ms(time: int, start: int) -> int:
    return round((time - start) / MILLISECOND)


# Plans.

FREED = 1000
"""Zombies that a purge of each place would free, in a plan: what is there now is not seen on a node made of files."""


def plan(found: Report, node: Node, target: str = "node") -> Data:
    """The plan that `exhume fix --from REPORT` makes for a node made of files."""
    looked = patch.object(plan_zombies, "look", lambda _, homes: dict.fromkeys(plan_zombies.topmost(homes), Zombies(FREED)))
    taken = patch.object(cgroups, "is_cgroup", lambda _: True)
    with looked, taken, Directory(node.root.path) as tree:
        planner = Planner(node, tree, Protection(read_units(tree), known_agents()))
        try:
            made = planner.plan(target, from_json(as_json(found)))
        except (Refused, UsageError) as error:
            return {"refused": type(error).__name__}
    return {
        "steps": [
            [step.kind, step.target, "reversible" if reversible(step) else "irreversible", step.risk] for step in made.steps
        ],
        "left_to_people": sorted({one.target for one in made.relief}),
        "left_to_people_count": len(made.relief),
        "settled_count": len(made.settled),
    }


# Metrics.


def metrics(recording: Recording, found: Report) -> Data:
    """What the agent exports after it has read a recording, judged it and got the verdict; without what never changed."""
    gathered, untouched = Gathered(recording.node.cpus), Gathered(recording.node.cpus)
    gathered.add(recording)
    gathered.judged(found.findings)
    gathered.verdict(found, 0.0)
    return {
        metric: {" ".join(map(name, labels)): number(value) for labels, value in sorted(series.items())}
        for metric, series in sorted(gathered.values.items())
        if series and series != untouched.values[metric]
    }


# Proofs.


def proof(before: Recording | None, after: Recording, thresholds: Thresholds | None = None) -> Data:
    """As `exhume verify` compares two recordings."""
    found = prove(before, after, thresholds or Thresholds())
    return {
        "passed": found.passed,
        "exit_code": PROOF_CODES[found.passed],
        "criteria": {
            one.id: {
                "role": one.role,
                "status": _status(one.status),
                "before": number(one.before),
                "after": number(one.after),
                "limit": number(one.limit),
                "confidence": None if one.confidence is None else round(one.confidence, 2),
                "needed_s": number(one.needed_s),
            }
            for one in found.criteria
        },
        "rare": {one.id: [_status(one.status), one.before, one.after, number(one.needed_hours)] for one in found.rare},
    }


_STATUSES: dict[Status, str] = {"too-little": "unknown: too little", "not-seen": "unknown: not seen"}


def _status(status: Status) -> str:
    return _STATUSES.get(status, status)


# Audits and gates.


def audit(found: Audit) -> Data:
    return {
        "exit_code": found.exit_code,
        "units": {
            unit.service.name: [
                unit.judgement,
                unit.service.state,
                "starts" if unit.service.starts else "does not start",
                "counted" if told(unit) else "not counted",
                "endless" if unit.service.restart is not None and unit.service.restart.endless else "bounded",
                unit.agent.id if unit.agent is not None else None,
                "protected" if unit.known.protected else "not protected",
            ]
            for unit in found.units
        },
        "findings": sorted([one.kind, one.subject, one.severity, one.path] for one in found.findings),
        "drift": sorted([one.kind, one.name] for one in found.drift),
        "troubles_count": len(found.troubles),
        "unknown_generators": sorted(found.inventory.unknown),
    }


def gate(found: Gate) -> Data:
    bound = found.bound
    return {
        "status": found.status,
        "exit_codes": {
            "default": found.exit_code(),
            "strict": found.exit_code(strict=True),
            "allow_warnings": found.exit_code(allow_warnings=True),
        },
        "bound": None if bound is None else [bound.seen, number(bound.seconds), number(60 * bound.upper_per_s)],
        "checks": {
            check.name: {
                "status": check.status,
                "measured": number(check.measured),
                "limit": number(check.limit),
                "blamed": [[one.subject, one.path] for one in check.blamed],
            }
            for check in found.checks
        },
    }


# Cohorts.


def cohorts(found: Cohorts) -> Data:
    return {
        "counts": {name: getattr(found, name) for name in ("sick", "healthy", "unknown", "leaking", "young", "tried")},
        "cohorts": [
            {
                "conditions": [_condition(each) for each in one.conditions],
                "given": [_condition(each) for each in one.given],
                "same": sorted(_condition(each) for each in one.same),
                "sick_and_all": [one.sick_having, one.having],
                "sick_and_all_others": [one.sick_others, one.others],
                "share": round(one.share, 3),
                "share_others": round(one.share_others, 3),
                "lift": round(one.lift, 2),
                "log_p": round(one.log_corrected, 1),
                "confounded": sorted([*_condition(each.condition), each.tellable] for each in one.confounded),
                "too_few": one.too_few,
            }
            for one in found.cohorts
        ],
        "dose": None
        if found.dose is None
        else {
            "nodes": found.dose.nodes,
            "zombies_per_day": None if found.dose.slope is None else number(found.dose.slope.value),
            "sick_from_s": number(found.dose.sick_from_s),
            "reboots": found.dose.reboots,
            "reset_by_reboot": found.dose.reset,
        },
        "misfits": sorted([one.node, "sick" if one.sick else "healthy"] for one in found.misfits)[:20],
        "misfits_count": len(found.misfits),
        "facts_left_out": sorted(found.left_out),
    }


def _condition(one: Condition) -> list[str]:
    return [one.fact, one.operator, str(number(one.value) if isinstance(one.value, float) else one.value)]
