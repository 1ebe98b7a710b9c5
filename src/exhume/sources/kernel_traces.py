"""Call traces in the kernel log: the functions that follow the line of a lockup, a stall or a hung task, as one stack.

show_regs and show_trace_log_lvl (arch/x86/kernel/dumpstack.c), dump_backtrace (arch/arm64/kernel/stacktrace.c) print them, and
other cores may print in between: a line that names its core says whose trace goes on.
"""

import re
from typing import Final

from exhume.sources.kernel_event import Event

TRACED: Final = frozenset("soft-lockup hard-lockup rcu-stall rcu-stall-cpu rcu-kthread-starved hung-task".split())
"""The kinds of events after which the kernel prints one."""
_WITH_REGISTERS: Final = ("soft-lockup", "hard-lockup")  # show_regs names the core first
MOST_FRAMES: Final = 30
MOST_BYTES: Final = 2000
# Registers, modules and the traces of others stand in between.
_LINES: Final = 400
_MOST_REPORTS: Final = 16
_PRINTED_NS: Final = 30 * 10**9  # a serial console takes its time

_OPENS: Final = (b"soft lockup - CPU#", b"hard LOCKUP", b"stall", b"starved for", b" blocked ")
_NAME: Final = r"(?P<name>[A-Za-z_][\w.$]{0,127})\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8}"
_ADDRESS: Final = r"(?:\[<?[0-9a-f]{8,16}>?\]\s*){0,3}"
_MARKS: Final = r"(?:<[/A-Z0-9#]{2,8}>\s*){0,3}"
# ` ? name+0x1a/0x2c [module]`; kernels before 4.9 have the address before it. What a `?` stands before was merely found on the
# stack (Documentation/arch/x86/kernel-stacks.rst).
_FRAME: Final = re.compile(rf"\s{{0,8}}{_MARKS}{_ADDRESS}(?P<doubt>\? )?{_NAME}(?=\s|$)", re.ASCII)
_BEGINS: Final = re.compile(r"\s{0,8}Call [Tt]race:")
# 0010 is the kernel's code segment, e030 that of a Xen guest's kernel, 0033 that of a program.
_KERNEL_AT: Final = re.compile(rf"(?:RIP: (?:0010|e030):|pc : |PC is at ){_ADDRESS}{_NAME}", re.ASCII)
_USER_AT: Final = re.compile(r"RIP: 0033:")
# dump_stack_print_info in lib/dump_stack.c; UID since 6.13. A comm can say anything, at most 15 bytes of it.
_CORE: Final = re.compile(
    r"CPU: (?P<cpu>\d{1,5}) (?:UID: \d{1,10} )?PID: (?P<pid>\d{1,10}) Comm: (?P<comm>.{0,64}) "
    r"(?:Kdump: |Tainted: |Not tainted)",
    re.DOTALL | re.ASCII,
)
_BACKTRACE: Final = re.compile(r"(?:NMI backtrace for cpu|Dump of CPU|Task dump for CPU) (?P<cpu>\d{1,5})", re.ASCII)
_ENDS: Final = re.compile(r"\s{0,8}</TASK>|---\[ end trace")
_PART: Final = re.compile(
    rb"(?:\s|\\x09){0,8}(?:<[/A-Z0-9#]{2,8}>|\[<?[0-9a-f]{8,16}>?\]|(?:\? )?[A-Za-z_][\w.$]{0,127}\+0x[0-9a-f]|Call [Tt]race:)"
    rb"|RIP: |pc : |PC is at |CPU: \d|NMI backtrace for cpu |Dump of CPU |Task dump for CPU |---\[ end trace"
)
# The kernel's own search for the culprit, on top of what it interrupted: kernel/rcu/tree_stall.h, lib/nmi_backtrace.c,
# kernel/watchdog*.c, lib/dump_stack.c. Behind it is the way in of the interrupt.
_DETECTORS: Final = frozenset(
    "dump_stack dump_stack_lvl __dump_stack show_stack show_regs sched_show_task dump_cpu_task nmi_cpu_backtrace "
    "nmi_trigger_cpumask_backtrace arch_trigger_cpumask_backtrace trigger_single_cpu_backtrace rcu_dump_cpu_stacks "
    "print_cpu_stall print_other_cpu_stall check_cpu_stall rcu_check_callbacks rcu_sched_clock_irq rcu_pending "
    "watchdog_timer_fn watchdog_overflow_callback watchdog_hardlockup_check nmi_panic panic nmi_cpu_backtrace_handler".split()
)
_WAY_IN: Final = frozenset(
    "hrtimer_interrupt __sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt asm_sysvec_apic_timer_interrupt "
    "local_apic_timer_interrupt smp_apic_timer_interrupt apic_timer_interrupt default_do_nmi do_nmi exc_nmi asm_exc_nmi nmi "
    "end_repeat_nmi arch_timer_handler_virt arch_timer_handler_phys gic_handle_irq el1_irq el1_interrupt el1h_64_irq_handler "
    "el1h_64_irq xen_hvm_callback_vector hyperv_stimer0_callback_vector".split()
)

_WAY_IN_APART: Final = 8  # functions between two of these of one interrupt: those of the interrupt controller


