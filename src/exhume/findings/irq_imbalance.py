"""irq-imbalance: one core takes nearly all device interrupts of a machine that has others."""

from collections import Counter

from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "irq-imbalance"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    by_core: Counter[str] = Counter()
    seconds = 0.0
    for at, series in recording.counters("interrupts").items():
        where = dict(at)
        # Numbered interrupts are devices'; named ones (LOC, RES, CAL) are each core's own.
        if where.get("irq", "").isdigit() and len(series.times) > 1:
            by_core[where["cpu"]] += series.delta
            seconds = max(seconds, float(series.times[-1] - series.times[0]) / 1e9)
    if not recording.on("interrupts"):
        return Examined(KIND, unseen=recording.why_off("interrupts"))
    total = by_core.total()
    if total == 0 or seconds == 0:
        return Examined(KIND, ruled_out="no device interrupts in the window")
    core, count = by_core.most_common(1)[0]
    per_second, ratio = total / seconds, count / total
    if recording.node.cpus < 2 or ratio < thresholds.irq_share or per_second < thresholds.irq_rate:
        return Examined(KIND, ruled_out=f"{per_second:,.0f} device interrupts a second, {ratio:.0%} of them on core {core}")
    start, end = recording.window
    evidence = (
        Evidence("core", int(core), "", "/proc/interrupts"),
        Evidence("share", round(ratio, 3), "of device interrupts", "/proc/interrupts"),
        Evidence("device interrupts", round(per_second), "per second", "/proc/interrupts"),
    )
    summary = f"core {core} takes {ratio:.0%} of {per_second:,.0f} device interrupts a second"
    return Examined(KIND, (Finding(KIND, f"core {core}", "warning", start, end, summary, evidence),))
