"""Images: the files and JITs whose code runs, and which of their functions are known by name."""

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from exhume.sources.sampling.records import Mapped
from exhume.sources.sampling.user_symbols import Function, Image
from exhume.text import decode

# Mappings that no file stands behind, or one that says nothing: code made at run time (set_vma_anon_name, memfd, shmem).
_MADE = (b"//anon", b"[anon", b"[heap]", b"[stack", b"/memfd:", b"/dev/zero", b"/SYSV", b"anon_inode:")
MOST_IMAGES = 1 << 15


class Functions:
    """Functions of one image that were asked for: [start, end) and their names; looked up by many addresses at once."""

    __slots__ = ("_arrays", "_ends", "_starts", "ids", "names")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self.names: list[str] = []
        self.ids: list[int] = []
        """The frame that stands for the function; 0 if there is none yet."""
        self._arrays: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def add(self, function: Function) -> None:
        first, last = bisect_left(self._starts, function.start), bisect_left(self._starts, function.end)
        if last == first + 1 and (self._starts[first], self._ends[first]) == (function.start, function.end):
            if self.names[first] != function.name:
                self.names[first], self.ids[first] = function.name, 0
            return
        # What was there before is gone, and asked for again where something of it is left: a JIT has put this over it.
        if first and self._ends[first - 1] > function.start:
            self._ends[first - 1] = function.start
        self._starts[first:last], self._ends[first:last] = [function.start], [function.end]
        self.names[first:last], self.ids[first:last] = [function.name], [0]
        self._arrays = None

    def find(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where each is in `names` and `ids`; -1 for what was not asked for yet."""
        if not self._starts:
            return np.full(len(offsets), -1, dtype=np.int64)
        if self._arrays is None:
            self._arrays = np.array(self._starts, dtype=np.int64), np.array(self._ends, dtype=np.int64)
        starts, ends = self._arrays
        at = np.searchsorted(starts, offsets, side="right") - 1
        return np.where((at >= 0) & (offsets < ends[np.maximum(at, 0)]), at, -1)

    def forget(self) -> None:
        self.ids = [0] * len(self.ids)


class Images:
    """Every image by a number. 0 is none."""

    def __init__(self, vdso: bool = True, build_ids: Mapping[bytes, bytes] | None = None, left: bool = False) -> None:
        """`vdso`: it is the one of this machine's kernel. `build_ids` of files by path, where somebody wrote them down. `left`:
        processes may have ended since, and what a JIT left of its names is theirs."""
        self._vdso = vdso
        self._left = left
        self._build_ids = build_ids if build_ids is not None else {}
        self._renewed = 0
        self._numbers: dict[tuple[object, ...], int] = {}
        self._files: dict[tuple[bytes, int, tuple[int, int], bytes], int] = {}
        self._images: list[Image] = [Image("none", b"", (0, 0), 0)]
        self._functions: list[Functions] = [Functions()]
        self._modules: list[str] = [""]

    def locate(self, mapped: Mapped) -> int:
        _, _, _, _, _, device, inode, _, path, build_id = mapped
        known = self._files.get((path, inode, device, build_id))
        return self._locate(mapped) if known is None else known

    def _locate(self, mapped: Mapped) -> int:
        if mapped.path.startswith(b"[vdso]"):
            key: tuple[object, ...] = ("vdso",)
            image = Image("vdso" if self._vdso else "none", b"[vdso]", (0, 0), 0)
        elif mapped.path.startswith(_MADE) or not mapped.path:
            key = ("perf-map", mapped.pid)
            image = Image("perf-map", mapped.path, (0, 0), 0, pid=mapped.pid if self._left else 0)
        elif mapped.path.startswith(b"["):  # [vsyscall], [uprobes]
            key = (mapped.path,)
            image = Image("none", mapped.path, (0, 0), 0)
        else:
            key = (mapped.device, mapped.inode, mapped.path, mapped.build_id)
            build_id = mapped.build_id or self._build_ids.get(mapped.path, b"")
            image = Image("elf", mapped.path, mapped.device, mapped.inode, build_id)
        number = self._numbers.get(key)
        if number is None:
            if len(self._images) >= MOST_IMAGES:
                return 0
            number = self._numbers[key] = len(self._images)
            self._images.append(image)
            self._functions.append(Functions())
            self._modules.append("[jit]" if image.kind == "perf-map" else decode(image.path.removesuffix(b" (deleted)")))
            if image.kind != "perf-map":  # which is of one process
                self._files[mapped.path, mapped.inode, mapped.device, mapped.build_id] = number
        return number

    def image(self, number: int) -> Image:
        return self._images[number]

    def functions(self, number: int) -> Functions:
        return self._functions[number]

    def module(self, number: int) -> str:
        return self._modules[number]

    def absolute(self, number: int) -> bool:
        """Whether its functions are known by address rather than by offset in a file."""
        return self._images[number].kind == "perf-map"

    def forget_frames(self) -> None:
        for functions in self._functions:
            functions.forget()

    def renew(self) -> None:
        """All are forgotten, and numbers are given anew: those that address spaces hold stand for nothing any more."""
        self._renewed += 1
        self._numbers.clear()
        self._files.clear()
        del self._images[1:], self._functions[1:], self._modules[1:]

    def key(self, number: int) -> int:
        """What an image is called where names are asked for: never given to another one."""
        return self._renewed * MOST_IMAGES + number

    def number(self, key: int) -> int:
        """The image that is called so; 0 if it was forgotten."""
        renewed, number = divmod(key, MOST_IMAGES)
        return number if renewed == self._renewed else 0

    @property
    def full(self) -> bool:
        return len(self._images) >= MOST_IMAGES // 2
