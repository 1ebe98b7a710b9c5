"""An assembler for BPF that reads like the program it makes: arithmetic, memory, labels, `when` and bounded loops."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

from exhume.kernel.bpf import instruction as bpf
from exhume.kernel.bpf.instruction import Address, Helper, Instruction, Register

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 = (Register(number) for number in range(11))

STACK_SIZE: Final = 512  # MAX_BPF_STACK in include/linux/filter.h

Place = Register | Address
Value = Register | int
Size = Literal[1, 2, 4, 8]
Condition = Literal["==", "!=", ">", ">=", "<", "<=", "s>", "s>=", "s<", "s<=", "&"]
"""Unsigned unless it begins with s; `&` holds when the two have a bit in common."""

_OPPOSITES: dict[Condition, Condition] = {
    "==": "!=",
    "!=": "==",
    ">": "<=",
    "<=": ">",
    ">=": "<",
    "<": ">=",
    "s>": "s<=",
    "s<=": "s>",
    "s>=": "s<",
    "s<": "s>=",
}


@dataclass(frozen=True, slots=True)
class Loop:
    """Labels to jump to from within a loop: its next turn, and what comes after it."""

    next: str
    done: str


class Assembler:
    """Instructions in the order of the calls that add them; `assemble` puts distances in place of labels."""

    def __init__(self) -> None:
        self._instructions: list[Instruction] = []
        self._jumps: dict[int, str] = {}
        self._labels: dict[str, int] = {}
        self._made = 0
        self._stack_used = 0

    def __len__(self) -> int:
        return len(self._instructions)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} instructions, {len(self._labels)} labels>"

    def assemble(self) -> bytes:
        if not self._instructions or self._instructions[-1].opcode not in (bpf.EXIT, bpf.GOTO):
            raise ValueError("a BPF program ends with exit() or a jump back")
        if len(self) in self._labels.values():
            raise ValueError("a label is placed behind the last instruction")
        return bpf.encode(self._linked())

    def listing(self) -> str:
        """The program so far, numbered as in the verifier's log; a jump to a label that is not placed yet goes to itself."""
        return bpf.listing(bpf.encode(self._linked(strict=False)))

    def append(self, other: "Assembler") -> None:
        """Add another program's instructions; its labels stay its own."""
        start, mark = len(self), self._new_label("appended")
        self._instructions += other._instructions
        self._labels |= {f"{mark}/{name}": start + at for name, at in other._labels.items()}
        self._jumps |= {start + at: f"{mark}/{name}" for at, name in other._jumps.items()}
        self._stack_used = max(self._stack_used, other._stack_used)

    # Values

    def mov(self, dst: Register, value: Place | int) -> None:
        """Copy a number of up to 64 bits, a register, or an address (which is a register and a sum)."""
        if isinstance(value, Address):
            if value.base != dst:
                self._arithmetic("=", dst, value.base)
            if value.offset:
                self.add(dst, value.offset)
        elif isinstance(value, Register) or -0x8000_0000 <= value <= 0x7FFF_FFFF:
            self._arithmetic("=", dst, value)
        else:
            self._load_64(dst, value)

    def add(self, dst: Register, value: Value) -> None:
        self._arithmetic("+=", dst, value)

    def sub(self, dst: Register, value: Value) -> None:
        self._arithmetic("-=", dst, value)

    def mul(self, dst: Register, value: Value) -> None:
        self._arithmetic("*=", dst, value)

    def div(self, dst: Register, value: Value) -> None:
        """Unsigned; by a register that is zero it gives zero."""
        self._divide("/=", dst, value)

    def mod(self, dst: Register, value: Value) -> None:
        self._divide("%=", dst, value)

    def bit_or(self, dst: Register, value: Value) -> None:
        self._arithmetic("|=", dst, value)

    def bit_and(self, dst: Register, value: Value) -> None:
        self._arithmetic("&=", dst, value)

    def bit_xor(self, dst: Register, value: Value) -> None:
        self._arithmetic("^=", dst, value)

    def shift_left(self, dst: Register, value: Value) -> None:
        self._shift("<<=", dst, value)

    def shift_right(self, dst: Register, value: Value) -> None:
        self._shift(">>=", dst, value)

    def shift_right_signed(self, dst: Register, value: Value) -> None:
        self._shift("s>>=", dst, value)

    def negate(self, dst: Register) -> None:
        self._arithmetic("neg", dst, 0)

    # Memory

    def load(self, dst: Register, source: Place, size: Size = 8) -> None:
        """Read from the stack, a map's value or the context; kernel memory needs a helper (see Builder.read)."""
        self._writable(dst)
        at = _address(source)
        self._add(Instruction(bpf.LDX | bpf.MEM | bpf.SIZES[size], dst.number, at.base.number, at.offset))

    def store(self, target: Place, value: Value, size: Size = 8) -> None:
        at = _address(target)
        if isinstance(value, Register):
            self._add(Instruction(bpf.STX | bpf.MEM | bpf.SIZES[size], at.base.number, value.number, at.offset))
        else:
            self._add(Instruction(bpf.ST | bpf.MEM | bpf.SIZES[size], at.base.number, 0, at.offset, value))

    def atomic_add(self, target: Place, value: Register, size: Literal[4, 8] = 8) -> None:
        at = _address(target)
        opcode = bpf.STX | bpf.ATOMIC | bpf.SIZES[size]
        self._add(Instruction(opcode, at.base.number, value.number, at.offset, bpf.OPERATIONS["+="]))

    def stack(self, size: int) -> Address:
        """Set bytes of the stack aside, aligned to eight, for as long as the program runs."""
        self._stack_used += -size // 8 * -8
        if size < 1 or self._stack_used > STACK_SIZE:
            raise ValueError(f"{size} more bytes of stack make {self._stack_used}: a program has {STACK_SIZE}")
        return R10 - self._stack_used

    def map_fd(self, dst: Register, fd: int) -> None:
        """The map behind a file descriptor, as helpers take it."""
        self._load_64(dst, fd, bpf.PSEUDO_MAP_FD)

    # The way through

    def call(self, helper: Helper | int) -> None:
        self._add(Instruction(bpf.CALL, immediate=int(helper)))

    def exit(self, value: int | None = None) -> None:
        if value is not None:
            self.mov(R0, value)
        self._add(Instruction(bpf.EXIT))

    def label(self, name: str) -> None:
        """Name the place where the next instruction goes."""
        if name in self._labels:
            raise ValueError(f"the label {name!r} is placed twice")
        self._labels[name] = len(self)

    def jump(self, label: str) -> None:
        self._jumps[len(self)] = label
        self._add(Instruction(bpf.GOTO))

    def jump_if(self, left: Register, condition: Condition, right: Value, label: str) -> None:
        self._jumps[len(self)] = label
        opcode = bpf.JMP | bpf.CONDITIONS[condition]
        if isinstance(right, Register):
            self._add(Instruction(opcode | bpf.REGISTER_SOURCE, left.number, right.number))
        else:
            self._add(Instruction(opcode, left.number, immediate=right))

    @contextmanager
    def when(self, left: Register, condition: Condition, right: Value) -> Iterator[None]:
        """What is added inside runs only if the condition holds."""
        after = self._new_label("after")
        if condition in _OPPOSITES:
            self.jump_if(left, _OPPOSITES[condition], right, after)
        else:
            inside = self._new_label("inside")
            self.jump_if(left, condition, right, inside)
            self.jump(after)
            self.label(inside)
        yield
        self.label(after)

    @contextmanager
    def loop(self, counter: Register, count: int, *, unroll: bool = False) -> Iterator[Loop]:
        """What is added inside runs `count` times, `counter` going from 0 to `count` - 1; the inside leaves it alone.

        Kernels before 5.3 refuse any jump backwards: `unroll` repeats the instructions instead.
        """
        if count < 1:
            raise ValueError(f"a loop runs at least once, not {count} times")
        turn = Loop(self._new_label("next"), self._new_label("done"))
        self.mov(counter, 0)
        start = len(self)
        top = self._new_label("top")
        self.label(top)
        yield turn
        self.label(turn.next)
        self.add(counter, 1)
        if unroll:
            self._repeat(start, count - 1)
        else:
            self.jump_if(counter, "<", count, top)
        self.label(turn.done)

    # Inside

    def _add(self, instruction: Instruction) -> None:
        self._instructions.append(instruction)

    def _new_label(self, name: str) -> str:
        self._made += 1
        return f".{name}{self._made}"

    def _repeat(self, start: int, times: int) -> None:
        """Add the instructions from `start` on once more and once more; labels placed among them belong to each copy."""
        end = len(self)
        body = self._instructions[start:end]
        jumps = {at: label for at, label in self._jumps.items() if start <= at < end}
        labels = {name: at for name, at in self._labels.items() if start <= at < end}
        for turn in range(1, times + 1):
            shift = turn * (end - start)
            self._instructions += body
            self._labels |= {f"{name}#{turn}": at + shift for name, at in labels.items()}
            self._jumps |= {at + shift: f"{to}#{turn}" if to in labels else to for at, to in jumps.items()}

    def _linked(self, *, strict: bool = True) -> list[Instruction]:
        linked = list(self._instructions)
        for at, label in self._jumps.items():
            target = self._labels.get(label)
            if target is None and strict:
                raise ValueError(f"instruction {at} jumps to the label {label!r}, which is never placed")
            linked[at] = replace(linked[at], offset=-1 if target is None else target - at - 1)
        return linked

    def _writable(self, dst: Register) -> None:
        if dst == R10:
            raise ValueError("R10 is the end of the stack and cannot be changed")

    def _arithmetic(self, operation: str, dst: Register, value: Value) -> None:
        self._writable(dst)
        opcode = bpf.ALU64 | bpf.OPERATIONS[operation]
        if isinstance(value, Register):
            self._add(Instruction(opcode | bpf.REGISTER_SOURCE, dst.number, value.number))
        else:
            self._add(Instruction(opcode, dst.number, immediate=value))

    def _divide(self, operation: str, dst: Register, value: Value) -> None:
        if value == 0:
            raise ValueError("division by zero")
        self._arithmetic(operation, dst, value)

    def _shift(self, operation: str, dst: Register, value: Value) -> None:
        if isinstance(value, int) and not 0 <= value <= 63:
            raise ValueError(f"a register of 64 bits cannot be shifted by {value}")
        self._arithmetic(operation, dst, value)

    def _load_64(self, dst: Register, value: int, source: int = 0) -> None:
        self._writable(dst)
        if not -(1 << 63) <= value < 1 << 64:
            raise ValueError(f"{value} does not fit into a register of 64 bits")
        self._add(Instruction(bpf.LOAD_64, dst.number, source, immediate=_signed(value)))
        self._add(Instruction(0, immediate=_signed(value >> 32)))


def _address(place: Place) -> Address:
    return place if isinstance(place, Address) else Address(place)


def _signed(value: int) -> int:
    """The lower 32 bits as the signed number that an instruction holds."""
    value &= 0xFFFF_FFFF
    return value - (1 << 32) if value >> 31 else value
