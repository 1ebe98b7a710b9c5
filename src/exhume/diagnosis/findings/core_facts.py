"""The facts of core-saturated: of one core, of all cores at once, or of a core whose time was not accounted."""

from typing import Annotated, ClassVar

from exhume.diagnosis.findings.kind import MOSTLY, NEARLY, Judged
from exhume.diagnosis.findings.model import Facts, Finding, Shown
from exhume.diagnosis.findings.offender import NO_WORK, Offender, WorkShares, blamed
from exhume.diagnosis.findings.subjects import Process
from exhume.host.quantities import milliseconds
from exhume.record import record
from exhume.text import printable


@record(frozen=True, slots=True, kw_only=True)
class PacketSender:
    """Who sends the packets that a core is busy with."""

    process: Annotated[Process, Shown("packets sent by", source="stack samples of all cores in that time")]
    send_ratio: Annotated[
        float, Shown("its sends", "of the samples in a send()", "stack samples of all cores in that time", digits=3)
    ]
    cgroup: Annotated[str, Shown("sender's cgroup", source="/proc/PID/cgroup")] = ""


@record(frozen=True, slots=True, kw_only=True)
class CoreSaturated(Facts):
    kind: ClassVar[str] = "core-saturated"
    read_from: str
    """Where the time of the cores was read."""
    core: Annotated[int | None, Shown("core", source=".read_from")] = None
    """None: all cores at once."""
    cores_full: Annotated[int | None, Shown("cores", "most of their time in the kernel", ".read_from")] = None
    cores_total: int = 0
    longest_ms: Annotated[int, Shown("longest", "ms", ".read_from")]
    episodes: Annotated[int, Shown("episodes", source=".read_from")]
    kernel_ratio: Annotated[float | None, Shown("kernel time", "of the time", ".read_from", digits=3)] = None
    interrupt_ratio: Annotated[
        float | None, Shown("interrupt time", "of the time, irq and softirq", ".read_from", digits=3)
    ] = None
    busy_ratio: Annotated[float | None, Shown("busy meanwhile", "of all cores' time", ".read_from", digits=3)] = None
    machine_busy_ratio: Annotated[float | None, Shown("machine busy", "of all cores' time", ".read_from", digits=3)] = None
    steal_ratio: Annotated[float | None, Shown("steal", "of the time meanwhile", ".read_from", digits=3)] = None
    alone: bool = False
    """The other cores were not in the kernel at the same time."""
    unaccounted_ms: Annotated[int | None, Shown("not accounted", "ms", ".read_from")] = None
    by_samples: bool = False
    """Time that was not accounted: by missing samples rather than by missing ticks."""
    samples_from: str = ""
    samples: Annotated[int | None, Shown("stack samples", source=".samples_from")] = None
    """None: no stacks were taken, or they do not show what was done."""
    sampled_ratio: Annotated[float | None, Shown("sampled", "of that time", ".samples_from", digits=3)] = None
    offender: Annotated[Offender | None, Shown()] = None
    """The program or thread that had the core for at least half of the time."""
    offender_system_ms: Annotated[int | None, Shown("its system time", "ms", ".system_time_from")] = None
    system_time_from: str = ""
    holder: Process | None = None
    """As the offender, or the core itself while it served interrupts."""
    holder_ratio: float = 0.0
    """Of the samples."""
    did: Annotated[str, Shown("it", source=".samples_from")] = ""
    did_ratio: float = 0.0
    """All cores: how many of the samples show that."""
    did_unclassified: bool = False
    """Known only by the name of the function."""
    function: Annotated[str, Shown("function", source=".samples_from")] = ""
    stack: Annotated[tuple[str, ...], Shown("stack", source=".samples_from")] = ()
    """The innermost function first."""
    work: Annotated[WorkShares, Shown(unit="of the samples", source=".samples_from")] = NO_WORK
    sender: Annotated[PacketSender | None, Shown()] = None

    @property
    def in_interrupts(self) -> bool:
        return self.interrupt_ratio is not None and self.interrupt_ratio > 0.5

    @property
    def polls(self) -> bool:
        """Busy-polling by design, on a core of its own."""
        return self.work.polling_ratio >= 0.5

    @property
    def focus_core(self) -> int | None:
        return self.core

    @property
    def focus_offender(self) -> Offender | None:
        return self.offender

    @property
    def focus_stack(self) -> tuple[str, ...]:
        return self.stack

    @property
    def focus_did(self) -> str:
        return self.did

    @property
    def looked(self) -> bool:
        """Stacks of that core were taken in that time."""
        return self.samples is not None

    @property
    def walk_ratio(self) -> float:
        """Of the samples, those that walk memory cgroups, for whatever reason."""
        return self.work.memcg_walk_ratio + self.work.rstat_flush_ratio

    @property
    def blamed(self) -> str:
        """Of a core that is busy with packets, who sends them."""
        if self.sender is not None:
            return self.sender.cgroup or str(self.sender.process)
        return blamed(self.offender, self.work)

    def summary(self) -> str:
        if self.unaccounted_ms is not None:
            return self._unaccounted()
        return self._one_core() if self.core is not None else self._all_cores()

    def _times(self) -> str:
        return (
            f"{self.episodes} times, longest {milliseconds(self.longest_ms)}"
            if self.episodes > 1
            else f"for {milliseconds(self.longest_ms)}"
        )

    def _function(self) -> str:
        return f", {self.function}" if self.function and not self.did_unclassified else ""

    def _one_core(self) -> str:
        text = f"core {self.core} at {self.kernel_ratio or 0.0:.0%} {'softirq' if self.in_interrupts else 'system'} time"
        if self.steal_ratio is not None:
            text += f" of what the hypervisor left it (it took {self.steal_ratio:.0%})"
        text += f", {self._times()}"
        if self.alone:
            text += f"; the machine as a whole is {self.machine_busy_ratio or 0.0:.0%} busy"
        else:
            text += ", and the other cores are in the kernel too"
        if self.holder is not None:
            covered = self.sampled_ratio if self.sampled_ratio is not None else 1.0
            when = "" if covered >= 0.5 else f", taken in {covered:.0%} of that time"
            share = f"{self.holder_ratio:.0%} of the core's samples{when}"
            text += f"; {self.holder} {self.did} there{self._function()} ({share})"
        elif self.offender is not None:
            process, used = self.offender.process, self.offender_system_ms or 0
            text += f"; {process}, last seen on that core, used {milliseconds(used)} of system time"
        if self.sender is not None:
            text += f"; the packets are sent by {self.sender.process}, on this node"
        return text + (": busy-polling by design on a dedicated core" if self.polls else "")

    def _all_cores(self) -> str:
        full = self.cores_full or 0
        cores = f"all {full} cores" if full == self.cores_total else f"{full} of {self.cores_total} cores"
        text = f"{cores} at once in the kernel, {self._times()}: {self.kernel_ratio or 0.0:.0%} of the time of all"
        if self.did:
            text += f"; most often ({self.did_ratio:.0%} of the samples) it {self.did}{self._function()}"
        if self.offender is not None:
            text += f"; {self.holder_ratio:.0%} of them are of {printable(str(self.offender.process), 64)}"
        return text

    def _unaccounted(self) -> str:
        what, others = ("has no samples", "have") if self.by_samples else ("was not accounted", "were")
        why = "samples were lost" if self.by_samples else "it has no tick (nohz_full)"
        return (
            f"core {self.core} {what} {self._times()}, while the others {others}: interrupts were off there, "
            f"or it is a virtual CPU that did not run, or {why}"
        )

    def short(self) -> tuple[str, str]:
        if self.kernel_ratio is None:
            return f"{self.subject} not accounted", self._times()
        what = "softirq" if self.in_interrupts else "system"
        often = self._times() if self.episodes > 1 else f"{milliseconds(self.longest_ms)}"
        busy = f" · node as a whole {self.machine_busy_ratio:.0%} busy" if self.machine_busy_ratio is not None else ""
        return f"{self.subject} at {self.kernel_ratio:.0%} {what}", f"{often}{busy}"


def seen_there(core: Finding[CoreSaturated], share: float) -> tuple[float, str]:
    """The confidence of a link whose work that share of the core's stacks shows, and the share in words."""
    offender, sampled = core.facts.offender, core.facts.sampled_ratio or 0.0
    said = f"in {share:.0%} of the stack samples of this core"
    said += f", most of them {offender.process}'s" if offender is not None else ""
    if sampled >= MOSTLY:
        return (0.99 if min(share, sampled) >= NEARLY else 0.95), said
    return 0.75, f"{said}, which were taken in {sampled:.0%} of that time"


def filled_by(core: Finding[CoreSaturated], share: float, said: str, most: float = 0.99) -> Judged:
    """Whether a core's stacks explain its kernel time: most of them show this work, or it is no explanation."""
    if not core.facts.looked or share < MOSTLY:
        return None
    sure, seen = seen_there(core, share)
    return min(most, sure), f"{said} {seen}"
