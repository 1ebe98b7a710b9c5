"""One BPF instruction: registers, addresses, its eight bytes, and its text in the notation of the kernel's verifier."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

# Classes, sizes, modes and sources of an opcode: include/uapi/linux/bpf_common.h and bpf.h
LD, LDX, ST, STX, ALU, JMP, JMP32, ALU64 = range(8)
MEM, ATOMIC = 0x60, 0xC0
REGISTER_SOURCE: Final = 0x08
LOAD_64: Final = 0x18
PSEUDO_MAP_FD: Final = 1
SIZES: Final = {4: 0x00, 2: 0x08, 1: 0x10, 8: 0x18}
OPERATIONS: Final = {
    "+=": 0x00,
    "-=": 0x10,
    "*=": 0x20,
    "/=": 0x30,
    "|=": 0x40,
    "&=": 0x50,
    "<<=": 0x60,
    ">>=": 0x70,
    "neg": 0x80,
    "%=": 0x90,
    "^=": 0xA0,
    "=": 0xB0,
    "s>>=": 0xC0,
}
GOTO, CALL, EXIT = 0x05, 0x85, 0x95
CONDITIONS: Final = {
    "==": 0x10,
    ">": 0x20,
    ">=": 0x30,
    "&": 0x40,
    "!=": 0x50,
    "s>": 0x60,
    "s>=": 0x70,
    "<": 0xA0,
    "<=": 0xB0,
    "s<": 0xC0,
    "s<=": 0xD0,
}

_SIZE_NAMES = {code: f"u{8 * size}" for size, code in SIZES.items()}
_OPERATION_NAMES = {code: name for name, code in OPERATIONS.items()}
_CONDITION_NAMES = {code: name for name, code in CONDITIONS.items()}
_LAYOUT = struct.Struct("<BBhi")


class Helper(IntEnum):
    """Functions of the kernel that a program may call (enum bpf_func_id in include/uapi/linux/bpf.h)."""

    map_lookup_elem = 1
    map_update_elem = 2
    map_delete_elem = 3
    probe_read = 4
    ktime_get_ns = 5
    get_smp_processor_id = 8
    get_current_pid_tgid = 14
    get_current_comm = 16
    get_stackid = 27
    get_current_task = 35
    probe_read_str = 45
    get_current_cgroup_id = 80
    probe_read_kernel = 113
    probe_read_kernel_str = 115
    seq_write = 127


@dataclass(frozen=True, slots=True)
class Address:
    """A register and a distance from it in bytes, as in `R10 - 8`."""

    base: "Register"
    offset: int = 0

    def __add__(self, distance: int) -> "Address":
        return Address(self.base, self.offset + distance)

    def __sub__(self, distance: int) -> "Address":
        return Address(self.base, self.offset - distance)


@dataclass(frozen=True, slots=True)
class Register:
    """R0 takes results, R1 to R5 arguments (a call spoils them), R6 to R9 keep their value, R10 is the end of the stack."""

    number: int

    def __repr__(self) -> str:
        return f"R{self.number}"

    def __add__(self, distance: int) -> Address:
        return Address(self, distance)

    def __sub__(self, distance: int) -> Address:
        return Address(self, -distance)


@dataclass(frozen=True, slots=True)
class Instruction:
    """What the kernel calls struct bpf_insn. A 64-bit immediate takes two, the second with opcode 0."""

    opcode: int
    dst: int = 0
    src: int = 0
    offset: int = 0
    immediate: int = 0

    def __post_init__(self) -> None:
        _check("opcode", self.opcode, 0, 0xFF)
        _check("destination register", self.dst, 0, 15)
        _check("source register", self.src, 0, 15)
        _check("offset", self.offset, -0x8000, 0x7FFF)
        _check("immediate", self.immediate, -0x8000_0000, 0x7FFF_FFFF)

    def encode(self) -> bytes:
        return _LAYOUT.pack(self.opcode, self.dst | self.src << 4, self.offset, self.immediate)

    @classmethod
    def decode(cls, raw: bytes) -> Self:
        opcode, registers, offset, immediate = _LAYOUT.unpack(raw)
        return cls(opcode, registers & 15, registers >> 4, offset, immediate)

    def __str__(self) -> str:
        return _text(self) or (
            f".opcode {self.opcode:#04x} dst={self.dst} src={self.src} offset={self.offset} immediate={self.immediate}"
        )


def encode(instructions: Iterable[Instruction]) -> bytes:
    return b"".join(instruction.encode() for instruction in instructions)


def decode(code: bytes) -> list[Instruction]:
    if len(code) % _LAYOUT.size:
        raise ValueError(f"{len(code)} bytes are not a whole number of BPF instructions")
    return [Instruction.decode(code[at : at + _LAYOUT.size]) for at in range(0, len(code), _LAYOUT.size)]


def listing(code: bytes) -> str:
    """The program as text, numbered as in the verifier's log."""
    return "\n".join(f"{number}: {text}" for number, text in _lines(decode(code)))


