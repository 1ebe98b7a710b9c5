"""A program that runs when we ask: by test-run, or on older kernels by a page fault of the calling thread."""

import mmap
import threading
from typing import Final, Self

from exhume.kernel.bpf.asm import R1, R6, Assembler
from exhume.kernel.bpf.builder import Builder
from exhume.kernel.bpf.features import HERE, Features
from exhume.kernel.bpf.maps import Block
from exhume.kernel.bpf.program import Link, Program
from exhume.kernel.bpf.syscall import BpfError, ProgramKind

# The kernel skips a program while another one runs on the same CPU (bpf_prog_active in kernel/events/core.c).
_TRIES: Final = 100


class Routine:
    """Code that ends with exit() and shares memory through a Block; its registers are undefined when it starts.

    Call run() from one thread at a time; it need not be the thread that made the routine.
    """

    def __init__(self, code: Assembler, *, name: str = "exhume", features: Features = HERE) -> None:
        self._by_fault: _ByFault | None = None
        if features.test_run:
            self._program = Program(ProgramKind.RAW_TRACEPOINT, code, name)
            self._run = self._program.runner()
        else:
            self._by_fault = _ByFault(code, name, features)

    def run(self) -> None:
        """Run it once, to its end."""
        if self._by_fault is not None:
            self._by_fault.run()
        else:
            self._run()

    def close(self) -> None:
        (self._by_fault or self._program).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _ByFault:
    """Runs the code when the calling thread takes a page fault, on kernels that cannot test-run it.

    The program is attached to a perf event that counts the minor faults of one thread (BPF_PROG_TYPE_PERF_EVENT, 4.9, commit
    0515e5999a46), so no other thread ever runs it. To run the code, arm it and read a page that is not mapped. The read maps
    the zero page: nothing is allocated. The program disarms itself first, so any other fault of this thread passes, and one
    that comes between arming and the read is as good as the read. The kernel runs it in an RCU read section, with preemption
    off and interrupts on (bpf_overflow_handler).

    While the event is open, page faults of all processes take a few percent longer: perf_sw_event looks whether one is meant.
    Their system calls do not (bench/run walk-bystander).
    """

    def __init__(self, code: Assembler, name: str, features: Features) -> None:
        self._link: Link | None = None
        self._thread = 0
        self._armed = Block(8, features=features)
        try:
            self._program = Program(ProgramKind.PERF_EVENT, _guarded(code, self._armed, features), name)
        except BaseException:
            self._armed.close()
            raise
        self._page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def run(self) -> None:
        self._attach()
        self._armed.write(_ARMED)
        for _ in range(_TRIES):
            self._page.madvise(mmap.MADV_DONTNEED)
            self._page[0]
            if self._armed.read() != _ARMED:
                return
        self._armed.write(_DISARMED)
        raise BpfError(f"the BPF program {self._program.name} is attached to the faults of this thread, but does not run")

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        self._page.close()
        self._program.close()
        self._armed.close()

    def _attach(self) -> None:
        """The event belongs to a thread: another thread, or a child after fork(2), gets its own."""
        thread = threading.get_native_id()
        if self._thread == thread:
            return
        if self._link is not None:
            self._link.close()
        self._link, self._thread = None, 0
        self._link, self._thread = self._program.attach_own_faults(), thread


_ARMED: Final = (1).to_bytes(8, "little")
_DISARMED: Final = bytes(8)


def _guarded(code: Assembler, armed: Block, features: Features) -> Assembler:
    """The code, run only when armed, and then once."""
    p = Builder(features)
    p.address_of(R6, armed)
    p.load(R1, R6)
    with p.when(R1, "==", 0):
        p.exit(0)
    p.store(R6, 0)
    p.append(code)
    return p
