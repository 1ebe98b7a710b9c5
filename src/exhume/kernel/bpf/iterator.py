"""A program that the kernel runs once for each task while we read what it writes (5.8, commit eaaacd23910f).

The kernel holds a reference to the task while the program looks at it, so that nothing it points at goes away.
"""

import os
from typing import Final, Self

from exhume.kernel.bpf.asm import R0, R1, R6, R7, Assembler
from exhume.kernel.bpf.btf import Btf
from exhume.kernel.bpf.program import Link, Program
from exhume.kernel.bpf.syscall import BpfError, Command, ProgramKind, attributes, bpf, error

_TRACE_ITER: Final = 28  # BPF_TRACE_ITER of enum bpf_attach_type
_TARGET: Final = "bpf_iter_task"
_CHUNK: Final = 1 << 16
_LARGEST: Final = 64 << 20


class Tasks:
    """Reads all tasks: what the program wrote about each, one after the other."""

    def __init__(self, code: Assembler, btf: Btf, *, name: str = "exhume") -> None:
        """The code begins with `begin`."""
        number = btf.function(_TARGET)
        if number is None:
            raise BpfError("this kernel has no BPF iterator over tasks (5.8)")
        self._program = Program(ProgramKind.TRACING, code, name, (_TRACE_ITER, number))
        try:
            self._link = Link(bpf(Command.LINK_CREATE, attributes("IIII", self._program.fd, 0, _TRACE_ITER, 0)))
        except OSError as refused:
            self._program.close()
            raise error("attaching a BPF iterator over tasks", refused) from None

    @staticmethod
    def begin(code: Assembler, btf: Btf) -> None:
        """R6 = the struct seq_file to write to, R7 = the task; spoils R0 and R1. The last call comes without a task."""
        code.load(R0, R1)  # struct bpf_iter__task: meta, task
        code.load(R7, R1 + 8)
        with code.when(R7, "==", 0):
            code.exit(0)
        code.load(R6, R0 + btf.offset("bpf_iter_meta", "seq"))

    def read(self) -> bytes:
        try:
            fd = bpf(Command.ITER_CREATE, attributes("II", self._link.fd, 0))
        except OSError as refused:
            raise error("reading a BPF iterator over tasks", refused) from None
        pieces: list[bytes] = []
        size = 0
        try:
            while size < _LARGEST and (piece := os.read(fd, _CHUNK)):
                pieces.append(piece)
                size += len(piece)
        except OSError as refused:
            raise error("reading a BPF iterator over tasks", refused) from None
        finally:
            os.close(fd)
        return b"".join(pieces)

    def close(self) -> None:
        self._link.close()
        self._program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
