"""Raw chains to frames: order, return addresses, stretches of nowhere, names that come late."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.root import Root
from exhume.recording.recording import Node, Recording
from exhume.sources.sampling.frames import Frames
from exhume.sources.sampling.images import Images
from exhume.sources.sampling.kernel_symbols import KernelSymbols
from exhume.sources.sampling.records import CONTEXT_KERNEL, CONTEXT_USER, Mapped
from exhume.sources.sampling.spaces import Space
from exhume.sources.sampling.user_symbols import Function, Image, UserSymbols
from tests.trees import Tree

TEXT = 0xFFFFFFFF81000000
KALLSYMS = f"{TEXT:x} T _stext\n{TEXT + 0x100:x} T do_idle\n{TEXT + 0x200:x} T vfs_read\n{TEXT + 0x300:x} T _etext\n"


class Symbols(UserSymbols):
    """Answers from a list, when it is told to."""

    def __init__(self, functions: list[tuple[int, int, str]]) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.silent = False
        self._functions = functions
        self._due: list[Function] = []

    def ask(self, key: int, image: Image, pids: object, addresses: object) -> None:
        assert isinstance(addresses, list)
        self.asked += addresses
        for address in addresses:
            found = [each for each in self._functions if each[0] <= address < each[1]]
            self._due += [Function(key, *each) for each in found or [(address, address + 1, "")]]

    def answers(self, wait_s: float = 0.0) -> list[Function]:
        if self.silent:
            return []
        due, self._due = self._due, []
        return due


class Made:
    def __init__(self, root: Path, functions: list[tuple[int, int, str]]) -> None:
        Tree(root).write("proc/kallsyms", KALLSYMS)
        self.images = Images()
        self.symbols = Symbols(functions)
        self.frames = Frames(Root(str(root)), KernelSymbols(Root(str(root))), self.images, self.symbols)
        self.space = Space(1, 5)
        self.image = self.images.locate(Mapped(0, 5, 0x10000, 0x1000, 0, (8, 1), 7, 0, b"/bin/x"))
        self.space.add(0x10000, 0x1000, 0, self.image)
        self.known: dict[int, tuple[str, str, int]] = {}

    def resolve(self, *chains: bytes) -> list[list[tuple[str, str, int]]]:
        frames, lengths = self.frames.resolve([(self.space, chain) for chain in chains])
        self.write()
        ends = np.cumsum(lengths).tolist()
        return [
            [self.known[frame] for frame in frames[end - length : end].tolist()]
            for end, length in zip(ends, lengths.tolist(), strict=True)
        ]

    def names(self, *chains: bytes) -> list[list[str]]:
        return [[name or module for name, module, _ in stack] for stack in self.resolve(*chains)]

    def write(self) -> Recording:
        into = Recording(Node("n", "b", "6", "v1", 1))
        self.frames.write(into)
        for row in into["frames"].rows():
            self.known[row["id"]] = row["name"], row["module"], row["offset"]
        return into


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path, [(0x100, 0x200, "main"), (0x200, 0x300, "work")])


def chain(kernel: list[int] | None = None, user: list[int] | None = None) -> bytes:
    words = [*([CONTEXT_KERNEL, *kernel] if kernel else []), *([CONTEXT_USER, *user] if user else [])]
    return struct.pack(f"={len(words)}Q", *words)


def test_the_outermost_caller_is_first_and_user_space_before_the_kernel(made: Made) -> None:
    assert made.names(chain([TEXT + 0x210, TEXT + 0x110], [0x10210, 0x10110])) == [["main", "work", "do_idle", "vfs_read"]]


def test_a_return_address_belongs_to_the_function_that_called(made: Made) -> None:
    """A call may be the last thing a function does: what it returns to is then the next function's."""
    assert made.names(chain(user=[0x10200])) == [["work"]]
    assert made.names(chain(user=[0x10250, 0x10200])) == [["main", "work"]]
    assert made.names(chain([TEXT + 0x200])) == [["vfs_read"]]
    assert made.names(chain([TEXT + 0x210, TEXT + 0x200])) == [["do_idle", "vfs_read"]]


def test_two_addresses_of_a_function_are_one_frame(made: Made) -> None:
    first, _ = made.frames.resolve([(made.space, chain([TEXT + 0x210], [0x10210]))])
    again, _ = made.frames.resolve([(made.space, chain([TEXT + 0x220], [0x10230]))])
    assert first.tolist() == again.tolist()


