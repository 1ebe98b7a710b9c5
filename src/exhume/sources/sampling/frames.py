"""Addresses to frames: which function each is in, and a number for it, for many addresses at once."""

import math
import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from exhume.host.root import Root
from exhume.recording.arrays import among, runs, unique, unique_inverse
from exhume.recording.recording import Recording
from exhume.sources.sampling import classes
from exhume.sources.sampling.images import Images
from exhume.sources.sampling.kernel_symbols import KernelSymbols
from exhume.sources.sampling.recent import Recent
from exhume.sources.sampling.records import CONTEXT_GUEST_KERNEL, CONTEXT_GUEST_USER, CONTEXT_KERNEL, CONTEXT_MAX, CONTEXT_USER
from exhume.sources.sampling.spaces import Space, find
from exhume.sources.sampling.user_symbols import UserSymbols

# How long a batch waits for names of functions that were not met before. They mostly come in time; those that come later
# are told then, and their frames get another row.
WAIT_S = 0.03
# The kernel's symbols are read again at most so often, when addresses come up that none of them holds.
AGAIN_S = 60.0
MOST_HOPELESS = 4096
# How long an image is left alone whose names could not be had.
QUIET_S = 10.0
# Addresses whose frames are remembered.
_KNOWN_BITS, _KERNEL_BITS = 16, 16
# Frames without a name are kept apart by their offset; there may be many.
MOST_NAMELESS = 1 << 16
# Whose functions nobody here knows: those of virtual machines.
_GUESTS = ((CONTEXT_GUEST_KERNEL, "[guest.kernel]", "kernel"), (CONTEXT_GUEST_USER, "[guest]", "user"))
_SHIFT = 48  # bits of a user address; those above hold the image

# What a word of a chain is, by the mark before it.
_NOTHING, _KERNEL, _USER, _GUEST = range(4)

Ids = NDArray[np.int32]


