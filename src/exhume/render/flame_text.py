"""A flame graph for the terminal: the hottest branches as an indented tree, with shares and bars, at most a screen."""

import heapq
from collections.abc import Callable
from itertools import takewhile
from typing import NamedTuple

from exhume.render.flame import Kind, Node
from exhume.text import printable

BAR = 16
# Branches below this share are not shown, however much room there is.
LEAST = 0.005
# A branch goes on in the same line while it has one way to go: this much of it.
_SAME = 0.97
_EIGHTHS = " ▏▎▍▌▋▊▉█"
# 256-colour numbers, by where a frame belongs.
_COLOURS: dict[Kind, int] = {"kernel": 208, "python": 75, "jit": 79, "idle": 244, "user": 149}
# Whose samples they are is said in any case, however long the line.
_WHOSE = ("core", "process", "thread")
_Paint = Callable[[str, Kind], str]


class Line(NamedTuple):
    """One line: nodes that follow each other with (nearly) the same samples."""

    depth: int
    chain: tuple[Node, ...]

    @property
    def value(self) -> int:
        return self.chain[0].value


def lines(root: Node, most: int) -> list[Line]:
    """The `most` hottest lines in the order of the tree: the hottest child first, idle last."""
    # A branch is shown if its samples are among the most; ties go to what is nearer to the root.
    waiting: list[tuple[int, int, tuple[int, ...], Line]] = []
    shown: list[tuple[tuple[int, ...], Line]] = []

    def offer(parent: Node, place: tuple[int, ...]) -> None:
        for i, child in enumerate(sorted(parent.children, key=lambda node: (node.kind == "idle", -node.value))):
            if child.value >= max(1, root.value * LEAST):
                line = Line(len(place), _chain(child))
                heapq.heappush(waiting, (-child.value, len(place), (*place, i), line))

    offer(root, ())
    while waiting and len(shown) < most:
        _, _, place, line = heapq.heappop(waiting)
        shown.append((place, line))
        offer(line.chain[-1], place)
    return [line for _, line in sorted(shown, key=lambda pair: pair[0])]


def _chain(node: Node) -> tuple[Node, ...]:
    chain = [node]
    while node.children:
        hottest = max(node.children, key=lambda child: child.value)
        if hottest.value < node.value * _SAME:
            break
        chain.append(hottest)
        node = hottest
    return tuple(chain)


def render(root: Node, columns: int, rows: int, colour: bool) -> str:
    """At most `rows` lines of at most `columns` characters, and no line for a tree of nothing."""
    if not root.value:
        return ""
    shown = lines(root, max(1, rows))
    return "".join(_row(line, root.value, columns, _painted if colour else _plain) + "\n" for line in shown)


def _row(line: Line, whole: int, columns: int, paint: _Paint) -> str:
    share = line.value / whole
    head = f"{share:>6.1%}  "
    indent = "  " * min(line.depth, 20)
    room = max(12, columns - len(head) - BAR - 1 - len(indent))
    whose = sum(1 for _ in takewhile(lambda node: node.kind in _WHOSE, line.chain))
    names = fit([_name(node) for node in line.chain], room, max(1, whose))
    painted = []
    for i, name in names:
        painted.append(paint(name, line.chain[i].kind) if i >= 0 else name)
    return head + paint(f"{bar(share):<{BAR}}", line.chain[-1].kind) + " " + indent + " › ".join(painted)


def _name(node: Node) -> str:
    return printable(node.name, 80)


def fit(names: list[str], room: int, heads: int = 1) -> list[tuple[int, str]]:
    """Names of a chain, with their places in it, that fit into a line: the first and the last tell most; -1 is the gap."""
    whole = list(enumerate(names))
    if _length(whole) <= room:
        return whole
    if len(names) <= heads or room < _length(whole[:heads]) + 12:
        if heads > 1:
            return fit(names, room)
        return [(len(names) - 1, printable(names[-1], room))]
    tail: list[tuple[int, str]] = []
    first = [*whole[:heads], (-1, "…")]
    for one in reversed(whole[heads:]):
        if _length([*first, one, *tail]) > room:
            break
        tail.insert(0, one)
    if not tail:
        tail = [(len(names) - 1, printable(names[-1], room - _length(first) - 3))]
    return [*first, *tail]


def _length(parts: list[tuple[int, str]]) -> int:
    return sum(len(name) for _, name in parts) + 3 * (len(parts) - 1)


def bar(share: float, width: int = BAR) -> str:
    """A share as a bar, to an eighth of a character."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")


def _plain(text: str, kind: Kind) -> str:
    return text


def _painted(text: str, kind: Kind) -> str:
    number = _COLOURS.get(kind)
    return f"\x1b[1m{text}\x1b[0m" if number is None else f"\x1b[38;5;{number}m{text}\x1b[0m"
