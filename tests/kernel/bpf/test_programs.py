"""Programs on the real kernel: refused, run on demand, attached, walking kernel memory, and gone without a trace."""

import errno
import mmap
import os
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE

import pytest

from exhume.kernel.bpf import (
    R0,
    R1,
    R2,
    R3,
    R4,
    R6,
    R7,
    R8,
    Block,
    BpfError,
    Btf,
    Builder,
    Features,
    Hash,
    Helper,
    Link,
    Program,
    ProgramKind,
    Rejected,
    Routine,
    Tracefs,
)
from exhume.kernel.bpf.syscall import Command, attributes, bpf
from tests.kernel.bpf.needs import OLD_KERNEL, each_fallback, needs_bpf

pytestmark = needs_bpf

GETPPID = {"x86_64": 110, "aarch64": 173}[os.uname().machine]
NO_TEST_RUN = Features(test_run=False)


def word(block: Block, index: int = 0) -> int:
    return int(struct.unpack("=Q", block.read(8 * index, 8))[0])


def thread_in_the_kernels_words(features: Features | None = None) -> int:
    """What get_current_pid_tgid says of this thread; os.getpid() differs inside a pid namespace."""
    features = features or Features()
    with Block(8, features=features) as block:
        p = Builder(features)
        p.address_of(R6, block)
        p.call(Helper.get_current_pid_tgid)
        p.store(R6, R0)
        p.exit(0)
        with Routine(p, features=features) as routine:
            routine.run()
        return word(block)


def counter(block: Block, thread: int) -> Builder:
    """Counts this thread's getppid(2); both kinds of tracepoint have the number of the system call eight bytes in."""
    p = Builder()
    p.load(R7, R1 + 8)
    p.call(Helper.get_current_pid_tgid)
    p.mov(R1, thread)
    with p.when(R0, "==", R1), p.when(R7, "==", GETPPID):
        p.address_of(R6, block)
        p.mov(R1, 1)
        p.atomic_add(R6, R1)
    p.exit(0)
    return p


# Refused


def test_a_refused_program_comes_back_with_the_verifiers_reason_and_the_place() -> None:
    p = Builder()
    p.argument(R6, 0)
    p.load(R0, R6 + 8)
    p.exit(0)
    with pytest.raises(Rejected) as refused:
        Program(ProgramKind.RAW_TRACEPOINT, p, "careless")
    assert "careless at '1: (79) r0 = *(u64 *)(r6 +8)': R6 invalid mem access" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert refused.value.errno == errno.EACCES
    assert refused.value.log.count("\n") > 2
    notes = "\n".join(refused.value.__notes__)
    assert "R6 invalid mem access" in notes
    assert p.listing() in notes


def test_the_notes_of_a_refusal_hold_the_end_of_a_long_log() -> None:
    p = Builder()
    with p.loop(R7, 500):
        p.mov(R1, 1)
    p.load(R0, R1)
    p.exit()
    with pytest.raises(Rejected, match="R1 invalid mem access") as refused:
        Program(ProgramKind.RAW_TRACEPOINT, p)
    tail = refused.value.__notes__[0]
    assert len(tail.splitlines()) < 30 < len(refused.value.log.splitlines())
    assert "R1 invalid mem access" in tail


def test_an_unknown_helper_is_refused_by_name() -> None:
    p = Builder()
    p.call(60_000)
    p.exit(0)
    with pytest.raises(Rejected, match="60000"):
        Program(ProgramKind.RAW_TRACEPOINT, p)


# Run


@each_fallback
def test_a_routine_runs_exactly_as_often_as_it_is_told(features: Features) -> None:
    with Block(8, features=features) as block:
        p = Builder(features)
        p.address_of(R6, block)
        p.load(R1, R6)
        p.add(R1, 1)
        p.store(R6, R1)
        p.exit(0)
        with Routine(p, features=features) as routine:
            for times in range(1, 101):
                os.getppid()
                routine.run()
                assert word(block) == times


