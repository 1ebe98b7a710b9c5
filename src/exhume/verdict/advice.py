"""What to do, by what was found: the next steps, what exhume can do itself, and what is advised for and against."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.recording.recording import Recording
from exhume.verdict.hypotheses import cpu_throttled
from exhume.verdict.hypotheses.model import Case
from exhume.verdict.hypotheses.registry import HYPOTHESES
from exhume.verdict.kinds import SYMPTOMS
from exhume.verdict.report import Advice, Remedy

MOST = 3


def next_steps(case: Case) -> tuple[str, ...]:
    """At most three, for the findings of the chain first."""
    ordered = [link.finding for link in case.chain]
    ordered += [finding for finding in case.findings if finding.severity != "info" and finding not in ordered]
    steps = [_step(finding, case) for finding in ordered]
    return tuple(dict.fromkeys(filter(None, steps)))[:MOST]


def _step(finding: Finding, case: Case) -> str:
    hypothesis = HYPOTHESES.get(finding.kind)
    if hypothesis is None:
        return ""
    if not isinstance(hypothesis.step, str):
        return hypothesis.step(finding, case)
    directory = finding.value("directory") or f"/sys/fs/cgroup{finding.subject}"
    return hypothesis.step.format(subject=finding.subject, core=finding.value("core"), directory=directory)


def remedies(case: Case) -> tuple[Remedy, ...]:
    """What exhume itself can do about it: for the first of the chain that it knows one for."""
    for link in case.chain:
        hypothesis = HYPOTHESES.get(link.finding.kind)
        found = tuple(hypothesis.remedies(link.finding, case)) if hypothesis is not None else ()
        if found:
            return found
    return ()


def advice(case: Case) -> tuple[Advice, ...]:
    """Of every hypothesis of the chain, and of what holds whatever the cause; what to do first, what not to do after it."""
    found: dict[str, Advice] = {}
    for finding in [link.finding for link in case.chain]:
        hypothesis = HYPOTHESES.get(finding.kind)
        for one in hypothesis.advice(finding, case) if hypothesis is not None else ():
            found.setdefault(one.text, one)
    for one in _whatever(case):
        found.setdefault(one.text, one)
    return tuple(sorted(found.values(), key=lambda one: one.against))


def _whatever(case: Case) -> Iterator[Advice]:
    throttled = case.of("cpu-throttled", serious=False)
    if throttled:
        yield from cpu_throttled.advice(throttled[0], case)
    unused = sorted({finding.subject for finding in case.of("unused-agent", serious=False)})
    if len(unused) > 1:
        yield Advice(
            f"disable what nothing here needs: {', '.join(unused)}", "each is enabled and in trouble, and used by nobody"
        )


def switch_on(recording: Recording, case: Case, explained: bool) -> tuple[str, ...]:
    """What would have shown more, where the cause of a symptom is not visible."""
    kinds = {finding.kind for finding in case.findings if finding.severity != "info"}
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
