"""printk-flood: so many kernel messages that printing them is the work (a serial console holds a core for each line).

A serial line of 115,200 baud takes some 140 lines a second, so a core can be held by far fewer messages than a flood has: the
stacks of the core that prints tell that. To store a message takes microseconds (vprintk_store in kernel/printk/printk.c): where
stacks show that no console prints them, only a rate that pushes everything else out of the log is a trouble. Lines that
programs write to /dev/kmsg are no complaint of the kernel's.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from exhume.diagnosis.findings import subjects
from exhume.diagnosis.findings.core_facts import CoreSaturated, filled_by
from exhume.diagnosis.findings.kernel_work import CONSOLE
from exhume.diagnosis.findings.kind import Case, Culprit, Judged, Kind, Rule, Step
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Severity, Shown
from exhume.diagnosis.findings.napi_starved import NapiStarved, held_by
from exhume.diagnosis.findings.offender import Offender
from exhume.diagnosis.findings.sampled_work import Whose, sampled
from exhume.diagnosis.findings.soft_lockup import SoftLockup, in_the_trace
from exhume.diagnosis.findings.stretches import growth, spans, times
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.text import printable

RECORDS, OF_PROGRAMS = "printk_records", "printk_program_records"
_LOG = "/dev/kmsg"
_SAMPLES = "stack samples"
# Of the share of a core from which printing is a trouble by itself; what is below that costs next to nothing.
_SMALL = 1 / 3
# Messages a second that do not fill even a line of 9,600 baud: what a console prints meanwhile is older.
_TRICKLE = 1.0
Parts = list[tuple[int, int]]


@record(frozen=True, slots=True, kw_only=True)
class PrintkFlood(Facts):
    kind: ClassVar[str] = "printk-flood"
    messages_per_s: Annotated[int | None, Shown("messages", "per second", _LOG)] = None
    """Of the kernel. None: the log was not read, or the flood is one of programs."""
    program_messages_per_s: Annotated[
        int | None, Shown("written by programs", "per second", f"{_LOG}, facility 1 and above")
    ] = None
    """None: it is a flood of the kernel's own messages."""
    flooded: bool
    """The rate is above its threshold; otherwise it is the console that holds a core."""
    message: Annotated[str, Shown("message", source=f"{_LOG}, what they begin with, # where numbers differ")] = ""
    """What most of them begin with."""
    message_ratio: Annotated[float | None, Shown("its share", "of the messages", _LOG, digits=3)] = None
    example: Annotated[str, Shown("example", source=_LOG)] = ""
    console_ratio: Annotated[float | None, Shown("console share", "of the busiest core's time", _SAMPLES, digits=3)] = None
    """None: no stacks were sampled."""
    unprinted: bool = False
    """Stacks show that hardly any is printed to a console."""
    log_overrun: bool = False
    """So many that they push everything else out of the log."""
    stale: bool = False
    """Hardly any message was logged while the console printed."""
    core: Annotated[int | None, Shown("core", source=_SAMPLES)] = None
    """The core that printing holds."""
    printer: Annotated[Offender | None, Shown()] = None
    """The program that prints them there."""

    @property
    def focus_core(self) -> int | None:
        return self.core

    @property
    def focus_offender(self) -> Offender | None:
        return self.printer

    def summary(self) -> str:
        if self.program_messages_per_s is not None:
            said = f"{self.program_messages_per_s:,} messages a second in the kernel log"
            return f"{said} are written by programs, not by the kernel{self._most()}"
        rate = f"the kernel prints {self.messages_per_s or 0:,} messages a second"
        said = (rate if self.flooded else "printing kernel messages holds a core") + self._most()
        console = self.console_ratio or 0.0
        if self.unprinted:
            said += f"; hardly any is printed to a console ({console:.1%} of a core)"
            said += ", but they push everything else out of the log" if self.log_overrun else ": they cost next to nothing"
        if self.core is not None:
            printer = printable(str(self.printer.process)) if self.printer is not None else "somebody"
            said += f"; {printer} prints them to a console on core {self.core}, {console:.0%} of its time"
        if self.stale:
            said += "; hardly any message was logged meanwhile, what it prints is older"
        return said

    def _most(self) -> str:
        if self.message_ratio is None:
            return ""
        by = f", {self.message_ratio:.0%} of them by {printable(self.message, 60)}"
        return f"{by}, such as: {printable(self.example, 100)}"

    def short(self) -> tuple[str, str]:
        if self.program_messages_per_s is not None:
            return "kernel log flooded by programs", f"{self.program_messages_per_s:,} messages a second"
        rate = f"{self.messages_per_s:,} messages a second" if self.messages_per_s is not None else ""
        console = f"console: {self.console_ratio or 0:.0%} of core {self.core}" if self.core is not None else ""
        what = "flood of kernel messages" if self.flooded else "kernel messages printed to a console"
        return what, " · ".join(part for part in (rate, console) if part)