@each_fallback
def test_a_routine_runs_in_the_calling_thread(features: Features) -> None:
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(thread_in_the_kernels_words(features))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seen.append(thread_in_the_kernels_words(features))
    assert len(set(seen)) == 4
    assert len({thread >> 32 for thread in seen}) == 1


@each_fallback
def test_a_walk_by_btf_and_probe_reads_finds_this_process_and_its_parents(features: Features) -> None:
    btf = Btf.vmlinux()
    comm = btf.member("task_struct", "comm")
    with Block(32 * 32, features=features) as block:
        p = Builder(features)
        p.address_of(R6, block)
        p.call(Helper.get_current_task)
        p.read(R7, R0 + btf.offset("task_struct", "group_leader"))
        with p.loop(R8, 32) as turn:
            p.copy(R6, 4, R7 + btf.offset("task_struct", "tgid"))
            p.copy_string(R6 + 8, comm.size, R7 + comm.offset)
            p.read(R1, R7 + btf.offset("task_struct", "tgid"), 4)
            p.jump_if(R1, "==", 0, turn.done)
            p.read(R7, R7 + btf.offset("task_struct", "real_parent"))
            p.add(R6, 32)
        p.exit(0)
        with Routine(p, name="parents", features=features) as routine:
            routine.run()
        walked = [struct.unpack("=I4x16s8x", block.read(at, 32)) for at in range(0, 32 * 32, 32)]
    pids = [pid for pid, _ in walked[: [pid for pid, _ in walked].index(0)]]
    if thread_in_the_kernels_words() >> 32 == os.getpid():
        assert pids == list(_ancestors(os.getpid()))
    assert pids[0] == thread_in_the_kernels_words() >> 32
    assert walked[0][1].split(b"\0")[0] == Path("/proc/self/comm").read_bytes().rstrip(b"\n")


