"""BPF without a compiler, libbpf or headers: the kernel's types are read from its BTF, programs are assembled in Python,
loaded by bpf(2), and gone when their file descriptors are. What the kernel lacks is replaced (see `features`).

    >>> from exhume.kernel.bpf import R0, R6, Block, Btf, Builder, Helper, Routine
    >>> comm = Btf.vmlinux().member("task_struct", "comm")
    >>> with Block(comm.size) as block:
    ...     p = Builder()
    ...     p.address_of(R6, block)            # R6 = memory that we and the program share
    ...     p.call(Helper.get_current_task)    # R0 = struct task_struct * of this very thread
    ...     p.copy_string(R6, comm.size, R0 + comm.offset)
    ...     p.exit(0)
    ...     with Routine(p) as routine:
    ...         routine.run()
    ...     name = block.read().split(b"\\0")[0]

To be read in this order: `instruction` and `asm` (the language), `btf` (where things are), `builder` (reading the
kernel's memory), `maps` (memory shared with programs), `program` and `routine` (running them), `tracefs` (what to attach
them to). `syscall` and `privileges` are below all that.
"""

from exhume.kernel.bpf.asm import R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, Assembler
from exhume.kernel.bpf.btf import Btf, BtfError, Member
from exhume.kernel.bpf.builder import Builder
from exhume.kernel.bpf.features import Features, unavailable
from exhume.kernel.bpf.instruction import Address, Helper, Register
from exhume.kernel.bpf.iterator import Tasks
from exhume.kernel.bpf.maps import Array, Block, Hash, PerCpuArray, PerCpuHash, StackTraces
from exhume.kernel.bpf.program import Link, Program
from exhume.kernel.bpf.routine import Routine
from exhume.kernel.bpf.syscall import BpfError, ProgramKind, Rejected
from exhume.kernel.bpf.tracefs import Tracefs, Tracepoint

__all__ = [
    "R0",
    "R1",
    "R2",
    "R3",
    "R4",
    "R5",
    "R6",
    "R7",
    "R8",
    "R9",
    "R10",
    "Address",
    "Array",
    "Assembler",
    "Block",
    "BpfError",
    "Btf",
    "BtfError",
    "Builder",
    "Features",
    "Hash",
    "Helper",
    "Link",
    "Member",
    "PerCpuArray",
    "PerCpuHash",
    "Program",
    "ProgramKind",
    "Register",
    "Rejected",
    "Routine",
    "StackTraces",
    "Tasks",
    "Tracefs",
    "Tracepoint",
    "unavailable",
]
