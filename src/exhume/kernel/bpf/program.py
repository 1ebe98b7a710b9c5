"""Programs in the kernel: loaded, run on demand, attached to tracepoints. Nothing is pinned, so all of it dies with us."""

import ctypes
import fcntl
import os
import re
import struct
from collections.abc import Callable
from typing import Final

from exhume.kernel.bpf.asm import Assembler
from exhume.kernel.bpf.instruction import listing
from exhume.kernel.bpf.syscall import (
    BpfError,
    Buffer,
    Command,
    Handle,
    ProgramKind,
    Rejected,
    Repeatable,
    address,
    architecture,
    attributes,
    bpf,
    call,
    error,
    load_program,
    verifier_log,
)
from exhume.kernel.bpf.tracefs import Tracepoint

# include/uapi/linux/perf_event.h
_PERF_TYPE_SOFTWARE: Final = 1
_PERF_TYPE_TRACEPOINT: Final = 2
_PERF_COUNT_SW_PAGE_FAULTS_MIN: Final = 5
_DISABLED_AND_USER_ONLY: Final = 1 << 0 | 1 << 5 | 1 << 6  # disabled, exclude_kernel, exclude_hv
_PERF_FLAG_FD_CLOEXEC: Final = 8
_IOC_ENABLE: Final = 0x2400
_IOC_SET_BPF: Final = 0x40042408

_LOG_TAIL_LINES = 24
_LISTED_AROUND = 12
_AT_INSTRUCTION = re.compile(r"\d+: \([0-9a-f]{2}\)")
# Lines of the verifier's log that say how much work it had, not what it found.
_BOOKKEEPING = re.compile(r"(processed \d+ insns|verification time|stack depth|mark_precise|insns_state)")


class Link(Handle):
    """A program's attachment; closing it detaches."""


class Program(Handle):
    """A program that the kernel has accepted."""

    def __init__(
        self, kind: ProgramKind, code: Assembler | bytes, name: str = "exhume", attach: tuple[int, int] | None = None
    ) -> None:
        raw = code if isinstance(code, bytes) else code.assemble()
        self.kind, self.name = kind, name
        try:
            super().__init__(load_program(kind, raw, name=name, attach=attach))
        except OSError as refused:
            raise _rejection(kind, raw, name, refused, attach) from None

    def run(self, *arguments: int) -> int:
        """Run a raw tracepoint's program here and now, on this CPU, as if hit with these arguments; what it returned.

        For kernels with Features.test_run; a Routine runs on the others too.
        """
        return self.runner(*arguments)()

    def runner(self, *arguments: int) -> Callable[[], int]:
        """The same for those who run it often: what is needed for it is made once."""
        context = attributes(f"{len(arguments)}Q", *arguments)
        # Up to and with `cpu` of the struct for BPF_PROG_TEST_RUN, as 5.10 has it.
        given = (len(context), 0, address(context)) if arguments else (0, 0, 0)
        attr = attributes("I36xIIQ16x", self.fd, *given)
        again = Repeatable(Command.PROG_TEST_RUN, attr, context)

        def run() -> int:
            if self._fd < 0:
                raise ValueError(f"this {type(self).__name__} is closed")
            try:
                again()
            except OSError as refused:
                raise error(f"running the BPF program {self.name}", refused) from None
            return int(struct.unpack_from("=I", attr, 4)[0])

        return run

    def attach_raw(self, tracepoint: str) -> Link:
        """Run at each hit of a tracepoint, with its arguments as the kernel passes them (`sched_switch`)."""
        name = ctypes.create_string_buffer(tracepoint.encode())
        try:
            return Link(bpf(Command.RAW_TRACEPOINT_OPEN, attributes("QIxxxx", address(name), self.fd)))
        except FileNotFoundError:
            raise BpfError(f"this kernel has no tracepoint {tracepoint}") from None
        except OSError as refused:
            raise error(f"attaching to the raw tracepoint {tracepoint}", refused) from None

    def attach(self, tracepoint: Tracepoint) -> Link:
        """Run at each hit of a tracepoint, on all CPUs, with its record as tracefs describes it."""
        # struct perf_event_attr as it was at first (PERF_ATTR_SIZE_VER0). The program runs for hits on every CPU, whichever
        # one the event is for: it hangs on the tracepoint, not on the event (perf_event_attach_bpf_prog).
        attr = attributes("IIQ48x", _PERF_TYPE_TRACEPOINT, 64, tracepoint.id)
        return self._attach_event(f"the tracepoint {tracepoint.name}", attr, pid=-1, cpu=min(os.sched_getaffinity(0)))

    def attach_own_faults(self) -> Link:
        """Run at each minor page fault that the calling thread takes in user mode; for programs of kind PERF_EVENT."""
        faults = (_PERF_TYPE_SOFTWARE, 64, _PERF_COUNT_SW_PAGE_FAULTS_MIN)
        attr = attributes("IIQQ16xQ16x", *faults, 1, _DISABLED_AND_USER_ONLY)  # a sample period of 1: every fault
        return self._attach_event("the page faults of this thread", attr, pid=0, cpu=-1)

    def _attach_event(self, what: str, attr: Buffer, pid: int, cpu: int) -> Link:
        try:
            link = Link(call(architecture().perf_event_open, attr, pid, cpu, -1, _PERF_FLAG_FD_CLOEXEC))
        except OSError as refused:
            raise error(f"opening {what}", refused) from None
        try:
            fcntl.ioctl(link.fd, _IOC_SET_BPF, self.fd)
            fcntl.ioctl(link.fd, _IOC_ENABLE, 0)
        except OSError as refused:
            link.close()
            raise error(f"attaching to {what}", refused) from None
        return link


def _rejection(kind: ProgramKind, code: bytes, name: str, refused: OSError, attach: tuple[int, int] | None) -> BpfError:
    log = verifier_log(kind, code, attach)
    lines = [line for line in log.splitlines() if line.strip() and not _BOOKKEEPING.match(line)]
    if not lines:
        return error(f"loading the BPF program {name}", refused)
    faulty = next((line for line in reversed(lines) if _AT_INSTRUCTION.match(line)), "")
    where = f" at {faulty.split(';', 1)[0].strip()!r}" if faulty else ""
    rejected = Rejected(f"the kernel's verifier refuses the program {name}{where}: {lines[-1]}", refused.errno or 0, log)
    rejected.add_note("The verifier's log ends so:\n" + "\n".join(lines[-_LOG_TAIL_LINES:]))
    rejected.add_note("The program around that place:\n" + _around(int(faulty.split(":")[0]) if faulty else 0, code))
    return rejected


def _around(number: int, code: bytes) -> str:
    near = (line for line in listing(code).splitlines() if abs(int(line.split(":")[0]) - number) <= _LISTED_AROUND)
    return "\n".join(near)
