"""irq-imbalance: one core takes nearly all interrupts of the network queues, and is busy with them, while there are others."""

import numpy as np

from exhume.findings.cores import cores
from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.stretches import Floats, Steps, growth, spans, times
from exhume.findings.thresholds import Thresholds
from exhume.node.interrupts import queue_of
from exhume.recording.recording import Ints, Recording

KIND = "irq-imbalance"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("interrupts"):
        return Examined(KIND, unseen=recording.why_off("interrupts"))
    moments, by_core = _by_core(recording)
    if not by_core:
        return Examined(KIND, ruled_out="no interrupts of network queues in the window")
    total = Steps(moments, np.sum(list(by_core.values()), axis=0), np.diff(moments) / 1e9)
    parts = times(total.above(thresholds.irq_rate, 0))
    if recording.node.cpus < 2 or not parts:
        return Examined(KIND, ruled_out=f"{total.most(0):,.0f} network interrupts a second")
    within = total.within(parts)
    core, count = max(
        ((core, float(taken[within].sum())) for core, taken in by_core.items()), key=lambda one: (one[1], -one[0])
    )
    per_second, ratio = total.mean(parts), count / float(total.amount[within].sum())
    if ratio < thresholds.irq_share:
        return Examined(KIND, ruled_out=f"the most network interrupts, {ratio:.0%}, are taken by core {core}")
    taking = next((one for one in cores(recording) if one.number == core), None)
    if taking is None:
        return Examined(KIND, unseen=recording.why_off("cpu"))
    counted = [taking.spent("irq", "softirq", start=start, end=end) for start, end in parts]
    spent = sum(ticks for ticks, _ in counted) / max(1, sum(ticks for _, ticks in counted))
    if spent < thresholds.irq_time_ratio:
        return Examined(KIND, ruled_out=f"interrupts take {spent:.0%} of the time of core {core}, which takes most of them")
    evidence = (
        Evidence("core", core, "", "/proc/interrupts"),
        Evidence("share", round(ratio, 3), "of the interrupts of network queues", "/proc/interrupts"),
        Evidence("network interrupts", round(per_second), "per second", "/proc/interrupts"),
        Evidence("interrupt time", round(spent, 3), "of the core's time, irq and softirq", taking.source),
    )
    summary = (
        f"core {core} takes {ratio:.0%} of {per_second:,.0f} network interrupts a second, and they {spent:.0%} of its time"
    )
    start, end = parts[0][0], parts[-1][1]
    return Examined(KIND, (Finding(KIND, f"core {core}", "warning", start, end, summary, evidence, spans(parts, core)),))


def _by_core(recording: Recording) -> tuple[Ints, dict[int, Floats]]:
    """What each core took of the queues' own interrupts, by reading: a timer or a disk that has one has it somewhere."""
    grown: list[tuple[int, Steps]] = []
    queues: dict[str, bool] = {}
    for at in recording.counters("interrupts"):
        of = dict(at)
        device = of.get("device", "")
        if device not in queues:
            queues[device] = queue_of(device, "tx") is not None or queue_of(device, "rx") is not None
        if queues[device] and of.get("cpu", "").isdecimal() and (steps := growth(recording, "interrupts", at)) is not None:
            grown.append((int(of["cpu"]), steps))
    if not grown:
        return np.empty(0, dtype=np.int64), {}
    moments = max((steps.times for _, steps in grown), key=len)
    by_core: dict[int, Floats] = {}
    for core, steps in grown:
        taken = by_core.setdefault(core, np.zeros(len(moments) - 1))
        taken[len(taken) - len(steps.amount) :] += steps.amount  # one that began later has the later readings
    return moments, by_core
