"""printk-flood: so many kernel messages that printing them is the work (a serial console holds a core for each line).

A serial line of 115,200 baud takes some 140 lines a second, so a core can be held by far fewer messages than a flood has: the
stacks of the core that prints tell that. To store a message takes microseconds (vprintk_store in kernel/printk/printk.c): where
stacks show that no console prints them, only a rate that pushes everything else out of the log is a trouble. Lines that
programs write to /dev/kmsg are no complaint of the kernel's.
"""

from dataclasses import dataclass

from exhume.findings.kernel_work import CONSOLE
from exhume.findings.model import Evidence, Examined, Finding, Severity, Span
from exhume.findings.sampled_work import sampled
from exhume.findings.stretches import SECOND_NS, growth, spans, times
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.text import printable

KIND = "printk-flood"
RECORDS, OF_PROGRAMS = "printk_records", "printk_program_records"
_LOG = "/dev/kmsg"
_SAMPLES = "stack samples"
# Of the share of a core from which printing is a trouble by itself; what is below that costs next to nothing.
_SMALL = 1 / 3
# Messages a second that do not fill even a line of 9,600 baud: whoever is at the console prints what is older, or waits.
_TRICKLE = 1.0


@dataclass(frozen=True, slots=True)
class _Console:
    """Who printed to a console, and where."""

    core: int
    share: float
    process: str
    cgroup: str
    parts: list[tuple[int, int]]
    times: tuple[int, int]
    """From when to when stacks were sampled."""

    def saw(self, parts: list[tuple[int, int]]) -> bool:
        """Whether stacks were sampled in these times."""
        return any(start < self.times[1] and end > self.times[0] for start, end in parts)


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    shortest = round(thresholds.stretch_s * SECOND_NS)
    records, written = growth(recording, RECORDS), growth(recording, OF_PROGRAMS)
    console = _console(recording, thresholds, shortest)
    if records is None and console is None:
        return Examined(KIND, unseen=recording.why_off("kernel-log"))
    flood = times(records.above(thresholds.printk_rate, shortest)) if records is not None else []
    if flood or (console is not None and console.parts):
        return Examined(KIND, (_finding(recording, thresholds, flood, console),))
    if written is not None and (parts := times(written.above(thresholds.printk_rate, shortest))):
        return Examined(KIND, (_of_programs(recording, written.mean(parts), parts),))
    said = [f"{records.most(shortest):,.0f} kernel messages a second"] if records is not None else []
    if console is not None:
        said.append(f"at most {console.share:.0%} of a core in printing them")
    return Examined(KIND, ruled_out=", ".join(said))


def _finding(recording: Recording, thresholds: Thresholds, flood: list[tuple[int, int]], console: _Console | None) -> Finding:
    held = console.parts if console is not None else []
    parts = times_of(flood, held)
    records = growth(recording, RECORDS)
    rate = records.mean(parts) if records is not None else 0.0
    evidence = [Evidence("messages", round(rate), "per second", _LOG)] if records is not None else []
    summary = f"the kernel prints {rate:,.0f} messages a second" if flood else "printing kernel messages holds a core"
    told, more = _message(recording, RECORDS, parts)
    summary, evidence = summary + told, evidence + more
    where: tuple[Span, ...] = ()
    severity: Severity = "warning"
    if console is not None and not held and console.saw(flood) and console.share < _SMALL * thresholds.console_ratio:
        printed = f"hardly any is printed to a console ({console.share:.1%} of a core)"
        if rate < thresholds.printk_warning_rate:
            severity = "info"
            summary += f"; {printed}: they cost next to nothing"
        else:
            summary += f"; {printed}, but they push everything else out of the log"
    if console is not None:
        evidence.append(Evidence("console share", round(console.share, 3), "of the busiest core's time", _SAMPLES))
        if held:
            where = spans(held, console.core)
            evidence.append(Evidence("core", console.core, "", _SAMPLES))
            summary += f"; {printable(console.process) or 'somebody'} prints them to a console on core {console.core}, "
            summary += f"{console.share:.0%} of its time"
            if not flood and records is not None and rate < _TRICKLE:
                severity = "info"
                summary += "; hardly any message was logged meanwhile, what it prints is older"
            if console.process:
                evidence.append(Evidence("process", console.process, "", _SAMPLES))
            if console.cgroup:
                evidence.append(Evidence("its cgroup", console.cgroup, "", "/proc/PID/cgroup"))
    return Finding(KIND, "kernel log", severity, parts[0][0], parts[-1][1], summary, tuple(evidence), (*spans(flood), *where))


def times_of(*of: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(part for parts in of for part in parts)


def _of_programs(recording: Recording, rate: float, parts: list[tuple[int, int]]) -> Finding:
    """Nobody's driver is in trouble; whoever writes them may be told to write elsewhere."""
    told, more = _message(recording, OF_PROGRAMS, parts)
    summary = f"{rate:,.0f} messages a second in the kernel log are written by programs, not by the kernel{told}"
    evidence = (Evidence("written by programs", round(rate), "per second", f"{_LOG}, facility 1 and above"), *more)
    return Finding(KIND, "kernel log", "info", parts[0][0], parts[-1][1], summary, evidence, spans(parts))


def _message(recording: Recording, name: str, parts: list[tuple[int, int]]) -> tuple[str, list[Evidence]]:
    """What most of them begin with."""
    records = growth(recording, name)
    total = records.total(parts) if records is not None else 0.0
    counted: list[tuple[float, str, str]] = []
    for at in recording.counters(name):
        of = dict(at)
        grown = growth(recording, name, at) if "prefix" in of else None
        if grown is not None:
            counted.append((grown.total(parts), of["prefix"], of.get("example", "")))
    if not counted or total <= 0:
        return "", []
    count, prefix, example = max(counted)
    share = min(1.0, count / total)
    if count <= 0:
        return "", []
    evidence = [
        Evidence("message", prefix, "", f"{_LOG}, what they begin with, # where numbers differ"),
        Evidence("its share", round(share, 3), "of the messages", _LOG),
        Evidence("example", example, "", _LOG),
    ]
    return f", {share:.0%} of them by {printable(prefix, 60)}, such as: {printable(example, 100)}", evidence


def _console(recording: Recording, thresholds: Thresholds, shortest: int) -> _Console | None:
    """The core that spent most on it. None without samples."""
    seen = sampled(recording)
    if seen is None:
        return None
    printing = seen.doing(CONSOLE)
    sampled_from_to = (int(seen.times[0]), int(seen.times[-1]))
    best = _Console(-1, 0.0, "", "", [], sampled_from_to)
    for core in sorted(set(seen.cores[printing].tolist())):
        steps = seen.core_steps(printing, core)
        parts = times(steps.above(thresholds.console_ratio, shortest))
        share = steps.mean(parts) if parts else steps.most(shortest)
        if (bool(parts), share) > (bool(best.parts), best.share):
            whose = seen.most_by(printing & (seen.cores == core))
            best = _Console(core, share, whose.process if whose else "", whose.cgroup if whose else "", parts, sampled_from_to)
    return best
