"""irq-imbalance: one core takes nearly all interrupts of the network queues, and is busy with them, while there are others."""

from collections import Counter

from exhume.findings.cores import cores
from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.node.interrupts import queue_of
from exhume.recording.recording import Recording

KIND = "irq-imbalance"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("interrupts"):
        return Examined(KIND, unseen=recording.why_off("interrupts"))
    by_core: Counter[str] = Counter()
    seconds = 0.0
    for at, series in recording.counters("interrupts").items():
        where = dict(at)
        # Only the queues' own: a timer or a disk that has one interrupt has it somewhere.
        if len(series.times) > 1 and _is_queue(where.get("device", "")):
            by_core[where["cpu"]] += series.delta
            seconds = max(seconds, float(series.times[-1] - series.times[0]) / 1e9)
    total = by_core.total()
    if total == 0 or seconds == 0:
        return Examined(KIND, ruled_out="no interrupts of network queues in the window")
    core, count = by_core.most_common(1)[0]
    per_second, ratio = total / seconds, count / total
    if recording.node.cpus < 2 or per_second < thresholds.irq_rate:
        return Examined(KIND, ruled_out=f"{per_second:,.0f} network interrupts a second")
    if ratio < thresholds.irq_share:
        return Examined(KIND, ruled_out=f"the most network interrupts, {ratio:.0%}, are taken by core {core}")
    spent = next((one.share("irq", "softirq") for one in cores(recording) if str(one.number) == core), None)
    if spent is None:
        return Examined(KIND, unseen=recording.why_off("cpu"))
    if spent < thresholds.irq_time_ratio:
        return Examined(KIND, ruled_out=f"interrupts take {spent:.0%} of the time of core {core}, which takes most of them")
    start, end = recording.window
    evidence = (
        Evidence("core", int(core), "", "/proc/interrupts"),
        Evidence("share", round(ratio, 3), "of the interrupts of network queues", "/proc/interrupts"),
        Evidence("network interrupts", round(per_second), "per second", "/proc/interrupts"),
        Evidence("interrupt time", round(spent, 3), "of the core's time, irq and softirq", "/proc/stat"),
    )
    summary = (
        f"core {core} takes {ratio:.0%} of {per_second:,.0f} network interrupts a second, and they {spent:.0%} of its time"
    )
    return Examined(KIND, (Finding(KIND, f"core {core}", "warning", start, end, summary, evidence),))


def _is_queue(interrupt: str) -> bool:
    return queue_of(interrupt, "tx") is not None or queue_of(interrupt, "rx") is not None
