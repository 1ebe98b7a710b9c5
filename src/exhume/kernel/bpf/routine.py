"""A program that runs when we say so: by test-run, or on older kernels by a system call that only we make."""

import os
from typing import Final, Self

from exhume.kernel.bpf.asm import R1, R2, R6, Assembler
from exhume.kernel.bpf.builder import Builder
from exhume.kernel.bpf.features import HERE, Features
from exhume.kernel.bpf.maps import Block
from exhume.kernel.bpf.program import Link, Program
from exhume.kernel.bpf.syscall import BpfError, ProgramKind, architecture, call

# A program may be skipped at a hit when it is just running on the same CPU (bpf_prog.active in kernel/trace/bpf_trace.c).
_TRIES: Final = 100


class Routine:
    """Code that ends with exit() and talks through a Block; its registers are undefined when it starts.

    Where raw tracepoints cannot be test-run it hangs on `sys_enter` from the first run until it is closed, and lets pass
    all but one call: getppid(2) with a random number as argument, which it does not take and nobody else can know. Unlike
    a process id, that number is the same in every namespace.
    """

    def __init__(self, code: Assembler, *, name: str = "exhume", features: Features = HERE) -> None:
        self._link: Link | None = None
        self._runs: Block | None = None
        self._cookie = int.from_bytes(os.urandom(8), "little") >> 2 | 1 << 62
        if not features.test_run:
            self._runs = Block(8, features=features)
            code = _guarded(code, self._cookie, self._runs, features)
        try:
            self._program = Program(ProgramKind.RAW_TRACEPOINT, code, name)
        except BaseException:
            self._close_runs()
            raise
        self._run = self._program.runner() if features.test_run else None

    def run(self) -> None:
        """Run it once, to its end."""
        if self._run is not None:
            self._run()
        elif self._runs is not None:
            self._run_by_system_call(self._runs)

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
        self._program.close()
        self._close_runs()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run_by_system_call(self, runs: Block) -> None:
        if self._link is None:
            self._link = self._program.attach_raw("sys_enter")
        before = runs.read()
        for _ in range(_TRIES):
            call(architecture().getppid, self._cookie)
            if runs.read() != before:
                return
        raise BpfError(f"the BPF program {self._program.name} is attached to sys_enter, but the kernel does not run it")

    def _close_runs(self) -> None:
        if self._runs is not None:
            self._runs.close()


def _guarded(code: Assembler, cookie: int, runs: Block, features: Features) -> Assembler:
    """The code behind a door: ends unless this is our own call, else counts it. sys_enter has (struct pt_regs *, long id)."""
    p = Builder(features)
    p.argument(R6, 0)
    p.argument(R1, 1)
    p.jump_if(R1, "!=", architecture().getppid, "pass")
    p.read(R1, R6 + architecture().first_argument)
    p.mov(R2, cookie)
    p.jump_if(R1, "!=", R2, "pass")
    p.address_of(R6, runs)
    p.mov(R1, 1)
    p.atomic_add(R6, R1)
    p.jump("code")
    p.label("pass")
    p.exit(0)
    p.label("code")
    p.append(code)
    return p
