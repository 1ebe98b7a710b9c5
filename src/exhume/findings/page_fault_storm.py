"""page-fault-storm: memory is read again and again (major faults), or page faults are most of what the cores do."""

from exhume.findings.held import Who
from exhume.findings.kernel_work import FAULT
from exhume.findings.machine import KERNEL, machine
from exhume.findings.major_faults import major_faults
from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.sampled_work import Sampled, Whose, most, sampled
from exhume.findings.stretches import SECOND_NS, growth, spans, times
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.text import printable

KIND = "page-fault-storm"
_SAMPLES = "stack samples"
# A process is named from this share of the faults on.
_MOSTLY = 0.3


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    shortest = round(thresholds.stretch_s * SECOND_NS)
    major = growth(recording, "vmstat_pgmajfault")
    seen = sampled(recording)
    if major is None and seen is None:
        return Examined(KIND, unseen=recording.why_off("vmstat"))
    if major is not None and (stretches := major.above(thresholds.major_faults, shortest)):
        return Examined(KIND, (_major(recording, thresholds, seen, times(stretches)),))
    minor = _minor(recording, thresholds, seen, shortest)
    if minor is not None:
        return Examined(KIND, (minor,))
    said = []
    if major is not None:
        said.append(f"{major.most(shortest):,.0f} major faults a second")
    if seen is not None:
        said.append(f"{seen.steps(seen.doing(FAULT)).most(shortest):.0%} of all cores' time in page faults")
    return Examined(KIND, ruled_out=", ".join(said))


def _major(recording: Recording, thresholds: Thresholds, seen: Sampled | None, parts: list[tuple[int, int]]) -> Finding:
    """A storm only if it is read again and somebody waits for it: whoever starts reads all that it has for the first time."""
    read = major_faults(recording, seen, seen.doing(FAULT) if seen is not None else None, parts)
    evidence = [*read.evidence, *_share(seen, parts)]
    summary = f"{read.rate:,.0f} major page faults a second: {read.words}"
    severity: Severity = "info" if read.new else "warning"
    if not read.new and read.waited is not None and read.waited < thresholds.fault_wait_ratio:
        severity = "info"
        summary += f"; hardly anybody waits for it ({read.waited:.0%} of the time)"
    whose, source = _by_counts(recording, parts), "/proc/PID/stat majflt"
    if whose is None and seen is not None:
        whose, source = seen.most_by(seen.during(parts) & seen.doing(FAULT)), _SAMPLES
    return _finding(severity, summary, evidence, whose, source, parts)


def _minor(recording: Recording, thresholds: Thresholds, seen: Sampled | None, shortest: int) -> Finding | None:
    """Faults that need no disk: a core is free of them by what its programs do with memory, not by more of it."""
    faults, cores = growth(recording, "vmstat_pgfault"), machine(recording)
    if seen is not None:
        parts = times(seen.steps(seen.doing(FAULT), seen.busy).above(thresholds.fault_ratio, shortest))
        whole = seen.steps(seen.doing(FAULT)).mean(parts) if parts else 0.0
        # A machine that does next to nothing may do it in page faults.
        if not parts or whole < thresholds.fault_ratio / 4:
            return None
        busy = seen.steps(seen.doing(FAULT), seen.busy).mean(parts)
        summary = f"page faults take {busy:.0%} of the busy time, {whole:.0%} of all cores' time"
    elif faults is not None and cores is not None:
        many = times(faults.above(thresholds.minor_faults * max(1, recording.node.cpus), shortest))
        parts = [part for part in many if cores.share(*KERNEL, during=[part]) >= thresholds.fault_ratio]
        if not parts:
            return None
        whole = 0.0
        kernel = cores.share(*KERNEL, during=parts)
        summary = f"{faults.mean(parts):,.0f} page faults a second while the kernel takes {kernel:.0%} of all cores' time"
    else:
        return None
    evidence = _share(seen, parts)
    if faults is not None:
        evidence.append(Evidence("faults", round(faults.mean(parts)), "per second", "/proc/vmstat pgfault"))
    severity: Severity = "warning" if whole >= thresholds.fault_ratio else "info"
    whose = seen.most_by(seen.during(parts) & seen.doing(FAULT)) if seen is not None else None
    return _finding(severity, summary, evidence, whose, _SAMPLES, parts)


def _finding(
    severity: Severity,
    summary: str,
    evidence: list[Evidence],
    whose: Whose | None,
    source: str,
    parts: list[tuple[int, int]],
) -> Finding:
    if whose is not None and whose.share >= _MOSTLY:
        evidence = [
            *evidence,
            Evidence("process", whose.process, "", source),
            Evidence("its share", round(whose.share, 3), "of the faults", source),
        ]
        summary += f"; {whose.share:.0%} of it by {printable(whose.process)}"
        if whose.cgroup:
            evidence.append(Evidence("its cgroup", whose.cgroup, "", "/proc/PID/cgroup"))
            summary += f" in {printable(whose.cgroup)}"
    return Finding(KIND, "node", severity, parts[0][0], parts[-1][1], summary, tuple(evidence), spans(parts))


def _share(seen: Sampled | None, parts: list[tuple[int, int]]) -> list[Evidence]:
    if seen is None:
        return []
    fault = seen.doing(FAULT)
    return [
        Evidence("fault share", round(seen.steps(fault).mean(parts), 3), "of all cores' time", _SAMPLES),
        Evidence("fault share of busy", round(seen.steps(fault, seen.busy).mean(parts), 3), "of the busy time", _SAMPLES),
    ]


def _by_counts(recording: Recording, parts: list[tuple[int, int]]) -> Whose | None:
    """Whose major faults they are, by what each process counts itself."""
    found = []
    for at in recording.counters("process_major_faults"):
        of = dict(at)
        grown = growth(recording, "process_major_faults", at)
        if grown is not None:
            found.append((Who(of.get("comm", ""), int(of["pid"]), 0, of.get("cgroup", "")), round(grown.total(parts))))
    return most(found, sum(count for _, count in found))
