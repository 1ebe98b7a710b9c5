"""What this kernel's BPF can do, found by trying, never by version; each answer can be forced, so that fallbacks are tested."""

import ctypes
import errno
import os
from contextlib import suppress
from functools import cache
from typing import Final

from exhume.kernel.bpf import asm, privileges
from exhume.kernel.bpf.asm import R0, R1, R2, R3, R10, Assembler
from exhume.kernel.bpf.instruction import Helper
from exhume.kernel.bpf.syscall import (
    ENOTSUPP,
    BpfError,
    Command,
    MapKind,
    ProgramKind,
    address,
    attributes,
    bpf,
    create_map,
    error,
    load_program,
)

MMAPABLE: Final = 1 << 10  # BPF_F_MMAPABLE in include/uapi/linux/bpf.h

_REFUSALS = (errno.EINVAL, errno.EACCES, errno.EOPNOTSUPP, ENOTSUPP)


class Features:
    """What to use. Left alone, every property tries once per process, when it is first asked for; given, it is as given."""

    def __init__(
        self,
        *,
        probe_read_kernel: bool | None = None,
        bounded_loops: bool | None = None,
        mmapable_arrays: bool | None = None,
        test_run: bool | None = None,
        batch_lookup: bool | None = None,
    ) -> None:
        self._probe_read_kernel = probe_read_kernel
        self._bounded_loops = bounded_loops
        self._mmapable_arrays = mmapable_arrays
        self._test_run = test_run
        self._batch_lookup = batch_lookup

    @property
    def probe_read_kernel(self) -> bool:
        """Whether there are separate helpers for kernel memory (5.5, commit 6ae08ae3dea2)."""
        return _has_probe_read_kernel() if self._probe_read_kernel is None else self._probe_read_kernel

    @property
    def read_helper(self) -> Helper:
        return Helper.probe_read_kernel if self.probe_read_kernel else Helper.probe_read

    @property
    def read_string_helper(self) -> Helper:
        return Helper.probe_read_kernel_str if self.probe_read_kernel else Helper.probe_read_str

    @property
    def bounded_loops(self) -> bool:
        """Whether a program may jump backwards (5.3, commit 2589726d12a1)."""
        return _has_bounded_loops() if self._bounded_loops is None else self._bounded_loops

    @property
    def mmapable_arrays(self) -> bool:
        """Whether an array can be mapped into our memory (5.5, commit fc9702273e2e)."""
        return _has_mmapable_arrays() if self._mmapable_arrays is None else self._mmapable_arrays

    @property
    def test_run(self) -> bool:
        """Whether a raw tracepoint's program can be run on demand (5.10, commit 1b4d60ec162f)."""
        return _has_test_run() if self._test_run is None else self._test_run

    @property
    def batch_lookup(self) -> bool:
        """Whether many entries of a map can be read at once (5.6, commit cb4d03ab499d)."""
        return _has_batch_lookup() if self._batch_lookup is None else self._batch_lookup

    def __repr__(self) -> str:
        given = {name.lstrip("_"): value for name, value in vars(self).items() if value is not None}
        return f"Features({', '.join(f'{name}={value}' for name, value in given.items())})"


HERE: Final = Features()
"""The running kernel's, as found."""


def unavailable() -> str:
    """Why programs that read kernel memory cannot be had here, for people; empty if they can."""
    try:
        fd = _load(_trivial())
    except BpfError as failed:
        return str(failed)
    os.close(fd)
    if privileges.confidential():
        return "the kernel is locked down (lockdown=confidentiality): no program may read its memory"
    return ""


@cache
def _has_probe_read_kernel() -> bool:
    program = Assembler()
    program.mov(R3, 0)
    program.mov(R1, R10 - 8)
    program.mov(R2, 8)
    program.call(Helper.probe_read_kernel)
    program.exit(0)
    return _is_accepted(program)


@cache
def _has_bounded_loops() -> bool:
    program = Assembler()
    with program.loop(R0, 2):
        pass
    program.exit(0)
    return _is_accepted(program)


@cache
def _has_mmapable_arrays() -> bool:
    try:
        os.close(create_map(MapKind.ARRAY, 4, 8, 1, MMAPABLE))
    except OSError as refused:
        return _is_refusal("creating a BPF map", refused)
    return True


@cache
def _has_test_run() -> bool:
    fd = _load(_trivial())
    try:
        bpf(Command.PROG_TEST_RUN, attributes("I68x", fd))
    except OSError as refused:
        return _is_refusal("running a BPF program", refused)
    finally:
        os.close(fd)
    return True


@cache
def _has_batch_lookup() -> bool:
    try:
        fd = create_map(MapKind.HASH, 4, 4, 1)
    except OSError as refused:
        raise error("creating a BPF map", refused) from None
    room = ctypes.create_string_buffer(16)
    try:
        with suppress(FileNotFoundError):  # the map is empty: looked through, nothing there
            at = address(room)
            bpf(Command.MAP_LOOKUP_BATCH, attributes("QQQQIIQQ", 0, at, at + 4, at + 8, 1, fd, 0, 0))
    except OSError as refused:
        return _is_refusal("reading a BPF map", refused)
    finally:
        os.close(fd)
    return True


def _trivial() -> Assembler:
    program = Assembler()
    program.exit(0)
    return program


def _load(program: asm.Assembler) -> int:
    try:
        return load_program(ProgramKind.RAW_TRACEPOINT, program.assemble())
    except OSError as refused:
        raise error("loading a BPF program", refused) from None


def _is_accepted(program: asm.Assembler) -> bool:
    try:
        os.close(load_program(ProgramKind.RAW_TRACEPOINT, program.assemble()))
    except OSError as refused:
        return _is_refusal("loading a BPF program", refused)
    return True


def _is_refusal(what: str, refused: OSError) -> bool:
    """False for a kernel that does not know what was tried; any other error says nothing about the feature."""
    if refused.errno in _REFUSALS:
        return False
    raise error(what, refused) from None