def _ancestors(pid: int) -> Iterator[int]:
    while pid:
        yield pid
        found = re.search(r"^PPid:\s*(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        assert found
        pid = int(found[1])


@each_fallback
def test_a_bad_address_reads_as_zero(features: Features) -> None:
    with Block(16, features=features) as block:
        block.write(b"\xff" * 16)
        p = Builder(features)
        p.address_of(R6, block)
        p.mov(R7, 0xDEAD)
        p.read(R8, R7 + 8)
        p.store(R6, R8)
        p.copy(R6 + 8, 8, R7)
        p.exit(0)
        with Routine(p, features=features) as routine:
            routine.run()
        assert block.read() == bytes(16)


@pytest.mark.parametrize("unroll", [False, True])
def test_loops_nest_skip_and_break_alike_unrolled_and_not(unroll: bool) -> None:
    expected = 0
    for outer in range(6):
        if outer == 1:
            continue
        for inner in range(5):
            if inner == outer:
                break
            if inner != 2:
                expected += 10 * outer + inner
    with Block(8) as block:
        p = Builder()
        p.address_of(R6, block)
        with p.loop(R7, 6, unroll=unroll) as outside:
            p.jump_if(R7, "==", 1, outside.next)
            with p.loop(R8, 5, unroll=unroll) as inside:
                p.jump_if(R8, "==", R7, inside.done)
                with p.when(R8, "!=", 2):
                    p.mov(R1, R7)
                    p.mul(R1, 10)
                    p.add(R1, R8)
                    p.load(R2, R6)
                    p.add(R2, R1)
                    p.store(R6, R2)
        p.exit(0)
        with Routine(p) as routine:
            routine.run()
        assert word(block) == expected


def test_arithmetic_is_that_of_64_bits() -> None:
    with Block(8 * 9) as block:
        p = Builder()
        p.address_of(R6, block)
        steps = (
            (p.sub, 5, (100 - 5)),
            (p.mul, 7, 700),
            (p.div, 7, 14),
            (p.mod, 7, 2),
            (p.bit_or, 3, 103),
            (p.bit_and, 0x24, 0x24),
            (p.bit_xor, 1, 101),
            (p.shift_left, 40, 100 << 40),
            (p.shift_right, 2, 25),
        )
        for index, (step, operand, _) in enumerate(steps):
            p.mov(R1, 100)
            step(R1, operand)
            p.store(R6 + 8 * index, R1)
        p.exit(0)
        with Routine(p) as routine:
            routine.run()
        assert struct.unpack("=9Q", block.read()) == tuple(result for _, _, result in steps)


def test_a_program_run_by_test_run_gets_its_arguments_and_gives_its_result() -> None:
    if not Features().test_run:
        pytest.skip("this kernel cannot test-run raw tracepoints")
    p = Builder()
    p.argument(R0, 0)
    p.argument(R2, 2)
    p.add(R0, R2)
    p.exit()
    with Program(ProgramKind.RAW_TRACEPOINT, p) as program:
        assert program.run(40, 9, 2) == 42
        with pytest.raises(BpfError, match="running the BPF program exhume failed"):
            program.run(1)


def test_every_forced_fallback_is_really_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with Block(8, features=OLD_KERNEL) as block:
        assert "bpf-map" not in Path("/proc/self/maps").read_text()
        p = Builder(OLD_KERNEL)
        p.address_of(R6, block)
        with p.loop(R7, 3):
            p.read(R8, R6)
        p.copy_string(R6, 8, R8)
        p.exit(0)
        assert set(re.findall(r"call (\w+)", p.listing())) == {"bpf_map_lookup_elem", "bpf_probe_read", "bpf_probe_read_str"}
        assert "goto pc-" not in p.listing()
        with Routine(p, features=OLD_KERNEL) as routine:
            before = set(_open_files())
            routine.run()
            attached = {name: file for name, file in _open_files().items() if name not in before}
            assert len(attached) == 1
            assert "perf_event" in next(iter(attached.values()))
    monkeypatch.setattr(Hash, "_all_in_batches", None)
    with Hash(8, 8, 1, features=OLD_KERNEL) as table:
        assert table.snapshot() == {}


def counting(block: Block, features: Features) -> Builder:
    """Counts its own runs."""
    p = Builder(features)
    p.address_of(R6, block)
    p.mov(R1, 1)
    p.atomic_add(R6, R1)
    p.exit(0)
    return p


def fault(times: int) -> None:
    """Take minor page faults in this thread."""
    with mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        for _ in range(times):
            page.madvise(mmap.MADV_DONTNEED)
            page[0]


@contextmanager
def run_counts() -> Iterator[Callable[[int], int]]:
    """How often the kernel has run the program of a file descriptor, for any reason; it counts while this is open."""
    try:
        switch = bpf(Command.ENABLE_STATS, attributes("I", 0))
    except OSError as refused:
        pytest.skip(f"BPF_ENABLE_STATS (5.8): {refused}")
    try:
        yield lambda fd: int(re.findall(r"^run_cnt:\s*(\d+)$", Path(f"/proc/self/fdinfo/{fd}").read_text(), re.MULTILINE)[0])
    finally:
        os.close(switch)


_BYSTANDER = """
import mmap, os
page = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
print("there", flush=True)
while input():
    for _ in range(10000):
        page.madvise(mmap.MADV_DONTNEED)
        page[0]
        os.getppid()
    print("done", flush=True)
"""


def test_without_test_run_no_other_process_or_thread_runs_the_program() -> None:
    with (
        Block(8, features=NO_TEST_RUN) as block,
        Routine(counting(block, NO_TEST_RUN), features=NO_TEST_RUN) as routine,
        run_counts() as runs,
        subprocess.Popen([sys.executable, "-c", _BYSTANDER], stdin=PIPE, stdout=PIPE, text=True) as bystander,
        ThreadPoolExecutor(1) as other,
    ):
        assert bystander.stdin is not None
        assert bystander.stdout is not None
        assert bystander.stdout.readline() == "there\n"
        other.submit(fault, 1).result()
        routine.run()
        (program,) = [int(fd) for fd, what in _open_files().items() if "bpf-prog" in what]
        before = runs(program)
        fault(100)
        assert 100 <= runs(program) - before < 1000, "this thread's own faults do reach the program"
        before = runs(program)
        bystander.stdin.write("go\n")
        bystander.stdin.flush()
        assert bystander.stdout.readline() == "done\n"
        other.submit(fault, 10000).result()
        during = runs(program) - before
        bystander.stdin.write("\n")
        bystander.stdin.close()
        assert during < 1000, "20,000 faults and 10,000 system calls were not ours"
        assert word(block) == 1


def test_without_test_run_a_fault_between_two_runs_does_not_run_the_code() -> None:
    with Block(8, features=NO_TEST_RUN) as block, Routine(counting(block, NO_TEST_RUN), features=NO_TEST_RUN) as routine:
        for times in range(1, 11):
            routine.run()
            fault(100)
            assert word(block) == times


def test_without_test_run_threads_take_turns_and_a_forked_child_runs_it_too() -> None:
    with Block(8, features=NO_TEST_RUN) as block, Routine(counting(block, NO_TEST_RUN), features=NO_TEST_RUN) as routine:
        with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as another:
            for turn in range(3):
                one.submit(routine.run).result()
                another.submit(routine.run).result()
                routine.run()
                assert word(block) == 3 * (turn + 1)
        child = os.fork()
        if not child:
            with suppress(BaseException):
                routine.run()
            os._exit(word(block))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 10


def test_without_test_run_a_program_that_the_kernel_does_not_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    attach = Program.attach_own_faults

    def of_a_thread_that_ended(program: Program) -> Link:
        with ThreadPoolExecutor(1) as ended:
            return ended.submit(attach, program).result()

    monkeypatch.setattr(Program, "attach_own_faults", of_a_thread_that_ended)
    with (
        Block(8, features=NO_TEST_RUN) as block,
        Routine(counting(block, NO_TEST_RUN), name="idle", features=NO_TEST_RUN) as routine,
        pytest.raises(BpfError, match="the BPF program idle is attached to the faults of this thread, but does not run"),
    ):
        routine.run()


# Attached


def test_a_raw_tracepoint_counts_our_own_system_calls_until_it_is_closed() -> None:
    thread = thread_in_the_kernels_words()
    with Block(8) as block, Program(ProgramKind.RAW_TRACEPOINT, counter(block, thread)) as program:
        with program.attach_raw("sys_enter"):
            before = word(block)
            for _ in range(1000):
                os.getppid()
            during = word(block)
        after = word(block)
        for _ in range(1000):
            os.getppid()
        assert during - before == 1000
        assert word(block) == after


def test_a_tracepoint_counts_our_own_system_calls_until_it_is_closed() -> None:
    thread = thread_in_the_kernels_words()
    with (
        Tracefs() as tracefs,
        Block(8) as block,
        Program(ProgramKind.TRACEPOINT, counter(block, thread)) as program,
    ):
        with program.attach(tracefs.tracepoint("raw_syscalls", "sys_enter")):
            before = word(block)
            for _ in range(1000):
                os.getppid()
            assert word(block) - before == 1000
        after = word(block)
        for _ in range(1000):
            os.getppid()
        assert word(block) == after


def test_a_tracepoint_is_seen_on_every_cpu_and_its_fields_are_where_tracefs_says() -> None:
    affinity = os.sched_getaffinity(0)
    thread = thread_in_the_kernels_words()
    with Tracefs() as tracefs, Hash(8, 8, 64) as seen:
        tracepoint = tracefs.tracepoint("raw_syscalls", "sys_enter")
        field = tracepoint.field("args")
        p = Builder()
        p.mov(R6, R1)
        p.call(Helper.get_current_pid_tgid)
        p.mov(R1, thread)
        with p.when(R0, "==", R1):
            p.call(Helper.get_smp_processor_id)
            cpu, argument = p.stack(8), p.stack(8)
            p.store(cpu, R0)
            p.load(R1, R6 + field.offset)
            p.store(argument, R1)
            p.map_fd(R1, seen.fd)
            p.mov(R2, cpu)
            p.mov(R3, argument)
            p.mov(R4, 0)
            p.call(Helper.map_update_elem)
        p.exit(0)
        with Program(ProgramKind.TRACEPOINT, p) as program:
            try:
                with program.attach(tracepoint):
                    for number in affinity:
                        os.sched_setaffinity(0, {number})
                        os.getppid()
            finally:
                os.sched_setaffinity(0, affinity)
        assert {struct.unpack("=Q", key)[0] for key in seen.snapshot()} == affinity


def test_a_tracepoint_that_does_not_exist_is_named() -> None:
    p = Builder()
    p.exit(0)
    with (
        Program(ProgramKind.RAW_TRACEPOINT, p) as program,
        pytest.raises(BpfError, match="this kernel has no tracepoint no_such_thing"),
    ):
        program.attach_raw("no_such_thing")


# Gone


def _ours(kind: str) -> set[int]:
    """Ids of the programs or maps that our file descriptors hold."""
    found = set()
    for name in os.listdir("/proc/self/fdinfo"):
        try:
            text = Path("/proc/self/fdinfo", name).read_text()
        except OSError:
            continue
        found |= {int(number) for number in re.findall(rf"^{kind}_id:\s*(\d+)$", text, re.MULTILINE)}
    return found


def _alive(command: Command) -> set[int]:
    ids: set[int] = set()
    last = 0
    while True:
        attr = attributes("IIII", last, 0, 0, 0)
        try:
            bpf(command, attr)
        except FileNotFoundError:
            return ids
        (last,) = struct.unpack_from("=I", attr, 4)
        ids.add(last)


def _open_files() -> dict[str, str]:
    return {name: os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if _is_open(name)}


def _is_open(name: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{name}")


@pytest.mark.parametrize("features", [Features(), OLD_KERNEL], ids=["as found", "old kernel"])
def test_nothing_is_left_when_all_is_closed(features: Features) -> None:
    files, mounts = _open_files(), Path("/proc/self/mountinfo").read_bytes()
    programs, maps = _ours("prog"), _ours("map")
    with Tracefs() as tracefs, Block(64, features=features) as block, Hash(8, 8, 8) as _:
        p = Builder(features)
        p.address_of(R6, block)
        p.exit(0)
        with (
            Routine(p, features=features) as routine,
            Program(ProgramKind.TRACEPOINT, p) as program,
            program.attach(tracefs.tracepoint("raw_syscalls", "sys_exit")),
        ):
            routine.run()
            our_programs, our_maps = _ours("prog") - programs, _ours("map") - maps
            assert len(our_programs) == 2
            assert len(our_maps) >= 2
            assert our_programs <= _alive(Command.PROG_GET_NEXT_ID)
            assert our_maps <= _alive(Command.MAP_GET_NEXT_ID)
    assert _open_files() == files
    assert Path("/proc/self/mountinfo").read_bytes() == mounts
    deadline = time.monotonic() + 120  # the kernel frees them after a grace period
    while time.monotonic() < deadline:
        left = our_programs & _alive(Command.PROG_GET_NEXT_ID) | our_maps & _alive(Command.MAP_GET_NEXT_ID)
        if not left:
            break
        time.sleep(0.01)
    assert not left


def test_nothing_is_left_of_what_could_not_be_made() -> None:
    files = _open_files()
    for features in (Features(), OLD_KERNEL):
        p = Builder(features)
        p.load(R0, R1 + 4096)
        p.exit(0)
        with pytest.raises(Rejected):
            Routine(p, features=features)
    p = Builder()
    p.exit(0)
    with (
        Program(ProgramKind.RAW_TRACEPOINT, p) as wrong_kind,
        Tracefs() as tracefs,
        pytest.raises(BpfError, match="attaching to the tracepoint raw_syscalls:sys_enter failed"),
    ):
        wrong_kind.attach(tracefs.tracepoint("raw_syscalls", "sys_enter"))
    assert _open_files() == files