@dataclass(frozen=True, slots=True)
class _Console:
    """The core that spent most on printing to a console, and the program that printed there."""

    core: int
    share: float
    whose: Whose | None
    parts: Parts
    times: tuple[int, int]
    """From when to when stacks were sampled."""

    def saw(self, parts: Parts) -> bool:
        """Whether stacks were sampled in these times."""
        return any(start < self.times[1] and end > self.times[0] for start, end in parts)


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    shortest = round(thresholds.stretch_s * SECOND)
    records, written = growth(recording, RECORDS), growth(recording, OF_PROGRAMS)
    console = _console(recording, thresholds, shortest)
    if records is None and console is None:
        return Examined(PrintkFlood.kind, unseen=recording.why_off("kernel-log"))
    flood = times(records.above(thresholds.printk_rate, shortest)) if records is not None else []
    if flood or (console is not None and console.parts):
        return Examined(PrintkFlood.kind, (_finding(recording, thresholds, flood, console),))
    if written is not None and (parts := times(written.above(thresholds.printk_rate, shortest))):
        return Examined(PrintkFlood.kind, (_of_programs(recording, written.mean(parts), parts),))
    said = [f"{records.most(shortest):,.0f} kernel messages a second"] if records is not None else []
    if console is not None:
        said.append(f"at most {console.share:.0%} of a core in printing them")
    return Examined(PrintkFlood.kind, ruled_out=", ".join(said))


def _finding(recording: Recording, thresholds: Thresholds, flood: Parts, console: _Console | None) -> Finding[PrintkFlood]:
    held = console.parts if console is not None else []
    parts = sorted([*flood, *held])
    records = growth(recording, RECORDS)
    rate = records.mean(parts) if records is not None else 0.0
    unprinted = not held and console is not None and console.saw(flood) and console.share < _SMALL * thresholds.console_ratio
    most = _most_frequent(recording, RECORDS, parts)
    whose = console.whose if console is not None and held else None
    facts = PrintkFlood(
        subject=subjects.KERNEL_LOG,
        messages_per_s=round(rate) if records is not None else None,
        flooded=bool(flood),
        message=most.prefix,
        message_ratio=most.ratio,
        example=most.example,
        console_ratio=console.share if console is not None else None,
        unprinted=unprinted,
        log_overrun=rate >= thresholds.printk_warning_rate,
        stale=bool(held) and not flood and records is not None and rate < _TRICKLE,
        core=console.core if console is not None and held else None,
        printer=Offender(process=whose.process, seen_in=_SAMPLES, cgroup=whose.cgroup) if whose is not None else None,
    )
    severity: Severity = "info" if facts.stale or (unprinted and not facts.log_overrun) else "warning"
    where = spans(held, console.core) if console is not None else ()
    return Finding(facts, severity, parts[0][0], parts[-1][1], (*spans(flood), *where))


