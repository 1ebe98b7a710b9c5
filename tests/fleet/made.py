"""Small fleets for tests, written out by hand."""

from collections.abc import Mapping, Sequence

from exhume.fleet.model import Fact, Fleet, Node


def fleet(nodes: Sequence[Node]) -> Fleet:
    return Fleet("a test", tuple(nodes))


def group(count: int, sick: int, facts: Mapping[str, Fact], name: str) -> list[Node]:
    """So many nodes of one kind, the first of them sick."""
    return [Node(f"{name}-{i}", dict(facts), sick=i < sick) for i in range(count)]
