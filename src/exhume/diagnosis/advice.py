"""What to do, by what was found: the next steps, what exhume can do itself, and what is advised for and against."""

from collections.abc import Iterator
from typing import Any

from exhume.diagnosis.findings import cpu_throttled
from exhume.diagnosis.findings.kind import Advice, Case, Kind, Remedy, Step
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.diagnosis.findings.registry import BY_NAME, SYMPTOMS
from exhume.diagnosis.findings.unused_agent import UnusedAgent
from exhume.recording.recording import Recording

MOST = 3


def _kinds(findings: list[Finding[Facts]]) -> Iterator[tuple[Kind[Any], Finding[Facts]]]:
    return ((BY_NAME[finding.kind], finding) for finding in findings if finding.kind in BY_NAME)


def next_steps(case: Case) -> tuple[Step, ...]:
    """Of at most three findings, those of the chain first."""
    ordered = [link.finding for link in case.chain]
    ordered += [finding for finding in case.findings if finding.serious and finding not in ordered]
    steps = (tuple(kind.steps(finding, case)) for kind, finding in _kinds(ordered))
    chosen = list(dict.fromkeys(filter(None, steps)))[:MOST]
    return tuple(dict.fromkeys(step for some in chosen for step in some))


def remedies(case: Case) -> tuple[Remedy, ...]:
    """What exhume itself can do about it: for the first of the chain that has a remedy."""
    for kind, finding in _kinds([link.finding for link in case.chain]):
        if found := tuple(kind.remedies(finding, case)):
            return found
    return ()


def advice(case: Case) -> tuple[Advice, ...]:
    """Of every kind in the chain, and what holds whatever the cause; what to do first, what not to do after it."""
    found = [one for kind, finding in _kinds([link.finding for link in case.chain]) for one in kind.advice(finding, case)]
    first: dict[str, Advice] = {}
    for one in (*found, *_whatever(case)):
        first.setdefault(one.text, one)  # several kinds may advise the same, each for its own reason
    return tuple(sorted(first.values(), key=lambda one: one.against))


def _whatever(case: Case) -> Iterator[Advice]:
    throttled = case.of(cpu_throttled.CpuThrottled, serious=False)
    if throttled:
        yield from cpu_throttled.advice(throttled[0], case)
    unused = sorted({finding.subject for finding in case.of(UnusedAgent, serious=False)})
    if len(unused) > 1:
        yield Advice(
            f"disable what nothing here needs: {', '.join(unused)}", "each is enabled and in trouble, and used by nobody"
        )


def switch_on(recording: Recording, case: Case, explained: bool) -> tuple[str, ...]:
    """What would have shown more, where the cause of a symptom is not visible."""
    kinds = {finding.kind for finding in case.findings if finding.serious}
    if explained or not kinds & {*SYMPTOMS, "observer-starved", "oom"}:
        return ()
    wanted = []
    if not len(recording["samples"]):
        wanted.append("exhume record DIR takes stack samples of every core: they show what the kernel was busy with")
    if not recording.on("latency"):
        why = recording.why_off("latency")
        wanted.append(f"the latency probes, which see a late poll from its first 50 ms on (exhume latency); off here: {why}")
    if kinds & {"nic-reset", "napi-starved"}:
        wanted.append("exhume record DIR --on nic-reset,napi-starved keeps the minutes before the next one")
    if not recording.on("kernel-log"):
        wanted.append(f"the kernel log; off here: {recording.why_off('kernel-log')}")
    return tuple(wanted)