def _of_programs(recording: Recording, rate: float, parts: Parts) -> Finding[PrintkFlood]:
    """No driver is in trouble; the programs can log elsewhere."""
    most = _most_frequent(recording, OF_PROGRAMS, parts)
    facts = PrintkFlood(
        subject=subjects.KERNEL_LOG,
        program_messages_per_s=round(rate),
        flooded=True,
        message=most.prefix,
        message_ratio=most.ratio,
        example=most.example,
    )
    return Finding(facts, "info", parts[0][0], parts[-1][1], spans(parts))


class _Message(NamedTuple):
    prefix: str = ""
    ratio: float | None = None
    """Of all messages. None: unknown."""
    example: str = ""


def _most_frequent(recording: Recording, name: str, parts: Parts) -> _Message:
    """What most of them begin with."""
    records = growth(recording, name)
    total = records.total(parts) if records is not None else 0.0
    counted: list[tuple[float, str, str]] = []
    for at in recording.counters(name):
        of = dict(at)
        grown = growth(recording, name, at) if "prefix" in of else None
        if grown is not None:
            counted.append((grown.total(parts), of["prefix"], of.get("example", "")))
    count, prefix, example = max(counted, default=(0.0, "", ""))
    return _Message(prefix, min(1.0, count / total), example) if count > 0 and total > 0 else _Message()


def _console(recording: Recording, thresholds: Thresholds, shortest: int) -> _Console | None:
    """The core that spent most on it. None without samples."""
    seen = sampled(recording)
    if seen is None:
        return None
    printing = seen.doing(CONSOLE)
    sampled_from_to = (int(seen.times[0]), int(seen.times[-1]))
    best = _Console(-1, 0.0, None, [], sampled_from_to)
    for core in sorted(set(seen.cores[printing].tolist())):
        steps = seen.core_steps(printing, core)
        parts = times(steps.above(thresholds.console_ratio, shortest))
        share = steps.mean(parts) if parts else steps.most(shortest)
        if (bool(parts), share) > (bool(best.parts), best.share):
            whose = seen.most_by(printing & (seen.cores == core))
            best = _Console(core, share, whose, parts, sampled_from_to)
    return best


def _saturates(flood: Finding[PrintkFlood], core: Finding[CoreSaturated]) -> Judged:
    if core.facts.looked:
        return filled_by(core, core.facts.work.console_ratio, "kernel messages are printed")
    return 0.4, "both are there at once; no stack was taken to show that this core prints them"


def _starves(flood: Finding[PrintkFlood], napi: Finding[NapiStarved]) -> Judged:
    return held_by(napi, napi.facts.work.console_ratio, "kernel messages were printed there", 0.9)


def _locks_up(flood: Finding[PrintkFlood], lockup: Finding[SoftLockup]) -> Judged:
    return in_the_trace(lockup.facts.work.console_ratio, "kernel messages are printed")


def _culprits(flood: Finding[PrintkFlood], case: Case) -> Iterator[Culprit]:
    if flood.facts.message:
        yield Culprit(flood.facts.message, flood.facts.message_ratio or 1.0)


def _steps(flood: Finding[PrintkFlood], case: Case) -> Iterator[Step]:
    yield Step("dmesg -w shows which message floods; dmesg -n 1 keeps it off a slow console")


KIND = Kind(
    facts=PrintkFlood,
    detect=detect,
    role="pain",
    title=lambda finding: "floods of kernel messages" + (f" ({finding.facts.message})" if finding.facts.message else ""),
    rules=(
        Rule(PrintkFlood, CoreSaturated, _saturates, "a core that is as full with dmesg -n 1"),
        Rule(PrintkFlood, NapiStarved, _starves, "late polls with dmesg -n 1"),
        Rule(PrintkFlood, SoftLockup, _locks_up, "a lockup with dmesg -n 1"),
    ),
    culprits=_culprits,
    steps=_steps,
)