def test_what_leads_nowhere_is_one_frame_however_long_it_is(made: Made) -> None:
    assert made.names(chain(user=[0x10210, 5, 6, 7, 0x10210, 8, 9])) == [["", "work", "", "work"]]


def test_a_stack_of_nothing_but_nowhere_keeps_one_frame(made: Made) -> None:
    assert made.names(chain(user=[5])) == [[""]]
    assert made.names(chain(user=[5, 6])) == [[""]]
    assert made.names(chain(user=[5, 0x10210, 6])) == [["", "work", ""]]
    assert made.names(chain(user=[5]), chain(user=[6])) == [[""], [""]]


def test_chains_without_a_frame_are_empty_stacks_and_shift_nobody(made: Made) -> None:
    empty = struct.pack("=Q", CONTEXT_USER)
    assert made.names(b"", chain(user=[0x10210]), empty, b"", chain([TEXT + 0x110]), b"") == [
        [],
        ["work"],
        [],
        [],
        ["do_idle"],
        [],
    ]
    assert made.names(b"", b"") == [[], []]


def test_what_has_no_name_keeps_its_module_and_offset(made: Made) -> None:
    assert made.resolve(chain(user=[0x10400])) == [[("", "/bin/x", 0x400)]]


def test_a_function_is_asked_for_once(made: Made) -> None:
    made.names(chain(user=[0x10210]), chain(user=[0x10210]))
    made.names(chain(user=[0x10220]))
    assert made.symbols.asked == [0x210]


def test_a_name_that_comes_late_is_told_by_another_row_of_the_same_frame(made: Made) -> None:
    made.symbols.silent = True
    frames, _ = made.frames.resolve([(made.space, chain(user=[0x10210]))])
    made.write()
    assert made.known[int(frames[0])] == ("", "/bin/x", 0x210)
    again, _ = made.frames.resolve([(made.space, chain(user=[0x10210]))])
    assert again.tolist() == frames.tolist()
    made.symbols.silent = False
    made.frames.catch_up()
    made.write()
    assert made.known[int(frames[0])] == ("work", "/bin/x", -1)


def test_after_forgetting_everything_is_told_anew(made: Made) -> None:
    stack = chain([TEXT + 0x210], [0x10210])
    before, _ = made.frames.resolve([(made.space, stack)])
    made.write()
    made.frames.forget()
    made.known.clear()
    assert made.names(stack) == [["work", "vfs_read"]]
    after, _ = made.frames.resolve([(made.space, stack)])
    assert not {*before.tolist()} & {*after.tolist()}


def test_a_late_name_of_an_image_that_was_forgotten_is_nobodys(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.sources.sampling.images.MOST_IMAGES", 2)
    made.symbols.silent = True
    made.names(chain(user=[0x10210]))
    made.frames.forget()
    made.symbols.silent = False
    made.frames.catch_up()
    assert len(made.write()["frames"]) == 0


def test_the_classes_of_stacks_tell_idle_and_the_kernel(made: Made) -> None:
    stacks = [chain([TEXT + 0x110]), chain(user=[0x10210]), b"", chain([TEXT + 0x110])]
    frames, lengths = made.frames.resolve([(made.space, stack) for stack in stacks])
    idle_task = np.array([True, True, True, False])
    assert made.frames.classes(frames, lengths, idle_task, named=True) == ["idle", "user", "user", "system"]
    assert made.frames.classes(frames, lengths, idle_task, named=False) == ["idle", "idle", "idle", "system"]


WORDS = st.sampled_from(
    [CONTEXT_KERNEL, CONTEXT_USER, (1 << 64) - 32, TEXT + 0x110, TEXT, 0x10210, 0x10110, 0, 1, 5]
) | st.integers(0, (1 << 64) - 1)


@given(st.lists(st.lists(WORDS, max_size=10), max_size=6))
def test_no_chain_does_harm_and_each_stack_has_only_its_own(
    tmp_path_factory: pytest.TempPathFactory, chains: list[list[int]]
) -> None:
    made = Made(tmp_path_factory.getbasetemp(), [(0x100, 0x200, "main"), (0x200, 0x300, "work")])
    packed = [struct.pack(f"={len(words)}Q", *words) for words in chains]
    frames, lengths = made.frames.resolve([(made.space, each) for each in packed])
    assert len(lengths) == len(chains)
    assert len(frames) == lengths.sum()
    assert all(length <= len(words) for length, words in zip(lengths, chains, strict=True))
    made.write()
    assert {*frames.tolist()} <= made.known.keys()