class Frames:
    def __init__(
        self,
        root: Root,
        kernel: KernelSymbols,
        images: Images,
        symbols: UserSymbols | None,
        wait_s: float = WAIT_S,
        alive: Callable[[int], bool] | None = None,
    ) -> None:
        """Without `symbols` frames of user space stay without names. `wait_s` is how long a batch waits for those that are
        new; where it is given, all batches together wait four times as long. `alive`: whether a process still runs here,
        so that its files can be found by it; all may where that is not given."""
        self._wait_s = wait_s
        self._left_s = math.inf if wait_s == WAIT_S else 4 * wait_s
        self._alive = alive
        self._root = root
        self._kernel = kernel
        self._images = images
        self._symbols = symbols
        self._rows: list[tuple[int, str, str, str, int]] = []
        self._next = 1
        self._kernel_ids = np.zeros(0, dtype=np.int32)
        self._nameless: dict[tuple[int, int], int] = {}
        self._pending: dict[int, dict[int, int]] = {}
        """Of each image the offsets that were asked for, and the frame that stands for each until its name comes."""
        self._known = Recent(_KNOWN_BITS)
        """The frame of an address in an image."""
        self._in_kernel = Recent(_KERNEL_BITS)
        """The frame of an address of the kernel that has a name."""
        self._quiet: dict[int, float] = {}
        """Until when an image is not asked about again."""
        self._marks: dict[int, int] = {}
        self._refreshed = time.monotonic()
        self._kernel_frames: set[int] = set()
        self._hopeless: set[int] = set()
        """Addresses of the kernel that its symbols do not hold, however often they are read."""
        self.renewed = False
        """The kernel's symbols were read again: what was resolved before may have names by now."""

    def number_from(self, first: int) -> None:
        self._next = first

    @property
    def next(self) -> int:
        """The number that comes next."""
        return self._next

    def forget(self) -> None:
        self._kernel_ids[:] = 0
        self._nameless.clear()
        self._marks.clear()
        self._kernel_frames.clear()
        self._pending.clear()
        self._quiet.clear()
        self._known.clear()
        self._in_kernel.clear()
        self._images.forget_frames()
        if self._images.full:
            self._images.renew()
        self._rows = []

    def close(self) -> None:
        if self._symbols is not None:
            self._symbols.close()

    def write(self, into: Recording) -> None:
        into["frames"].add_rows(self._rows)
        self._rows = []

    def classes(self, frames: Ids, lengths: NDArray[np.int64], idle_task: NDArray[np.bool_], named: bool) -> list[str]:
        """The classes of stacks, which are one after the other; `idle_task`: it is of pid 0, `named`: the kernel has names."""
        # The innermost is of the kernel if any is. Where it is not, nothing but user space was seen.
        ends = np.cumsum(lengths)
        innermost = frames[ends[lengths > 0] - 1].tolist()
        kernel = np.zeros(len(lengths), dtype=bool)
        kernel[lengths > 0] = np.fromiter(map(self._kernel_frames.__contains__, innermost), dtype=bool, count=len(innermost))
        marks = np.zeros(len(frames), dtype=np.int64)
        if self._marks:
            marked = np.array(sorted(self._marks.items()), dtype=np.int64)
            at = np.minimum(np.searchsorted(marked[:, 0], frames), len(marked) - 1)
            marks = np.where((marked[at, 0] == frames) & np.repeat(kernel, lengths), marked[at, 1], 0)
        return classes.of_stacks(marks, lengths, kernel, idle_task, named)

    def resolve(self, stacks: Sequence[tuple[Space, bytes]]) -> tuple[Ids, NDArray[np.int64]]:
        """The frames of raw stacks, outermost caller first, one after the other, and how many each has."""
        chains = np.frombuffer(b"".join(chain for _, chain in stacks), dtype=np.uint64)
        lengths = np.array([len(chain) // 8 for _, chain in stacks], dtype=np.int64)
        different = {space.number: space for space, _ in stacks}
        places = {number: place for place, number in enumerate(different)}
        which = np.array([places[space.number] for space, _ in stacks], dtype=np.int64)
        return self.resolve_chains(list(different.values()), which, chains, lengths)

    def resolve_chains(
        self, spaces: list[Space], which: NDArray[np.int64], chains: NDArray[np.uint64], lengths: NDArray[np.int64]
    ) -> tuple[Ids, NDArray[np.int64]]:
        """The same from raw stacks that are one after the other: which of the spaces each is in, and how long it is."""
        if not len(chains):
            return np.zeros(0, dtype=np.int32), lengths
        owners = np.repeat(np.arange(len(which), dtype=np.int32), lengths)
        of_what, marks = _contexts(chains)
        # Return addresses have the call before them, and it may be the last thing a function does. What comes first in the
        # kernel and in user space is none: it was interrupted there.
        addresses = chains - np.uint64(1)
        addresses[(marks + 1)[: np.searchsorted(marks, len(chains) - 1)]] += np.uint64(1)
        kernel, user = np.flatnonzero(of_what == _KERNEL), np.flatnonzero(of_what == _USER)
        if any(space.hidden for space in spaces):
            hidden = np.array([space.hidden for space in spaces], dtype=bool)[which[owners[user]]]
            of_what[user[hidden]], user = _NOTHING, user[~hidden]
        frames = np.zeros(len(chains), dtype=np.int32)
        frames[kernel] = self._of_kernel(addresses[kernel])
        frames[user] = self._of_user(spaces, which[owners[user]], addresses[user])
        for number, (_, module, space) in enumerate(_GUESTS):
            if len(mine := np.flatnonzero(of_what == _GUEST + number)):
                listed = addresses[mine].astype(np.int64).tolist()
                frames[mine] = [self._without_name(-2 - number, address, module, space) for address in listed]
        # Each chain has its innermost first, and the kernel's before those of user space: turn every stack around.
        known = of_what != _NOTHING
        frames, of = frames[known], owners[known]
        counts = np.bincount(of, minlength=len(which))
        ends = np.cumsum(counts)
        frames = frames[np.repeat(2 * ends - counts - 1, counts) - np.arange(len(frames))]
        # Where code has no frame pointers the chain leads into data: such a stretch of nowhere says no more than one of it.
        if (none := self._nameless.get((0, -1))) is not None:
            nowhere = frames == none
            again = np.zeros(len(frames), dtype=bool)
            again[1:] = nowhere[1:] & nowhere[:-1] & (of[1:] == of[:-1])
            frames, counts = frames[~again], np.bincount(of[~again], minlength=len(which))
        return frames, counts

    def catch_up(self) -> None:
        """Names that came later than they were waited for."""
        self._take(0.0)

    def _issue(self, name: str, module: str, space: str, offset: int) -> int:
        number = self._next
        self._next += 1
        self._rows.append((number, name, module, space, offset))
        return number

    def _of_kernel(self, addresses: NDArray[np.uint64]) -> Ids:
        """Most addresses are where functions were called from, and come again and again."""
        ids = self._in_kernel.get(addresses.view(np.int64))
        left = np.flatnonzero(ids == 0)
        if len(left):
            each, back = unique_inverse(addresses[left].view(np.int64))
            ids[left] = self._of_symbols(each.view(np.uint64))[back]
        return ids.astype(np.int32)

    def _of_symbols(self, addresses: NDArray[np.uint64]) -> Ids:
        """Each address once."""
        found = self._kernel.find(addresses)
        if (found < 0).any() and not self._kernel.reason and time.monotonic() - self._refreshed > AGAIN_S:
            missing = {*addresses[found < 0].tolist()} - self._hopeless
            if missing:
                self._refreshed = time.monotonic()
                self._kernel.refresh()  # a module or a BPF program was loaded meanwhile
                self._in_kernel.clear()
                self.renewed = True
                found = self._kernel.find(addresses)
                # Some have no symbol at all, such as trampolines: to look for them again and again would be dear.
                self._hopeless |= {*addresses[found < 0].tolist()}
                if len(self._hopeless) > MOST_HOPELESS:
                    self._hopeless.clear()
        highest = int(found.max(initial=-1))
        if highest >= len(self._kernel_ids):
            self._kernel_ids = np.concatenate([self._kernel_ids, np.zeros(highest + 1 - len(self._kernel_ids), dtype=np.int32)])
        known = found >= 0
        for symbol in unique(found[known]).tolist():
            if not self._kernel_ids[symbol]:
                name = self._kernel.name(symbol)
                number = self._kernel_ids[symbol] = self._issue(name, self._kernel.module(symbol), "kernel", -1)
                self._kernel_frames.add(int(number))
                if mark := classes.mark(name):
                    self._marks[int(number)] = mark
        ids = np.zeros(len(addresses), dtype=np.int32)
        ids[known] = self._kernel_ids[found[known]]
        self._in_kernel.put(addresses[known].view(np.int64), ids[known].astype(np.int64))
        if not known.all():
            ids[~known] = [
                self._nameless.get((-1, address)) or self._without_name(-1, address, "[kernel]", "kernel")
                for address in addresses[~known].view(np.int64).tolist()
            ]
        return ids

    def _without_name(self, image: int, offset: int, module: str, space: str) -> int:
        number = self._nameless.get((image, offset))
        if number is None:
            if len(self._nameless) >= MOST_NAMELESS:
                offset = -1  # so many that they are told apart no longer
            number = self._nameless.get((image, offset))
            if number is None:
                number = self._nameless[image, offset] = self._issue("", module, space, offset)
                if space == "kernel":
                    self._kernel_frames.add(number)
        return number

    def _of_user(self, spaces: list[Space], which: NDArray[np.int64], addresses: NDArray[np.uint64]) -> Ids:
        if not len(addresses):
            return np.zeros(0, dtype=np.int32)
        used = unique(which)
        if len(used) < len(spaces):  # the tables of those that were in the kernel only are not needed
            places = np.zeros(len(spaces), dtype=np.int64)
            places[used] = np.arange(len(used))
            spaces, which = [spaces[at] for at in used.tolist()], places[which]
        for space in spaces:
            if (space.unread or space.waiting) and not space.hidden:
                space.read(self._root, self._images.locate)
        signed = addresses.astype(np.int64)
        images, offsets = find(spaces, which, signed)
        of = np.zeros(int(images.max()) + 1, dtype=np.int64)
        of[images] = which
        pids = {number: spaces[of[number]].pid for number in unique(images).tolist()}
        for number in pids:
            if self._images.absolute(number):
                mine = images == number
                offsets[mine] = signed[mine]
        keys = images << _SHIFT | (offsets & ((1 << _SHIFT) - 1))
        ids = self._known.get(keys)
        left = np.flatnonzero(ids == 0)
        if len(left):
            each, back = unique_inverse(keys[left])
            ids[left] = self._of_images(each >> _SHIFT, each & ((1 << _SHIFT) - 1), pids)[back]
        return ids.astype(np.int32)

    def _of_images(self, images: NDArray[np.int64], offsets: NDArray[np.int64], pids: dict[int, int]) -> Ids:
        """Sorted by image and offset, each pair once."""
        ids = np.zeros(len(images), dtype=np.int32)
        parts = {int(images[begin]): np.arange(begin, end) for begin, end in runs(images)}
        asked = {number: offsets[part][self._fill(number, offsets[part], ids, part)] for number, part in parts.items()}
        asked = {number: missing for number, missing in asked.items() if len(missing)}
        if asked and self._symbols is not None:
            for number, missing in asked.items():
                new = [each for each in missing.tolist() if each not in self._pending.get(number, {})]
                if new:
                    whose = [pids[number]] if self._alive is None or self._alive(pids[number]) else []
                    self._symbols.ask(self._images.key(number), self._images.image(number), whose, new)
            before = time.monotonic()
            self._take(max(0.0, min(self._wait_s, self._left_s)))
            self._left_s -= time.monotonic() - before
        if self._symbols is None:
            for number, missing in asked.items():
                module = self._images.module(number)
                left = parts[number][ids[parts[number]] == 0]
                ids[left] = [self._without_name(number, offset, module, "user") for offset in missing.tolist()]
            self._remember(images, offsets, ids)
            return ids
        lefts = {number: parts[number][self._fill(number, offsets[parts[number]], ids, parts[number])] for number in asked}
        self._remember(images, offsets, ids)
        for number, left in lefts.items():
            waiting = self._pending.setdefault(number, {})
            for at in left.tolist():
                offset = int(offsets[at])
                frame = waiting.get(offset)
                if frame is None:
                    frame = waiting[offset] = self._issue("", self._images.module(number), "user", offset)
                ids[at] = frame
        return ids

    def _remember(self, images: NDArray[np.int64], offsets: NDArray[np.int64], ids: Ids) -> None:
        """What is settled: a JIT may put other code there, and an image that is left alone for a while may get names."""
        self._in_kernel.clear()
        passing = [number for number in unique(images).tolist() if number in self._quiet or self._images.absolute(number)]
        settled = np.flatnonzero((ids != 0) & ~among(images, np.array(passing, dtype=np.int64)))
        self._known.put(images[settled] << _SHIFT | offsets[settled], ids[settled].astype(np.int64))

    def _fill(self, number: int, offsets: NDArray[np.int64], ids: Ids, part: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Fills in the frames of functions that are known; True for what is to be asked."""
        image = self._images.image(number)
        if image.kind == "none":
            ids[part] = self._without_name(number, -1, self._images.module(number), "user")
            return np.zeros(len(part), dtype=bool)
        functions = self._images.functions(number)
        found = functions.find(offsets)
        for at, which, offset in zip(part.tolist(), found.tolist(), offsets.tolist(), strict=True):
            if which < 0:
                continue
            if not functions.names[which]:
                ids[at] = self._without_name(number, offset, self._images.module(number), "user")
                continue
            if not functions.ids[which]:
                functions.ids[which] = self._issue(functions.names[which], self._images.module(number), "user", -1)
            ids[at] = functions.ids[which]
        missing: NDArray[np.bool_] = found < 0
        if missing.any() and self._quiet.get(number, 0.0) > time.monotonic():
            # Addresses of a JIT that has no perf map mean nothing; of a file they will some day.
            ids[part[missing]] = [
                self._without_name(number, -1 if image.kind == "perf-map" else offset, self._images.module(number), "user")
                for offset in offsets[missing].tolist()
            ]
            return np.zeros(len(part), dtype=bool)
        return missing

    def _take(self, wait_s: float) -> None:
        if self._symbols is None:
            return
        for function in self._symbols.answers(wait_s):
            number = self._images.number(function.key)
            if not number:
                continue
            if not function.name and function.end == function.start + 1:
                self._quiet[number] = time.monotonic() + QUIET_S  # nothing to be had now: no map yet, or the process is gone
            else:
                self._images.functions(number).add(function)
            waiting = self._pending.get(number)
            if not waiting:
                continue
            for offset in [offset for offset in waiting if function.start <= offset < function.end]:
                frame = waiting.pop(offset)
                if function.name:
                    self._rows.append((frame, function.name, self._images.module(number), "user", -1))


def _contexts(chains: NDArray[np.uint64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """What each word of raw stacks is, and where the marks are."""
    marks = np.flatnonzero(chains >= np.uint64(CONTEXT_MAX))
    found, kinds = chains[marks], np.zeros(len(marks), dtype=np.uint8)
    for kind, mark in enumerate((CONTEXT_KERNEL, CONTEXT_USER, *(guest[0] for guest in _GUESTS)), _KERNEL):
        kinds[found == np.uint64(mark)] = kind
    of_what = np.zeros(len(chains), dtype=np.uint8)
    if len(marks):
        of_what[marks[0] :] = np.repeat(kinds, np.diff(marks, append=len(chains)))
        of_what[marks] = _NOTHING
    return of_what, marks
