"""steal: the hypervisor gives this machine's time to others."""

from exhume.findings.machine import IDLE, Machine, machine
from exhume.findings.model import Evidence, Examined, Finding, Severity
from exhume.findings.stretches import SECOND_NS, growth, spans, times
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels

KIND = "steal"
_STAT = "/proc/stat"
# Cores are read ten times a second: what lasts a second may be seen for less.
_NEARLY = 0.9
_SHORTEST_NS = round(_NEARLY * SECOND_NS)
# Share of all cores' time that may be idle where work is said to wait for a core.
_LEFT_OVER = 0.2


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    cores = machine(recording)
    if cores is None or cores.sampled:
        return Examined(KIND, unseen=recording.why_off("cpu"))
    taken = cores.steps("steal")
    parts = times(taken.above(thresholds.steal_ratio, _SHORTEST_NS))
    if parts:
        return Examined(KIND, (_of_node(recording, cores, parts, thresholds),))
    alone = {core: times(cores.stolen_from(core).above(thresholds.steal_core_ratio, _SHORTEST_NS)) for core in cores.stolen}
    alone = {core: found for core, found in alone.items() if found}
    if alone:
        return Examined(KIND, (_of_cores(cores, alone),))
    stolen = taken.most(_SHORTEST_NS)
    return Examined(KIND, ruled_out=f"{stolen:.1%}" if stolen else "none reported")


def _of_node(recording: Recording, cores: Machine, parts: list[tuple[int, int]], thresholds: Thresholds) -> Finding:
    stolen = cores.share("steal", during=parts)
    worst, there = max(
        ((core, cores.stolen_from(core).mean(parts)) for core in cores.stolen), key=lambda item: (item[1], -item[0])
    )
    evidence = [
        Evidence("steal", round(stolen, 3), "of all cores' time", _STAT),
        Evidence("worst core", worst, "", _STAT),
        Evidence("steal there", round(there, 3), "of its time", _STAT),
        Evidence("idle", round(cores.share(*IDLE, during=parts), 3), "of all cores' time", _STAT),
        Evidence("lasted", round(sum(end - start for start, end in parts) / 1e9, 1), "s", _STAT),
    ]
    summary = f"the hypervisor takes {stolen:.0%} of this machine's CPU time (core {worst}: {there:.0%})"
    waiting = growth(recording, "pressure_us", labels(cgroup="", kind="some", resource="cpu"))
    waited = waiting.mean(parts) / 1e6 if waiting is not None else None
    if waited is not None:
        evidence.append(Evidence("tasks waiting for a core", round(waited, 3), "of the time", "/proc/pressure/cpu some"))
        summary += f"; tasks waited for a core {waited:.0%} of the time"
    # A little of it is what a shared host is like, and so is much for a moment; it hurts who has work to do meanwhile. Tasks
    # that a quota holds back count as waiting, too (seen on 6.18: 88 % of the time, with 64 % of the cores idle), so waiting is
    # only put down to steal where no core is left over.
    idle = cores.share(*IDLE, during=parts)
    much = stolen >= thresholds.steal_wait_ratio
    hurts = much and waited is not None and waited >= thresholds.cpu_wait_ratio and idle <= _LEFT_OVER
    lasts = max(end - start for start, end in parts) >= _NEARLY * thresholds.stretch_s * SECOND_NS
    severity: Severity = "warning" if lasts and (stolen >= thresholds.steal_warning_ratio or hurts) else "info"
    return Finding(KIND, "node", severity, parts[0][0], parts[-1][1], summary, tuple(evidence), spans(parts))


def _of_cores(cores: Machine, alone: dict[int, list[tuple[int, int]]]) -> Finding:
    """One virtual CPU that does not get to run is told, though the machine as a whole does: its queue may starve."""
    shares = {core: cores.stolen_from(core).mean(parts) for core, parts in alone.items()}
    worst = max(shares, key=lambda core: (shares[core], -core))
    where = tuple(span for core, parts in sorted(alone.items()) for span in spans(parts, core))
    whole = cores.share("steal", during=alone[worst])
    evidence = (
        Evidence("steal", round(whole, 3), "of all cores' time", _STAT),
        Evidence("worst core", worst, "", _STAT),
        Evidence("steal there", round(shares[worst], 3), "of its time", _STAT),
    )
    summary = f"the hypervisor takes {shares[worst]:.0%} of the time of core {worst}, {whole:.0%} of all cores' time"
    return Finding(KIND, "node", "info", min(s.start for s in where), max(s.end for s in where), summary, evidence, where)
