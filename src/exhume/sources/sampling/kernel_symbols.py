"""/proc/kallsyms: the names of the kernel's functions, those of its modules and those of BPF programs.

Text of 10 MB and more becomes a few arrays and one run of bytes; the padding in front of functions (`__pfx_`), half of all
symbols on some kernels, is left out.
"""

import io
import os
import re
from array import array
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from exhume.host.root import Root, unreadable
from exhume.sources.sampling.demangle import function_name
from exhume.sources.sampling.memory import give_back
from exhume.text import decode

_FILE: Final = "proc/kallsyms"
_LARGEST: Final = 128 << 20
_CHUNK: Final = 1 << 20
_GATHER: Final = 1 << 13
# What begins so is no code: FUNCTION_PADDING of arch/x86/include/asm/linkage.h, and where kCFI keeps a type.
# On arm64 modules have mapping symbols, $x and $d, which mark where code and data begin (AAELF64, 5.5.5).
NO_CODE: Final = (b"__pfx_", b"__cfi_", b"$")
# include/asm-generic/sections.h: these mark where code ends.
_ENDS: Final = frozenset((b"_etext", b"_einittext", b"__init_end", b"_end"))
_MARK: Final = re.compile(rb"_(text|start|end|begin)$|\.(cold|part|isra|constprop)")
# kallsyms has no sizes, so a function goes on to the next one. The last of a module has none after it, and there the guess is
# 16 pages, which few functions of the kernel exceed.
_LONGEST: Final = 1 << 20
_LONGEST_LAST: Final = 1 << 16
_MOST_MODULES: Final = 0xFFFF

# The value of each hexadecimal digit, 255 for all other bytes; whether a byte is a kind that nm(1) has for code: text, global
# or local, and weak.
_DIGITS: Final = np.array([int(chr(c), 16) if chr(c) in "0123456789abcdefABCDEF" else 255 for c in range(256)], np.uint8)
_CODE: Final = np.array([chr(c) in "TtWw" for c in range(256)])
_NEWLINE, _SPACE, _TAB = b"\n \t"


@dataclass(frozen=True, slots=True)
class Symbols:
    """Lines of kallsyms: where each function begins, its kind, and where its name is in `names` (module and all)."""

    starts: NDArray[np.uint64]
    kinds: NDArray[np.uint8]
    lengths: NDArray[np.int32]
    names: bytes


def parse(text: bytes) -> Symbols:
    """Whole lines of `ADDRESS KIND NAME`, with a tab and `[MODULE]` after those of modules; what does not parse is left out."""
    raw = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(raw == _NEWLINE)
    starts = np.append(0, ends[:-1] + 1) if len(ends) else ends
    width = max(text.find(b" "), 1)  # 16 on 64-bit machines, the same in every line
    fits = (ends - starts > width + 3) & (width <= 16)
    starts, ends = starts[fits], ends[fits]
    wanted = _CODE[raw[starts + width + 1]] & (raw[starts + width] == _SPACE) & (raw[starts + width + 2] == _SPACE)
    for prefix in NO_CODE:
        same = ends - starts > width + 3 + len(prefix)
        for at, byte in enumerate(prefix):
            same &= raw[np.minimum(starts + width + 3 + at, len(raw) - 1)] == byte
        wanted &= ~same
    starts, ends = starts[wanted], ends[wanted]
    addresses = np.zeros(len(starts), np.uint64)
    good = np.ones(len(starts), bool)
    for at in range(min(width, 16)):
        digits = _DIGITS[raw[starts + at]]
        good &= digits != 255
        addresses = addresses << np.uint64(4) | digits
    starts, ends, addresses = starts[good] + width, ends[good], addresses[good]
    lengths = (ends - starts - 3).astype(np.int32)
    return Symbols(addresses, raw[starts + 1], lengths, _gather(raw, starts + 3, lengths))


