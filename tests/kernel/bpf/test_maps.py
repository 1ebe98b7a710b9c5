import errno
import os
import struct
from pathlib import Path

import pytest

from exhume.kernel.bpf import (
    R0,
    R1,
    R2,
    R3,
    R6,
    Array,
    Block,
    BpfError,
    Builder,
    Features,
    Hash,
    Helper,
    PerCpuArray,
    PerCpuHash,
    Program,
    ProgramKind,
    Routine,
    StackTraces,
)
from exhume.kernel.bpf.maps import EXIST, NO_EXIST, possible_cpus
from tests.kernel.bpf.needs import each_fallback, needs_bpf

pytestmark = needs_bpf


def key(number: int) -> bytes:
    return struct.pack("=Q", number)


@each_fallback
def test_a_hash_keeps_finds_and_forgets(features: Features) -> None:
    with Hash(8, 4, 100, features=features) as table:
        assert table.lookup(key(1)) is None
        assert table.snapshot() == {}
        for number in range(100):
            assert table.update(key(number), struct.pack("=I", number * number))
        assert table.lookup(key(9)) == struct.pack("=I", 81)
        assert table.snapshot() == {key(n): struct.pack("=I", n * n) for n in range(100)}
        assert table.delete(key(9))
        assert not table.delete(key(9))
        assert key(9) not in table.snapshot()
        assert len(table.snapshot()) == 99


def test_a_large_hash_is_read_in_several_batches() -> None:
    with Hash(8, 1024, 5000) as table:
        for number in range(5000):
            table.update(key(number), key(number) * 128)
        assert table.snapshot() == {key(n): key(n) * 128 for n in range(5000)}


def test_a_hash_says_whether_an_update_was_done() -> None:
    with Hash(8, 8, 1) as table:
        assert not table.update(key(1), key(5), EXIST)
        assert table.update(key(1), key(5), NO_EXIST)
        assert not table.update(key(1), key(6), NO_EXIST)
        assert table.lookup(key(1)) == key(5)
        with pytest.raises(BpfError, match="HASH map") as full:
            table.update(key(2), key(5))
        assert full.value.errno == errno.E2BIG


def test_an_lru_hash_drops_the_oldest_instead_of_refusing() -> None:
    with Hash(8, 8, 64, lru=True) as table:
        for number in range(1000):
            assert table.update(key(number), key(number))
        assert 0 < len(table.snapshot()) <= 64
        assert table.lookup(key(999)) == key(999)


@each_fallback
def test_an_array_is_all_there_from_the_beginning(features: Features) -> None:
    with Array(12, 5, features=features) as array:
        assert array.snapshot() == dict.fromkeys(range(5), bytes(12))
        array.update(3, b"twelve bytes")
        assert array.lookup(3) == b"twelve bytes"
        assert array.lookup(5) is None
        with pytest.raises(BpfError):
            array.delete(3)


@each_fallback
@pytest.mark.parametrize("lru", [False, True])
def test_a_per_cpu_hash_has_a_value_for_each_cpu(features: Features, lru: bool) -> None:
    values = tuple(struct.pack("=IB", cpu, 7) for cpu in range(possible_cpus()))
    with PerCpuHash(8, 5, 10, lru=lru, features=features) as table:
        table.update(key(1), values)
        table.update(key(2), values[::-1])
        assert table.lookup(key(1)) == values
        assert table.snapshot() == {key(1): values, key(2): values[::-1]}


@each_fallback
def test_a_per_cpu_array_counts_on_the_cpu_where_the_program_runs(features: Features) -> None:
    before = os.sched_getaffinity(0)
    with PerCpuArray(8, 2, features=features) as counters:
        p = Builder(features)
        p.address_of(R6, counters)
        p.load(R1, R6)
        p.add(R1, 1)
        p.store(R6, R1)
        p.exit(0)
        with Routine(p, features=features) as routine:
            try:
                for cpu in before:
                    os.sched_setaffinity(0, {cpu})
                    for _ in range(cpu + 1):
                        routine.run()
            finally:
                os.sched_setaffinity(0, before)
        counted = counters.snapshot()
    assert {cpu: struct.unpack("=Q", counted[0][cpu])[0] for cpu in before} == {cpu: cpu + 1 for cpu in before}
    assert not any(any(value) for value in counted[1])


def test_stack_traces_hold_kernel_addresses_of_our_own_call() -> None:
    with StackTraces(32, 16) as stacks, Block(8) as block:
        p = Builder()
        p.mov(R6, R1)
        p.map_fd(R2, stacks.fd)
        p.mov(R1, R6)
        p.mov(R3, 0)
        p.call(Helper.get_stackid)
        p.mov(R6, R0)
        number = p.stack(8)
        p.store(number, R6)
        p.address_of(R6, block)
        p.load(R1, number)
        p.store(R6, R1)
        p.exit(0)
        with Program(ProgramKind.RAW_TRACEPOINT, p) as program, program.attach_raw("sys_enter"):
            os.getppid()
        (stack_id,) = struct.unpack("=q", block.read())
        if stack_id < 0:
            pytest.skip(f"this kernel gave no stack: {os.strerror(-stack_id)}")
        chain = stacks.lookup(stack_id)
        assert chain
        assert all(address >> 47 for address in chain)
        assert stack_id in stacks.snapshot()
        assert stacks.delete(stack_id)
        with pytest.raises(TypeError):
            stacks.update(stack_id, chain)


@each_fallback
def test_a_block_is_read_and_written_in_part(features: Features) -> None:
    with Block(5000, features=features) as block:
        assert block.read() == bytes(5000)
        block.write(b"end", 4997)
        block.write(b"begin")
        assert block.read(4996) == b"\0end"
        assert block.read(1, 5) == b"egin\0"
        for offset, size in ((4998, 3), (-1, 1), (6000, 0)):
            with pytest.raises(ValueError, match="not within"):
                block.read(offset, size)
        with pytest.raises(ValueError, match="not within"):
            block.write(b"xx", 4999)


def test_keys_and_values_of_the_wrong_length_are_refused() -> None:
    with Hash(8, 8, 1) as table:
        with pytest.raises(ValueError, match="a key of this map has 8 bytes, not 3"):
            table.lookup(b"abc")
        with pytest.raises(ValueError, match="a value of this map has 8 bytes, not 3"):
            table.update(key(1), b"abc")


def test_a_closed_map_says_so() -> None:
    table = Hash(8, 8, 1)
    table.close()
    table.close()
    with pytest.raises(ValueError, match="this Hash is closed"):
        table.lookup(key(1))


def test_an_impossible_map_is_an_error_for_people() -> None:
    with pytest.raises(BpfError, match="creating a BPF HASH map of 0 entries with 8 bytes each failed"):
        Hash(8, 8, 0)


def test_possible_cpus_are_counted_over_gaps(tmp_path: Path) -> None:
    file = tmp_path / "possible"
    file.write_text("0-3,8,10-11\n")
    assert possible_cpus(str(file)) == 7
    file.write_text("\n")
    with pytest.raises(BpfError, match="how many CPUs"):
        possible_cpus(str(file))
