"""memcg-walk: time inside the kernel's iteration over memory cgroups, dead ones included, by the program that asked for it.

Stack samples say it best. A check has none: then the stacks that were taken because of a stall do, and the call traces that
the kernel printed when it found a core locked up in one.
"""

from collections import Counter
from typing import TypeVar

from exhume.findings.events import aged
from exhume.findings.held import Who, belongs
from exhume.findings.kernel_threads import of_kernel
from exhume.findings.kernel_work import telling
from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.sampled import period_ns
from exhume.findings.stall_words import text
from exhume.findings.thresholds import Thresholds
from exhume.findings.walk_families import RSTAT
from exhume.findings.walks import SAMPLES, SECOND_NS, Walk, by_samples, by_stalls, by_traces
from exhume.node.owners import owner
from exhume.recording.recording import Recording

KIND = "memcg-walk"
_FEWEST = 3
_MOST_FINDINGS = 10

Counted = TypeVar("Counted", Who, str, tuple[str, ...])


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    sampled = len(recording["samples"])
    found = recording.derived("samples", by_samples) if sampled else by_stalls(recording)
    traced = by_traces(recording, found)
    enough = {key: walk for key, walk in found.items() if _enough(recording, walk, thresholds)}
    walkers = len(enough) + len(traced)
    of_few = few(recording)
    told = [_finding(recording, key[0], walk, _severity(walk, thresholds, of_few), walkers) for key, walk in enough.items()]
    for key, walk in traced.items():
        told.append(_finding(recording, key[0], walk, aged(walk.age_s, thresholds, "warning"), walkers))
    if told:
        told.sort(key=lambda finding: (finding.severity == "info", -finding.number("walked"), finding.subject))
        return Examined(KIND, tuple(told[:_MOST_FINDINGS]))
    if sampled or recording.on("latency"):
        if not found:
            seen = f"{sampled:,} stack samples" if sampled else "stalls"
            return Examined(KIND, ruled_out=f"none of the {seen} shows one")
        key, most = max(found.items(), key=lambda item: (item[1].walked_ns, item[0]))
        return Examined(KIND, ruled_out=f"most by {key[0]} with {most.walked_ns // 1_000_000:,} ms")
    return Examined(KIND, unseen=recording.why_off("samples"))


def _enough(recording: Recording, walk: Walk, thresholds: Thresholds) -> bool:
    start, end = recording.window
    times = recording["samples"].ints("time")
    seen_ns = max(SECOND_NS, int(times.max() - times.min()) if len(times) else end - start)
    if walk.source == SAMPLES and walk.walked_ns < _FEWEST * period_ns(recording):
        return False
    return walk.walked_ns >= min(thresholds.memcg_walk_ms * 1_000_000, thresholds.memcg_walk_ratio * seen_ns)


# So many groups are visited in no time: who is in such a function is there for what it finds, not for the walk.
_FEW_GROUPS = 200


def few(recording: Recording) -> bool:
    totals = [row["total"] for row in recording["memcg"].rows() if row["path"] == "/"]
    return bool(totals) and 0 <= max(totals) < _FEW_GROUPS


def _severity(walk: Walk, thresholds: Thresholds, of_few: bool) -> Severity:
    if of_few and _most(walk.families) != RSTAT:
        return "info"
    long = walk.stretch_ns >= thresholds.memcg_walk_stretch_ms * 1_000_000
    return "warning" if long or walk.densest >= thresholds.memcg_walk_warning_ratio else "info"


def _finding(recording: Recording, name: str, walk: Walk, severity: Severity, walkers: int) -> Finding:
    who, pids = _most(walk.whose), {who.pid for who in walk.whose}
    process = str(who) if len(pids) == 1 else f"{name} [{who.pid} and {len(pids) - 1} more]"
    stack, way, kind, function = _most(walk.stacks), _most(walk.ways), _most(walk.families), telling(_most(walk.stacks))
    walked, stretch = walk.walked_ns // 1_000_000, walk.stretch_ns // 1_000_000
    evidence = [
        Evidence("process", process, "", walk.source),
        *belongs(who, "/proc/PID/cgroup"),
        *of_kernel(recording, who, stack),
        Evidence("walked", walked, "ms", walk.source),
        Evidence("longest", stretch, "ms", walk.source),
        Evidence("core", walk.core, "", walk.source),
        Evidence("family", kind, "", walk.source),
        Evidence("function", function, "", walk.source),
        Evidence("stack", text(stack), "", walk.source),
        Evidence("walkers", walkers, "programs that are told for it", walk.source),
    ]
    said = f"{process} walked memory cgroups for {walked:,} ms"
    said += f", up to {stretch:,} ms at a stretch" if 0 < stretch < walked else ""
    said += f", through {way}" if way else ""
    if way:
        evidence.append(Evidence("through", way, "", walk.source))
    if walk.spun_ns:
        spun = walk.spun_ns / max(1, sum(walk.stacks.values()))
        evidence.append(Evidence("spun on a lock", round(spun, 3), "of its walk", walk.source))
        said += f", {spun:.0%} of it waiting for a lock" if spun >= 0.5 else ""
    if walk.share is not None:
        evidence.append(Evidence("share", round(walk.share, 3), "of its samples", walk.source))
        said += f": {walk.share:.0%} of its samples"
    if walk.core_share is not None:
        evidence.append(Evidence("core share", round(walk.core_share, 3), "of the core's samples meanwhile", walk.source))
    said += f", most on core {walk.core} ({function})"
    spans = tuple(sorted(walk.spans, key=lambda span: (span.start, span)))
    start, end = spans[0].start, max(span.end for span in spans)
    subject = who.unit or owner(who.cgroup).unit or process
    return Finding(KIND, subject, severity, start, end, said, tuple(evidence), spans)


def _most(counted: Counter[Counted]) -> Counted:
    return max(counted, key=lambda each: (counted[each], each))
