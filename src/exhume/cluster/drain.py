"""Taking the pods off a node through the eviction API, which asks every PodDisruptionBudget, and waiting until they are gone.

Nothing is ever deleted past a budget: what a budget refuses is asked for again until the time is up, and then it is said.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from exhume.cluster.document import Document, checked_name, list_in, text_in
from exhume.cluster.pods import Allowed, Pod, sorted_out
from exhume.cluster.replies import ApiError, Forbidden, passing
from exhume.errors import ExhumeError, Refused
from exhume.host.quantities import SECOND, counted, duration
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.cluster.client import Client

# kubectl drain waits as long between attempts that a budget refused (drain.go, evictPods).
AGAIN_S = 5.0
LOOK_S = 2.0
DEADLINE_S = 1800.0


def _quietly(said: str, ratio: float) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Pace:
    """How long, how often; and time itself, so that a test need not wait."""

    deadline_s: float = DEADLINE_S
    again_s: float = AGAIN_S
    look_s: float = LOOK_S
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    tell: Callable[[str, float], None] = field(default=_quietly)


@dataclass(frozen=True, slots=True)
class Drained:
    evicted: tuple[Pod, ...]
    left: tuple[Pod, ...]
    ended: tuple[Pod, ...]
    """Pods that were waited for and ended by themselves."""


def pods_of(client: "Client", node: str, allowed: Allowed) -> tuple[Pod, ...]:
    """The pods of a node and what a drain would do with each."""
    return sorted_out(_pods(client, node), allowed)


def refuse_blocked(node: str, pods: Sequence[Pod]) -> None:
    if blocked := [pod for pod in pods if pod.fate == "blocks"]:
        told = "; ".join(f"{pod}: {pod.why}" for pod in blocked[:5])
        more = f"; and {len(blocked) - 5} more" if len(blocked) > 5 else ""
        raise Refused(f"node {printable(node)} is not drained, because of {_count(blocked)}: {told}{more}")


def drain(client: "Client", node: str, allowed: Allowed, pace: Pace | None = None) -> Drained:
    """Evict and wait. The node should be cordoned; what arrives meanwhile is seen too: pods are listed anew each time.

    An API server that is away for a while, as one that restarts, is waited for. There is no watch that could expire.
    """
    pace = pace or Pace()
    end = pace.now() + pace.deadline_s
    version = eviction_version(client)
    evicted: dict[str, Pod] = {}
    waited: dict[str, Pod] = {}
    refused: dict[str, str] = {}
    due: dict[str, float] = {}
    while True:
        try:
            pods = pods_of(client, node, allowed)
            refuse_blocked(node, pods)
            waited |= {pod.uid: pod for pod in pods if pod.fate == "wait" and pod.uid not in evicted}
            # With jobs still running the others keep them company: an idle node is one that nothing runs on.
            runs = allowed.when_idle and any(pod.run for pod in pods if pod.fate == "wait" and pod.uid not in evicted)
            for pod in () if runs else [pod for pod in pods if pod.fate == "evict"]:
                if due.get(pod.uid, 0.0) > pace.now():
                    continue
                evicted[pod.uid] = pod  # and stays so when the answer is lost: it may have been accepted
                wait_s, refused[pod.uid] = _evict(client, pod, version)
                due[pod.uid] = pace.now() + max(wait_s, pace.again_s)
                if refused[pod.uid]:
                    del evicted[pod.uid]
        except ExhumeError as error:
            if not passing(error):
                raise
            if pace.now() >= end:
                raise Refused(
                    f"node {printable(node)} is not drained after {duration(pace.deadline_s * SECOND)}: {error}"
                ) from None
            pace.tell(str(error), 0.0)
            pace.sleep(min(pace.again_s, max(end - pace.now(), 0.01)))
            continue
        open_ones = [pod for pod in pods if pod.fate in ("evict", "wait")]
        if not open_ones:
            ended = tuple(pod for uid, pod in waited.items() if uid not in evicted)
            return Drained(tuple(evicted.values()), tuple(pod for pod in pods if pod.fate == "leave"), ended)
        if pace.now() >= end:
            raise Refused(_too_late(node, open_ones, refused, pace.deadline_s))
        done = len(evicted) + len(waited)
        held = next((f": {pod}: {refused[pod.uid]}" for pod in open_ones if refused.get(pod.uid)), "")
        ratio = max(0.0, 1 - len(open_ones) / max(done, len(open_ones), 1))
        pace.tell(f"{_count(open_ones)} still on {printable(node)}{held}", ratio)
        pace.sleep(min(pace.look_s, max(end - pace.now(), 0.01)))


def eviction_version(client: "Client") -> str:
    """policy/v1 or policy/v1beta1, as the server itself says of pods/eviction; Refused where there is none."""
    for one in list_in(client.get("/api/v1"), "resources"):
        if one.get("name") == "pods/eviction" and one.get("kind") == "Eviction":
            return f"policy/{text_in(one, 'version') or 'v1beta1'}"
    raise Refused("this API server has no eviction API, and pods are not deleted past their disruption budgets")


def _evict(client: "Client", pod: Pod, version: str) -> tuple[float, str]:
    """How long to wait before the next attempt, and why there has to be one; nothing when it was accepted or is gone."""
    names: Document = {"name": pod.name, "namespace": pod.namespace}
    # The pod's own grace period holds, as long as nobody says otherwise; the precondition spares a namesake.
    body: Document = {
        "apiVersion": version,
        "kind": "Eviction",
        "metadata": names,
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    place = f"/api/v1/namespaces/{checked_name(pod.namespace, 'namespace')}/pods/{checked_name(pod.name, 'pod')}/eviction"
    try:
        client.create(place, body)
    except Forbidden:
        raise
    except ApiError as error:
        if error.status == 404 or (error.status == 409 and "DisruptionBudget" not in error.causes):
            return 0.0, "" if error.status == 404 else "it was changed meanwhile"
        if error.status == 429:
            detail = f" ({error.detail})" if error.detail else ""
            budget = f"its disruption budget allows none to go now{detail}"
            return error.retry_after_s, budget if "DisruptionBudget" in error.causes else "the API server is busy"
        if error.status == 403:  # its namespace is being deleted, and it with it
            return 0.0, "its namespace is being deleted"
        if error.status == 500:  # more than one budget covers it (pkg/registry/core/pod/storage/eviction.go)
            return 0.0, printable(str(error), 200)
        raise
    return 0.0, ""


def _pods(client: "Client", node: str) -> list[Document]:
    return list(client.list("/api/v1/pods", fieldSelector=f"spec.nodeName={checked_name(node)}"))


def _too_late(node: str, pods: Sequence[Pod], refused: dict[str, str], deadline_s: float) -> str:
    told = "; ".join(f"{pod}: {refused.get(pod.uid) or pod.why}" for pod in pods[:5])
    return f"node {printable(node)} is not drained after {duration(deadline_s * SECOND)}: {_count(pods)} left: {told}"


def _count(pods: Sequence[Pod]) -> str:
    return counted(len(pods), "pod")


def wait_ready(client: "Client", node: str, not_boot_id: str, pace: Pace | None = None) -> None:
    """Until the node is Ready in another boot than that one (in any, where none is named)."""
    from exhume.cluster.cordon import boot_id, read_node, ready

    pace = pace or Pace()
    end = pace.now() + pace.deadline_s
    trouble = ""
    while True:
        try:
            found = read_node(client, node)
            if ready(found) and boot_id(found) != not_boot_id:
                return
            trouble = "it has not booted anew" if boot_id(found) == not_boot_id else "it is not Ready"
        except Forbidden:
            raise
        except ExhumeError as error:
            trouble = str(error)
        if pace.now() >= end:
            raise Refused(f"node {printable(node)} did not come back within {duration(pace.deadline_s * SECOND)}: {trouble}")
        pace.tell(f"waiting for {printable(node)}", 0.0)
        pace.sleep(pace.look_s)
