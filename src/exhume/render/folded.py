"""Folded stacks: one line a stack, as the FlameGraph tools and most viewers of profiles read them."""

from collections.abc import Iterator

from exhume.render.flame import Kind, Node
from exhume.text import printable

# The suffixes by which flamegraph.pl tells where a frame belongs (stackcollapse-perf.pl --kernel --jit).
_SUFFIX: dict[Kind, str] = {"kernel": "_[k]", "jit": "_[j]", "python": "_[j]"}
LONGEST_NAME = 400


def folded(root: Node) -> Iterator[str]:
    """`process;function;function_[k] count`, in the order of the tree; the root itself is not told."""
    waiting: list[tuple[Node, str]] = [(child, "") for child in reversed(root.children)]
    while waiting:
        node, above = waiting.pop()
        path = f"{above};{frame(node)}" if above else frame(node)
        if node.own:
            yield f"{path} {node.own}"
        waiting.extend((child, path) for child in reversed(node.children))


def frame(node: Node) -> str:
    """A name that cannot end its frame or its line: hostile text, and C++ has names with semicolons in lambdas."""
    return printable(node.name, LONGEST_NAME).replace(";", ":") + _SUFFIX.get(node.kind, "")
