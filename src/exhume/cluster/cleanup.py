"""What exhume leaves in a cluster when its agents are gone: conditions that nobody renews, and marks on nodes that are open.

A condition that is not renewed keeps what it said last, for ever. Those that another tool sets by the same names, as
node-problem-detector does with our plugin, are told apart by managedFields and left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.cluster.conditions import KINDS
from exhume.cluster.cordon import MARK, closed, left_mark, mark_of, tainted
from exhume.cluster.document import MANAGER, Document, list_in, text_in, within
from exhume.cluster.replies import ApiError

if TYPE_CHECKING:
    from exhume.cluster.client import Client

_STRATEGIC = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Left:
    node: str
    conditions: tuple[str, ...]
    mark: bool
    """An annotation of a cordon that is over."""


def left(nodes: Sequence[Document]) -> list[Left]:
    found = [_left(node) for node in nodes]
    return [one for one in found if one.conditions or one.mark]


def still_out(nodes: Sequence[Document]) -> list[str]:
    """Nodes that are out of service by our hand: without exhume nobody puts them back."""
    return [text_in(node, "metadata", "name") for node in nodes if mark_of(node) is not None or tainted(node)]


def remove(client: "Client", one: Left) -> bool:
    """False where the node is gone meanwhile."""
    place = f"/api/v1/nodes/{one.node}"
    try:
        if one.conditions:
            gone = [{"$patch": "delete", "type": name} for name in one.conditions]
            client.patch(f"{place}/status", {"status": {"conditions": gone}}, _STRATEGIC)
        if one.mark:
            client.patch(place, {"metadata": {"annotations": {MARK: None}}})
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True


def _left(node: Document) -> Left:
    ours = {kind.name for kind in KINDS}
    here = [name for one in list_in(node, "status", "conditions") if (name := text_in(one, "type")) in ours]
    conditions = tuple(name for name in here if MANAGER in (owners := _owners(node, name)) or not owners)
    return Left(text_in(node, "metadata", "name"), conditions, left_mark(node) is not None and not closed(node))


def _owners(node: Document, condition: str) -> set[str]:
    """Who wrote it last. A server that tracks no fields names nobody."""
    key = f'k:{{"type":"{condition}"}}'
    entries = list_in(node, "metadata", "managedFields")
    return {
        text_in(one, "manager")
        for one in entries
        if within(one, "fieldsV1", "f:status", "f:conditions", key, "f:lastHeartbeatTime") is not None
    }
