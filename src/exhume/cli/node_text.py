"""Nodes that are out of service by exhume's hand, and what its agent says of nodes, as people read it."""

import time
from collections.abc import Sequence

from exhume.cluster.conditions import KINDS
from exhume.cluster.cordon import ready, tainted
from exhume.cluster.document import Document, list_in, text_in
from exhume.cluster.fleet_limits import ours
from exhume.text import printable

MOST = 50


def render_nodes(nodes: Sequence[Document]) -> str:
    held = ours(nodes, quarantined=True)
    lines = [f"{len(nodes):,} nodes, {len(held):,} out of service by exhume"]
    for mark, node in held[:MOST]:
        state = "quarantine" if tainted(node) else "drained"
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(mark.time_s))
        lines.append(
            f"  {_name(node):<30} {state:<11} since {since}  {'Ready' if ready(node) else 'not Ready'}  {printable(mark.token)}"
        )
    sick = [(node, one) for node in nodes for one in list_in(node, "status", "conditions") if _ours(one)]
    many_sick = "1 condition of exhume's agent is" if len(sick) == 1 else f"{len(sick):,} conditions of exhume's agent are"
    lines.append(f"{many_sick} true")
    lines += [f"  {_name(node):<30} {text_in(one, 'type')}  {printable(text_in(one, 'message'))}" for node, one in sick[:MOST]]
    for many in (held, sick):
        if len(many) > MOST:
            lines.append(f"  and {len(many) - MOST:,} more")
    return "\n".join(lines) + "\n"


def _ours(condition: Document) -> bool:
    return text_in(condition, "type") in {kind.name for kind in KINDS} and text_in(condition, "status") == "True"


def _name(node: Document) -> str:
    return printable(text_in(node, "metadata", "name"), 60)
