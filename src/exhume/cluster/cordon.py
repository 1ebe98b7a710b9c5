"""Closing a node to new pods, and opening it again: only by whoever closed it.

The mark is an annotation that names the application in the journal. Whether the cordon is still ours is told by managedFields:
when somebody else uncordons and cordons the node meanwhile, the field spec.unschedulable is theirs and no longer ours.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.cluster.document import MANAGER, Document, checked_name, list_in, names_in, text_in, within
from exhume.cluster.replies import ApiError
from exhume.errors import ExhumeError, Refused
from exhume.host.http.retry import backoff_s
from exhume.text import from_json, printable

if TYPE_CHECKING:
    from exhume.cluster.client import Client

MARK = "exhume/cordoned-by"
TAINT = "exhume/quarantine"
GONE = "it is no longer in the cluster"
_ATTEMPTS = 8
_LONGEST_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Mark:
    """Who closed the node: the application's name in the journal, when, and in which boot of the node."""

    token: str
    time_s: float = 0.0
    boot_id: str = ""


def mark_of(node: Document) -> Mark | None:
    """The mark on a node that is cordoned by us still; None for one that others cordoned, or nobody."""
    found = left_mark(node)
    return found if found and closed(node) and _ours(node) else None


def left_mark(node: Document) -> Mark | None:
    """The mark as it is, even if the node was opened since."""
    told = names_in(node, "metadata", "annotations").get(MARK)
    if told is None:
        return None
    try:
        read = from_json(told)
    except ValueError:
        read = None
    time_s = within(read, "time_s")
    known = isinstance(time_s, int | float) and not isinstance(time_s, bool)
    return Mark(text_in(read, "token"), float(time_s) if known else 0.0, text_in(read, "boot_id"))


def closed(node: Document) -> bool:
    return within(node, "spec", "unschedulable") is True


def ready(node: Document) -> bool:
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in list_in(node, "status", "conditions"))


def boot_id(node: Document) -> str:
    return text_in(node, "status", "nodeInfo", "bootID")


def read_node(client: "Client", name: str) -> Document:
    return client.get(_path(name))


def cordon(client: "Client", name: str, token: str) -> str:
    """Close it and mark it. A node that is closed already stays as it is, without a mark: it is not ours to open."""

    def change(node: Document) -> Document | None:
        if closed(node):
            return None
        told = json.dumps({"token": token, "time_s": int(time.time()), "boot_id": boot_id(node)})
        return {"metadata": {"annotations": {MARK: told}}, "spec": {"unschedulable": True}}

    node = _change(client, name, change)
    mark = mark_of(node)
    if mark is None:
        return "it was cordoned by others, and will stay so"
    return "" if mark.token == token else f"it was cordoned by {printable(mark.token)} already"


def uncordon(client: "Client", name: str, token: str = "") -> str:
    """Open what `cordon` closed with this token (any of ours without one). Returns why not, or nothing."""
    kept = ""

    def change(node: Document) -> Document | None:
        nonlocal kept
        mark = left_mark(node)
        kept = _why_kept(node, mark, token)
        if mark is None or (token and mark.token != token):
            return None
        gone: Document = {"metadata": {"annotations": {MARK: None}}}
        return gone if kept else {**gone, "spec": {"unschedulable": None}}

    try:
        _change(client, name, change)
    except ApiError as error:
        if error.status != 404:
            raise
        return GONE
    return kept


def taint(client: "Client", name: str, value: str) -> None:
    """NoSchedule keeps pods away that tolerate a cordon; none that runs is evicted. The list is atomic, so all are written."""

    def change(node: Document) -> Document | None:
        others = [one for one in list_in(node, "spec", "taints") if one.get("key") != TAINT]
        return {"spec": {"taints": [*others, {"key": TAINT, "value": value, "effect": "NoSchedule"}]}}

    _change(client, name, change)


def untaint(client: "Client", name: str) -> None:
    def change(node: Document) -> Document | None:
        others = [one for one in list_in(node, "spec", "taints") if one.get("key") != TAINT]
        return {"spec": {"taints": others or None}} if tainted(node) else None

    try:
        _change(client, name, change)
    except ApiError as error:
        if error.status != 404:  # a node that is gone has no taints
            raise


def tainted(node: Document) -> bool:
    return any(one.get("key") == TAINT for one in list_in(node, "spec", "taints"))


def taint_value(node: Document) -> str:
    return next((text_in(one, "value") for one in list_in(node, "spec", "taints") if one.get("key") == TAINT), "")


def _why_kept(node: Document, mark: Mark | None, token: str) -> str:
    if not closed(node):
        return "it is not cordoned"
    if mark is None:
        return "it was not cordoned by exhume, so it stays cordoned"
    if token and mark.token != token:
        return f"it was cordoned by {printable(mark.token)}, so it stays cordoned"
    return "" if _ours(node) else "somebody else has cordoned it since, so it stays cordoned"


def _ours(node: Document) -> bool:
    """Whether spec.unschedulable is a field of ours. A server that tracks no fields is taken at its mark."""
    entries = list_in(node, "metadata", "managedFields")
    owners = [text_in(one, "manager") for one in entries if within(one, "fieldsV1", "f:spec", "f:unschedulable") is not None]
    return not owners or MANAGER in owners


def _change(client: "Client", name: str, change: Callable[[Document], Document | None]) -> Document:
    """Read, decide, write; anew when somebody changed the node in between, which the kubelet does all the time, or when the
    API server has too much to do (429: priority and fairness)."""
    why = ""
    for attempt in range(_ATTEMPTS):
        after_s = None
        try:
            node = read_node(client, name)
            wanted = change(node)
            if wanted is None:
                return node
            version = {"resourceVersion": text_in(node, "metadata", "resourceVersion")}
            return client.patch(_path(name), {**wanted, "metadata": {**wanted.get("metadata", {}), **version}})
        except ApiError as error:
            if error.status not in (409, 429):
                raise
            busy = error.status == 429
            why = "the API server is too busy to take it" if busy else "it is changed by others faster than it can be written"
            after_s = error.retry_after_s if busy else None
        time.sleep(backoff_s(attempt, after_s, first_s=0.05, longest_after_s=_LONGEST_WAIT_S))
    raise Refused(f"node {printable(name)} is as it was: {why}; try again")


def _path(name: str) -> str:
    return f"/api/v1/nodes/{checked_name(name)}"


def find_nodes(client: "Client", selector: str = "") -> list[Document]:
    found = list(client.list("/api/v1/nodes", **({"labelSelector": selector} if selector else {})))
    if not found:
        raise ExhumeError("the cluster has no nodes" + (f" with {printable(selector)}" if selector else ""))
    return found
