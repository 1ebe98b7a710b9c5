"""irq-imbalance: one core takes nearly all interrupts of the network queues, and is busy with them, while there are others."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

import numpy as np

from exhume.diagnosis.findings import subjects
from exhume.diagnosis.findings.core_facts import CoreSaturated, filled_by
from exhume.diagnosis.findings.cores import cores
from exhume.diagnosis.findings.kind import MOSTLY, Case, Judged, Kind, Rule, Step
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Shown
from exhume.diagnosis.findings.napi_starved import NapiStarved, held_by
from exhume.diagnosis.findings.stretches import Floats, Steps, growth, spans, times
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.record import record
from exhume.recording.recording import Ints, Recording
from exhume.sources.interrupts import queue_of

_INTERRUPTS = "/proc/interrupts"


@record(frozen=True, slots=True, kw_only=True)
class IrqImbalance(Facts):
    kind: ClassVar[str] = "irq-imbalance"
    core: Annotated[int, Shown("core", source=_INTERRUPTS)]
    share_ratio: Annotated[float, Shown("share", "of the interrupts of network queues", _INTERRUPTS, digits=3)]
    """What the core takes of them."""
    interrupts_per_s: Annotated[int, Shown("network interrupts", "per second", _INTERRUPTS)]
    """Of all network queues, on all cores."""
    interrupt_time_ratio: Annotated[
        float, Shown("interrupt time", "of the core's time, irq and softirq", ".time_source", digits=3)
    ]
    time_source: str

    def summary(self) -> str:
        return (
            f"core {self.core} takes {self.share_ratio:.0%} of {self.interrupts_per_s:,} network interrupts a second, "
            f"and they {self.interrupt_time_ratio:.0%} of its time"
        )

    def short(self) -> tuple[str, str]:
        numbers = f"{self.share_ratio:.0%} of {self.interrupts_per_s:,} a second · {self.interrupt_time_ratio:.0%} of its time"
        return f"network interrupts on core {self.core}", numbers


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("interrupts"):
        return Examined(IrqImbalance.kind, unseen=recording.why_off("interrupts"))
    moments, by_core = _by_core(recording)
    if not by_core:
        return Examined(IrqImbalance.kind, ruled_out="no interrupts of network queues in the window")
    total = Steps(moments, np.sum(list(by_core.values()), axis=0), np.diff(moments) / 1e9)
    parts = times(total.above(thresholds.irq_rate, 0))
    if recording.node.cpus < 2 or not parts:
        return Examined(IrqImbalance.kind, ruled_out=f"{total.most(0):,.0f} network interrupts a second")
    within = total.within(parts)
    core, count = max(
        ((core, float(taken[within].sum())) for core, taken in by_core.items()), key=lambda one: (one[1], -one[0])
    )
    per_second, ratio = total.mean(parts), count / float(total.amount[within].sum())
    if ratio < thresholds.irq_share:
        return Examined(IrqImbalance.kind, ruled_out=f"the most network interrupts, {ratio:.0%}, are taken by core {core}")
    taking = next((one for one in cores(recording) if one.number == core), None)
    if taking is None:
        return Examined(IrqImbalance.kind, unseen=recording.why_off("cpu"))
    counted = [taking.spent("irq", "softirq", start=start, end=end) for start, end in parts]
    spent = sum(ticks for ticks, _ in counted) / max(1, sum(ticks for _, ticks in counted))
    if spent < thresholds.irq_time_ratio:
        return Examined(
            IrqImbalance.kind, ruled_out=f"interrupts take {spent:.0%} of the time of core {core}, which takes most of them"
        )
    facts = IrqImbalance(
        subject=subjects.core(core),
        core=core,
        share_ratio=ratio,
        interrupts_per_s=round(per_second),
        interrupt_time_ratio=spent,
        time_source=taking.source,
    )
    start, end = parts[0][0], parts[-1][1]
    return Examined(IrqImbalance.kind, (Finding(facts, "warning", start, end, spans(parts, core)),))


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


def _saturates(imbalance: Finding[IrqImbalance], core: Finding[CoreSaturated]) -> Judged:
    if core.facts.core != imbalance.facts.core:
        return None
    if core.facts.looked:
        return filled_by(core, core.facts.work.network_ratio, "packets are worked on", 0.9)
    spent = core.facts.interrupt_ratio or 0.0
    if spent >= MOSTLY:
        return 0.8, f"interrupts take {spent:.0%} of that core's time, and it takes those of all queues"
    return None


def _starves(imbalance: Finding[IrqImbalance], napi: Finding[NapiStarved]) -> Judged:
    if all(span.core != imbalance.facts.core for span in napi.spans):
        return None
    return held_by(napi, napi.facts.work.network_ratio, "the core was busy with packets", 0.8)


def _steps(imbalance: Finding[IrqImbalance], case: Case) -> Iterator[Step]:
    yield Step("spread the interrupts: irqbalance, or /proc/irq/N/smp_affinity")


KIND = Kind(
    facts=IrqImbalance,
    detect=detect,
    role="pain",
    title=lambda finding: "network interrupts that all go to one core",
    rules=(
        Rule(IrqImbalance, CoreSaturated, _saturates, "a core that is as full when others take the interrupts"),
        Rule(IrqImbalance, NapiStarved, _starves, "late polls when other cores take the interrupts"),
    ),
    steps=_steps,
)