def _lines(instructions: list[Instruction]) -> Iterator[tuple[int, str]]:
    following = iter(enumerate(instructions))
    for number, instruction in following:
        if instruction.opcode == LOAD_64 and number + 1 < len(instructions):
            _, upper = next(following)
            yield number, _wide(instruction, upper)
        else:
            yield number, str(instruction)


def _wide(lower: Instruction, upper: Instruction) -> str:
    if lower.src == PSEUDO_MAP_FD:
        return f"r{lower.dst} = map[fd {lower.immediate}]"
    return f"r{lower.dst} = {(upper.immediate & 0xFFFF_FFFF) << 32 | lower.immediate & 0xFFFF_FFFF:#x} ll"


def _text(of: Instruction) -> str | None:
    group = of.opcode & 7
    if group in (ALU, ALU64):
        return _arithmetic(of, "r" if group == ALU64 else "w")
    if group in (JMP, JMP32):
        return _jump(of, "r" if group == JMP else "w")
    memory = f"*({_SIZE_NAMES[of.opcode & 0x18]} *)(r{of.src if group == LDX else of.dst} {of.offset:+d})"
    if group == LDX and of.opcode & 0xE0 == MEM:
        return f"r{of.dst} = {memory}"
    if group == ST and of.opcode & 0xE0 == MEM:
        return f"{memory} = {of.immediate}"
    if group == STX and of.opcode & 0xE0 == MEM:
        return f"{memory} = r{of.src}"
    if group == STX and of.opcode & 0xE0 == ATOMIC and of.immediate == OPERATIONS["+="]:
        return f"lock {memory} += r{of.src}"
    return None


def _arithmetic(of: Instruction, letter: str) -> str | None:
    operation = _OPERATION_NAMES.get(of.opcode & 0xF0)
    if operation is None or of.offset:
        return None
    if operation == "neg":
        return f"{letter}{of.dst} = -{letter}{of.dst}"
    return f"{letter}{of.dst} {operation} {_operand(of, letter)}"


def _jump(of: Instruction, letter: str) -> str | None:
    if of.opcode == GOTO:
        return f"goto pc{of.offset:+d}"
    if of.opcode == EXIT:
        return "exit"
    if of.opcode == CALL and not of.src:
        known = of.immediate in Helper.__members__.values()
        return f"call bpf_{Helper(of.immediate).name}#{of.immediate}" if known else f"call #{of.immediate}"
    condition = _CONDITION_NAMES.get(of.opcode & 0xF0)
    if condition is None:
        return None
    return f"if {letter}{of.dst} {condition} {_operand(of, letter)} goto pc{of.offset:+d}"


def _operand(of: Instruction, letter: str) -> str:
    return f"{letter}{of.src}" if of.opcode & REGISTER_SOURCE else str(of.immediate)


def _check(what: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ValueError(f"the {what} of a BPF instruction goes from {lowest} to {highest}, not to {value}")
