"""A flame graph's tree as JSON, in pieces: a stack may be deeper than Python's encoder goes."""

import json
from collections.abc import Iterator

from exhume.render.flame import Node


def as_json(root: Node) -> Iterator[str]:
    """`{"name", "kind", "module", "samples", "children"}`, nested; a node without a module or children leaves them out."""
    waiting: list[Node | str] = [root]
    while waiting:
        piece = waiting.pop()
        if isinstance(piece, str):
            yield piece
            continue
        module = f', "module": {json.dumps(piece.module)}' if piece.module else ""
        yield f'{{"name": {json.dumps(piece.name)}, "kind": "{piece.kind}"{module}, "samples": {piece.value}'
        if not piece.children:
            yield "}"
            continue
        yield ', "children": ['
        waiting.append("]}")
        for i, child in enumerate(reversed(piece.children)):
            if i:
                waiting.append(", ")
            waiting.append(child)
