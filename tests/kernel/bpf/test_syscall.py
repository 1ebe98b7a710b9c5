import errno
import os
import resource

import pytest

from exhume.kernel.bpf import syscall
from exhume.kernel.bpf.syscall import BpfError, Buffer, Command, MapKind


def test_an_architecture_without_numbers_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.uname_result(("Linux", "node", "6.1.0", "#1", "riscv64"))
    monkeypatch.setattr(os, "uname", lambda: other)
    with pytest.raises(BpfError, match="made for x86_64 and aarch64 here, not for riscv64"):
        syscall.architecture.__wrapped__()


def test_locked_memory_is_allowed_only_while_a_kernel_that_counts_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    limits: list[tuple[int, int]] = []

    def counts_locked_memory(_: Command, __: Buffer) -> int:
        limits.append(resource.getrlimit(resource.RLIMIT_MEMLOCK))
        if len(limits) == 1:
            raise PermissionError(errno.EPERM, "")
        return 77

    monkeypatch.setattr(syscall, "bpf", counts_locked_memory)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (4096, before[1]))
    try:
        assert syscall.create_map(MapKind.ARRAY, 4, 8, 1) == 77
        assert limits[0] == (4096, before[1])
        assert limits[1][0] == limits[1][1] in (before[1], resource.RLIM_INFINITY)
        assert resource.getrlimit(resource.RLIMIT_MEMLOCK) == (4096, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)


@pytest.mark.parametrize(("interruptions", "tries"), [(0, 1), (3, 4), (100, 5)])
def test_a_call_that_a_signal_disturbs_is_made_again_a_few_times(
    monkeypatch: pytest.MonkeyPatch, interruptions: int, tries: int
) -> None:
    made = 0

    def disturbed(*_: object) -> int:
        nonlocal made
        made += 1
        if made <= interruptions:
            raise BlockingIOError(errno.EAGAIN, "")
        return 5

    monkeypatch.setattr(syscall, "call", disturbed)
    if interruptions < 5:
        assert syscall.bpf(Command.PROG_LOAD, syscall.attributes("I", 0)) == 5
    else:
        with pytest.raises(BlockingIOError):
            syscall.bpf(Command.PROG_LOAD, syscall.attributes("I", 0))
    assert made == tries


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOSYS, "CONFIG_BPF_SYSCALL"),
        (errno.EPERM, "x is not permitted: "),
        (syscall.ENOTSUPP, "not supported by this kernel"),
        (errno.ENOMEM, "x failed: Cannot allocate memory"),
    ],
)
def test_errors_say_what_failed_and_why(number: int, said: str) -> None:
    found = syscall.error("x", OSError(number, ""))
    assert said in str(found)
    assert found.errno == number
