"""The assembler plus what every program that reads kernel memory needs: probe reads, shared memory, arguments, loops."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from exhume.kernel.bpf.asm import R0, R1, R2, R3, Assembler, Loop, Place, Size
from exhume.kernel.bpf.features import HERE, Features
from exhume.kernel.bpf.instruction import Address, Helper, Register


class HasFd(Protocol):
    """A map, as far as a program is concerned."""

    @property
    def fd(self) -> int: ...


class Builder(Assembler):
    """Chooses the instructions that the kernel's features allow. All but `argument` spoil R0 to R5."""

    def __init__(self, features: Features = HERE) -> None:
        super().__init__()
        self.features = features
        self._slot: Address | None = None

    def argument(self, dst: Register, number: int) -> None:
        """Argument `number` (from 0) of a raw tracepoint; R1 must still be what the program was started with."""
        self.load(dst, R1 + 8 * number)

    def read(self, dst: Register, source: Place, size: Size = 8) -> None:
        """`dst` = what is at an address in the kernel, zero if the address is bad."""
        if self._slot is None:
            self._slot = self.stack(8)
        self.copy(self._slot, size, source)
        self.load(dst, self._slot, size)

    def copy(self, target: Place, size: int, source: Place) -> None:
        """Copy kernel memory to the stack or a map's value; zeros, and R0 below zero, if the address is bad."""
        self._copy(self.features.read_helper, target, size, source)

    def copy_string(self, target: Place, size: int, source: Place) -> None:
        """Copy up to the first NUL, at most `size` bytes, always ended by NUL; R0 = bytes with it, or below zero."""
        self._copy(self.features.read_string_helper, target, size, source)

    def lookup(self, of: HasFd, key: Place) -> None:
        """R0 = where the map keeps the value of the key that lies at `key`, or zero."""
        self.mov(R2, key)
        self.map_fd(R1, of.fd)
        self.call(Helper.map_lookup_elem)

    def address_of(self, dst: Register, block: HasFd) -> None:
        """`dst` = the memory of a Block (or of an array's first entry); a program without it ends here."""
        key = self.stack(8)
        self.store(key, 0, 4)
        self.lookup(block, key)
        with self.when(R0, "==", 0):
            self.exit(0)
        self.mov(dst, R0)

    @contextmanager
    def loop(self, counter: Register, count: int, *, unroll: bool | None = None) -> Iterator[Loop]:
        """As the assembler's; unrolled where the kernel has no bounded loops."""
        with super().loop(counter, count, unroll=not self.features.bounded_loops if unroll is None else unroll) as turn:
            yield turn

    def _copy(self, helper: Helper, target: Place, size: int, source: Place) -> None:
        if (target.base if isinstance(target, Address) else target) == R3:
            raise ValueError("R3 takes the source of a copy; keep the target in another register")
        self.mov(R3, source)
        self.mov(R1, target)
        self.mov(R2, size)
        self.call(helper)
