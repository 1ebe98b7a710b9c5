import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.kernel.bpf.asm import R0, R1, R2, R6, R7, R10, STACK_SIZE, Assembler
from exhume.kernel.bpf.instruction import Address, Helper, Instruction, Register, decode, encode, listing

signed_32 = st.integers(-(1 << 31), (1 << 31) - 1)
instructions = st.builds(
    Instruction, st.integers(0, 255), st.integers(0, 15), st.integers(0, 15), st.integers(-(1 << 15), (1 << 15) - 1), signed_32
)


@given(st.lists(instructions))
def test_instructions_survive_encoding_and_decoding(some: list[Instruction]) -> None:
    assert decode(encode(some)) == some


@given(st.binary(max_size=160).map(lambda raw: raw[: len(raw) // 8 * 8]))
def test_any_bytes_survive_decoding_and_encoding_and_can_be_listed(code: bytes) -> None:
    assert encode(decode(code)) == code
    assert listing(code).count("\n") <= len(code) // 8


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_a_number_moved_into_a_register_is_that_number(value: int) -> None:
    p = Assembler()
    p.mov(R1, value)
    p.exit(0)
    first, second = decode(p.assemble())[:2]
    if len(p) == 3:
        assert first.immediate == value
    else:
        assert (second.immediate & 0xFFFF_FFFF) << 32 | first.immediate & 0xFFFF_FFFF == value % (1 << 64)


def test_the_listing_is_in_the_words_of_the_verifier() -> None:
    p = Assembler()
    p.mov(R6, R10 - 8)
    p.store(R6, 7, 4)
    p.load(R1, R6 + 16, 2)
    p.atomic_add(R6 + 8, R1)
    p.map_fd(R1, 5)
    p.mov(R2, 1 << 40)
    p.call(Helper.map_lookup_elem)
    p.jump_if(R0, "s>=", R2, "out")
    p.negate(R0)
    p.shift_right_signed(R0, 3)
    p.label("out")
    p.exit(0)
    assert p.listing().splitlines() == [
        "0: r6 = r10",
        "1: r6 += -8",
        "2: *(u32 *)(r6 +0) = 7",
        "3: r1 = *(u16 *)(r6 +16)",
        "4: lock *(u64 *)(r6 +8) += r1",
        "5: r1 = map[fd 5]",
        "7: r2 = 0x10000000000 ll",
        "9: call bpf_map_lookup_elem#1",
        "10: if r0 s>= r2 goto pc+2",
        "11: r0 = -r0",
        "12: r0 s>>= 3",
        "13: r0 = 0",
        "14: exit",
    ]


def test_registers_and_numbers_make_addresses() -> None:
    assert Address(R6, 8) == R6 + 8
    assert Address(Register(10), -5) == R10 - 8 + 4 - 1
    assert repr(R6) == "R6"


def test_when_jumps_over_its_inside() -> None:
    p = Assembler()
    with p.when(R1, "<", 5):
        p.mov(R0, 1)
    with p.when(R1, "&", 4):
        p.mov(R0, 2)
    p.exit()
    assert p.listing().splitlines() == [
        "0: if r1 >= 5 goto pc+1",
        "1: r0 = 1",
        "2: if r1 & 4 goto pc+1",
        "3: goto pc+1",
        "4: r0 = 2",
        "5: exit",
    ]


def test_an_unrolled_loop_only_jumps_forward() -> None:
    p = Assembler()
    with p.loop(R7, 3, unroll=True) as turn:
        p.jump_if(R1, "==", 0, turn.done)
        p.jump_if(R1, "==", 1, turn.next)
        p.add(R1, 1)
    p.exit(0)
    jumps = [i for i in decode(p.assemble()) if i.opcode & 7 == 5 and i.opcode != 0x95]
    assert [jump.offset for jump in jumps] == [11, 1, 7, 1, 3, 1]


def test_appended_code_keeps_its_labels_to_itself() -> None:
    one, two = Assembler(), Assembler()
    for p in (one, two):
        p.jump_if(R1, "==", 0, "out")
        p.mov(R0, 1)
        p.label("out")
        p.exit(0)
    alone = two.listing().splitlines()
    one.append(two)
    assert [line.split(": ")[1] for line in one.listing().splitlines()[4:]] == [line.split(": ")[1] for line in alone]


def test_stack_is_handed_out_in_eights_and_ends() -> None:
    p = Assembler()
    assert p.stack(1) == R10 - 8
    assert p.stack(16) == R10 - 24
    p.stack(STACK_SIZE - 24)
    with pytest.raises(ValueError, match=r"a program has 512"):
        p.stack(1)


def test_what_cannot_be_encoded_is_refused_at_once() -> None:
    p = Assembler()
    with pytest.raises(ValueError, match="offset"):
        p.load(R1, R6 + 0x8000)
    with pytest.raises(ValueError, match="immediate"):
        p.add(R1, 1 << 31)
    with pytest.raises(ValueError, match="immediate"):
        p.store(R6, 1 << 31)
    with pytest.raises(ValueError, match="64 bits"):
        p.mov(R1, 1 << 64)
    with pytest.raises(ValueError, match="shifted by 64"):
        p.shift_left(R1, 64)
    with pytest.raises(ValueError, match="division by zero"):
        p.mod(R1, 0)
    with pytest.raises(ValueError, match="cannot be changed"):
        p.mov(R10, 0)
    assert len(p) == 0


def test_mistakes_with_labels_and_ends_are_named() -> None:
    p = Assembler()
    p.jump("nowhere")
    assert p.listing() == "0: goto pc-1"
    with pytest.raises(ValueError, match="'nowhere', which is never placed"):
        p.assemble()
    p.label("nowhere")
    with pytest.raises(ValueError, match="placed twice"):
        p.label("nowhere")
    with pytest.raises(ValueError, match="behind the last"):
        p.assemble()
    p.mov(R0, 0)
    with pytest.raises(ValueError, match=r"ends with exit"):
        p.assemble()


def test_a_jump_too_far_is_refused() -> None:
    p = Assembler()
    p.jump("far")
    for _ in range(1 << 15):
        p.mov(R0, 0)
    p.label("far")
    p.exit()
    with pytest.raises(ValueError, match="offset"):
        p.assemble()


def test_half_an_instruction_is_refused() -> None:
    with pytest.raises(ValueError, match="9 bytes"):
        decode(bytes(9))