def _gather(raw: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int32]) -> bytes:
    """Pieces of a run of bytes, one after the other: without an object for each, whose memory would stay with us."""
    found = []
    for first in range(0, len(starts), _GATHER):
        sizes = lengths[first : first + _GATHER].astype(np.int64)
        shifts = starts[first : first + _GATHER] - (np.cumsum(sizes) - sizes)
        found.append(raw[np.repeat(shifts, sizes) + np.arange(sizes.sum())].tobytes())
    return b"".join(found)


class KernelSymbols:
    """Functions by address. An index stays what it is for good; what is found follows what is loaded."""

    def __init__(self, root: Root, text: bytes | None = None) -> None:
        """`text` is what stands for all of kallsyms, if not all of it is wanted."""
        self._root = root
        self._text = text
        self._modules: list[str] = ["[kernel]"]
        self._module_numbers: dict[bytes, int] = {b"": 0}
        self._names = bytearray()
        self._offsets = array("I", [0])
        self._module_of = array("H")
        self._end_marks: list[int] = []
        self._own = 0
        """How many are the kernel's own. They come first, sorted by address, and do not change while it runs."""
        self._loaded: dict[tuple[int, bytes], int] = {}
        """The indexes of those of modules that were ever seen: address, name with module."""
        self._starts: NDArray[np.uint64] = np.empty(0, np.uint64)
        self._sizes: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._indexes: NDArray[np.int32] = np.empty(0, np.int32)
        self.reason = ""
        """Why there are no names; "" if there are."""
        self.refresh()

    def refresh(self) -> None:
        """Read it again: modules and BPF programs come and go."""
        first = not self._own
        try:
            own, loaded = self._read(first)
        except OSError as error:
            if first:
                self.reason = str(unreadable(_FILE, error))
            return
        if first:
            if not any(part.starts.any() for part in own):
                self.reason = "/proc/kallsyms shows no addresses: kernel.kptr_restrict hides them, or it takes root"
                return
            self.reason = ""
            self._keep_own(own)
        self._view(loaded)
        give_back()  # 8 MB of 12, where this was written

    def find(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The index of the function that holds each address; -1 where none does."""
        if not len(self._starts):
            return np.full(len(addresses), -1, np.int64)
        at = self._starts.searchsorted(addresses, "right") - 1
        inside = (at >= 0) & (addresses - self._starts[at] < self._sizes[at])
        return np.where(inside, self._indexes[at], -1).astype(np.int64)

    @property
    def spans(self) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.int32]]:
        """Where each function begins, how long it is, and its index; by address."""
        return self._starts, self._sizes, self._indexes

    def name(self, index: int) -> str:
        return function_name(bytes(self._names[self._offsets[index] : self._offsets[index + 1]]))

    def module(self, index: int) -> str:
        """The module as the kernel has it; [kernel] for its own, bpf for BPF programs."""
        return self._modules[self._module_of[index]]

    @property
    def nbytes(self) -> int:
        arrays = (self._starts, self._sizes, self._indexes)
        return len(self._names) + 4 * len(self._offsets) + 2 * len(self._module_of) + sum(each.nbytes for each in arrays)

    def _read(self, first: bool) -> tuple[list[Symbols], list[Symbols]]:
        """The kernel's own symbols (only the first time), and those of modules, which come after them in the file."""
        own: list[Symbols] = []
        loaded: list[Symbols] = []
        rest = b""
        left = _LARGEST
        with self._open() as file:
            while left > 0 and (chunk := file.read(min(left, _CHUNK))):
                left -= len(chunk)
                text = rest + chunk
                cut = text.rfind(b"\n") + 1
                text, rest = text[:cut], text[cut:]
                border = 0
                if not loaded:
                    tab = text.find(b"\t")
                    border = len(text) if tab < 0 else text.rfind(b"\n", 0, tab) + 1
                if first and border:
                    own.append(parse(text[:border]))
                if border < len(text):
                    loaded.append(parse(text[border:]))
        return own, loaded

    def _open(self) -> BinaryIO:
        """The kernel gives a page at a time."""
        return (
            open(self._root.open(_FILE, os.O_RDONLY), "rb", buffering=1 << 16) if self._text is None else io.BytesIO(self._text)
        )

    def _keep_own(self, parts: list[Symbols]) -> None:
        """Of several names for one address the plainest is kept."""
        starts = np.concatenate([part.starts for part in parts])
        kinds = np.concatenate([part.kinds for part in parts])
        names = b"".join(part.names for part in parts)
        offsets = np.append(0, np.cumsum(np.concatenate([part.lengths for part in parts])))
        order = np.argsort(starts, kind="stable")
        order = order[starts[order] > 0]
        ordered = starts[order]
        first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        chosen = order[first]
        counts = np.diff(np.append(first, len(order)))
        for which in np.flatnonzero(counts > 1).tolist():
            aliases = order[first[which] : first[which] + counts[which]].tolist()
            chosen[which] = min(
                aliases, key=lambda line: _plainness(names[offsets[line] : offsets[line + 1]], int(kinds[line]))
            )
        begins, lengths = offsets[chosen], (offsets[chosen + 1] - offsets[chosen]).astype(np.int32)
        self._names = bytearray(_gather(np.frombuffer(names, np.uint8), begins, lengths))
        self._offsets = array("I", np.append(0, np.cumsum(lengths)).astype(np.uint32).tobytes())
        self._module_of = array("H", bytes(2 * len(chosen)))
        short = np.flatnonzero(lengths <= max(map(len, _ENDS))).tolist()
        self._end_marks = [at for at in short if names[begins[at] : begins[at] + lengths[at]] in _ENDS]
        self._own = len(chosen)
        self._starts, self._indexes = starts[chosen], np.arange(len(chosen), dtype=np.int32)

    def _keep(self, name: bytes, module: bytes) -> int:
        """A new index."""
        number = self._module_numbers.get(module)
        if number is None:
            number = len(self._modules)
            if number < _MOST_MODULES:
                self._modules.append(decode(module))
                self._module_numbers[module] = number
            else:
                number = 0
        index = len(self._module_of)
        if name in _ENDS:
            self._end_marks.append(index)
        self._names += name
        self._offsets.append(len(self._names))
        self._module_of.append(number)
        return index

    def _view(self, loaded: list[Symbols]) -> None:
        """Sort what there is now, and say where each ends."""
        lines: dict[int, tuple[bytes, int]] = {}
        for part in loaded:
            offset = 0
            columns = part.starts.tolist(), part.kinds.tolist(), part.lengths.tolist()
            for start, kind, length in zip(*columns, strict=True):
                line = part.names[offset : offset + length]
                offset += length
                if start not in lines or _plainness(line, kind) < _plainness(*lines[start]):
                    lines[start] = line, kind
        indexes = []
        for start, (line, _) in lines.items():
            if (start, line) not in self._loaded:
                name, _, module = line.partition(b"\t")
                self._loaded[start, line] = self._keep(name, module.strip(b"[]"))
            indexes.append(self._loaded[start, line])
        own = self._starts[self._indexes < self._own]
        starts = np.concatenate([own, np.array(list(lines), np.uint64)])
        order = np.argsort(starts, kind="stable")
        self._starts = starts[order]
        self._indexes = np.concatenate([np.arange(self._own, dtype=np.int32), np.array(indexes, np.int32)])[order]
        modules = np.frombuffer(self._module_of, np.uint16)[self._indexes]
        last = np.append(modules[1:] != modules[:-1], True)
        sizes = np.minimum(np.append(np.diff(self._starts), _LONGEST_LAST), np.where(last, _LONGEST_LAST, _LONGEST))
        ends = np.zeros(len(self._module_of), bool)
        ends[self._end_marks] = True
        sizes[ends[self._indexes]] = 0
        self._sizes = sizes.astype(np.uint32)


def _plainness(name: bytes, kind: int) -> tuple[bool, bool, int, bool, int]:
    """Of names for one address the smallest is what people know: real before marks and parts, `memcpy` before `__memcpy`."""
    underscores = len(name) - len(name.lstrip(b"_"))
    return name in _ENDS, _MARK.search(name) is not None, underscores, chr(kind).islower(), len(name)