class TraceFilter:
    """Which of the lines that say nothing by themselves may be part of a trace: none, unless one was opened a while ago."""

    def __init__(self) -> None:
        self.armed = 0

    def opened(self, raw: bytes) -> None:
        if any(mark in raw for mark in _OPENS):
            self.armed = _LINES

    def takes(self, raw: bytes) -> bool:
        if not self.armed:
            return False
        self.armed -= 1
        return _PART.match(raw) is not None


class Trace:
    """One trace, line by line."""

    def __init__(self) -> None:
        self.process: dict[str, str] = {}
        self._frames: list[str] = []
        self._doubtful: list[str] = []
        self._begun = self._ended = False

    def add(self, line: str) -> None:
        if self._ended:
            return
        if core := _CORE.match(line):
            self._ended = self._begun and bool(self._frames)  # the next dump begins; the first one is of the moment itself
            self.process = self.process or core.groupdict()
        elif at := _KERNEL_AT.match(line):
            self._interrupted(at["name"])
        elif (_USER_AT.match(line) and self._begun) or _ENDS.match(line):
            self._ended = bool(self._frames or self._doubtful)
        else:
            if begin := _BEGINS.match(line):
                self._ended = self._begun and len(self._frames) > 1
                self._begun, line = True, line[begin.end() :]
            if self._begun and not self._ended and (frame := _FRAME.match(line)):
                self._called(frame["name"], frame["doubt"] is not None)

    @property
    def running(self) -> bool:
        return self._begun and not self._ended

    def _interrupted(self, name: str) -> None:
        """What ran when the interrupt came. Amid a trace: the interrupt's own functions are before it."""
        if not self._begun or any(map(_detects, self._frames)):
            self._frames = []
        if self._frames[-1:] != [name]:
            self._frames.append(name)

    def _called(self, name: str, doubtful: bool) -> None:
        known = self._doubtful if doubtful else self._frames
        # arm64 and some unwinders begin with what the registers told already.
        if len(known) < 2 * MOST_FRAMES and known != [name]:
            known.append(name)

    @property
    def stack(self) -> str:
        """The innermost function first."""
        frames = _without_detector(self._frames)
        if len(frames) < 2:  # an unwinder that is sure of nothing
            frames += [name for name in _without_detector(self._doubtful) if name not in frames]
        told, size = 0, 0
        for name in frames[:MOST_FRAMES]:
            size += len(name.encode()) + 1
            if size > MOST_BYTES:
                break
            told += 1
        return ";".join(frames[:told])


def _detects(name: str) -> bool:
    return name.split(".", 1)[0] in _DETECTORS  # .cold, .isra.0


def _without_detector(frames: list[str]) -> list[str]:
    last = max((i for i, name in enumerate(frames) if _detects(name)), default=-1)
    if last >= 0:
        detected = last
        for i in range(detected + 1, len(frames)):
            # Further out may be an interrupt that came before, and is not this one.
            if frames[i] in _WAY_IN and (last == detected or i - last <= _WAY_IN_APART):
                last = i
    return frames[last + 1 :]


class Report:
    """An event that a trace follows."""

    def __init__(self, time: int, event: Event, at: int) -> None:
        self.time, self.event = time, event
        self.at = at
        """Where it is among the events of this batch; -1 once those were told."""
        self.trace = Trace()
        self.told = ""

    @property
    def fields(self) -> dict[str, str]:
        """What the trace adds to the event, and whose it is where the event does not say."""
        known = {name for name, _ in self.event.fields}
        of = {name: value for name, value in self.trace.process.items() if name not in known and value}
        if self.event.kind == "hung-task":  # it does not run anywhere; whoever is named printed it
            of = {}
        return of | {"stack": self.trace.stack}


class Reports:
    """Those whose traces may still come, and whose comes now."""

    def __init__(self) -> None:
        self._open: list[Report] = []
        self._current: Report | None = None

    def opens(self, time: int, event: Event, at: int) -> None:
        report = Report(time, event, at)
        self._open = [*self._open[-_MOST_REPORTS + 1 :], report]
        # Amid another core's trace: its own begins with a line that names the core, and until then the other's goes on.
        waits = event.kind in _WITH_REGISTERS and self._current is not None and self._current.trace.running
        self._current = self._current if waits else report

    def line(self, time: int, message: str) -> None:
        """One that says nothing by itself."""
        if not self._open:
            return
        self._open = [report for report in self._open if abs(time - report.time) <= _PRINTED_NS]
        if core := _CORE.match(message) or _BACKTRACE.match(message):
            self._current = self._of_core(core["cpu"])
        if self._current is not None and self._current in self._open:
            self._current.trace.add(message)

    def _of_core(self, cpu: str) -> Report | None:
        """A stall that RCU noticed elsewhere names no core."""
        mine = [report for report in self._open if report.event.get("cpu") == cpu]
        nameless = [report for report in self._open if report.event.kind == "rcu-stall" and report.event.get("cpu") is None]
        mine = mine or [report for report in nameless if report.trace.process.get("cpu", cpu) == cpu]
        return mine[-1] if mine else None

    def news(self) -> list[Report]:
        """Reports whose trace grew since the last call. All of them are told then: what comes later is an event of its own."""
        grown = [report for report in self._open if report.trace.stack != report.told]
        for report in grown:
            report.told = report.trace.stack
        return grown

    def told(self) -> None:
        for report in self._open:
            report.at = -1
