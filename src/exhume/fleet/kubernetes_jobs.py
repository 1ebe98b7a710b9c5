"""Outcomes of jobs from what a cluster says of them: `kubectl get pods,jobs,rayjobs -A -o json`, into rows of JOBS.

A pod is a row: a node, from when to when, how many GPUs, and what it died of. Whose it is, and how that ended, is told by the
object that controls it: a Job (batch/v1), a RayJob through its RayCluster (ray.io/v1), anything else that makes pods that end.
A pod that failed and was made anew, by a Job that succeeded in the end, is told as a job of its own: its work was lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from exhume.cluster.document import Document, list_in, seconds, text_in
from exhume.errors import ExhumeError
from exhume.fleet.kubernetes_jobs_pods import controller, gpus, place, words
from exhume.fleet.kubernetes_jobs_pods import ended as ended_of
from exhume.fleet.kubernetes_jobs_pods import error as error_of
from exhume.fleet.kubernetes_jobs_pods import outcome as outcome_of
from exhume.fleet.model import Job
from exhume.fleet.ray_jobs_log import died
from exhume.text import from_json, printable

# Controllers of pods that are to run for ever: their end is no outcome.
_STANDING: Final = frozenset({"ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController", "Node"})
_RAY: Final = {"SUCCEEDED": "succeeded", "FAILED": "failed", "STOPPED": "stopped"}


@dataclass(frozen=True, slots=True)
class _Owner:
    name: str
    outcome: str = ""
    """Empty where the object is not in the dump, or has not ended."""
    known: bool = False
    started_s: float | None = None
    ended_s: float | None = None
    error: str = ""


def is_dump(document: object) -> bool:
    """Whether it is what kubectl prints of several objects."""
    return isinstance(document, dict) and text_in(document, "kind").endswith("List") and isinstance(document.get("items"), list)


def read(raw: bytes, called: str) -> tuple[list[Job], list[str]]:
    return rows(objects_in(raw, called))


def objects_in(raw: bytes, called: str) -> list[Document]:
    try:
        document = from_json(raw)
    except ValueError:
        raise ExhumeError(f"{printable(called)} is not JSON") from None
    if not is_dump(document):
        raise ExhumeError(f"{printable(called)} is not what `kubectl get pods,jobs,rayjobs -A -o json` prints")
    return list_in(document, "items")


def hosts(objects: Iterable[Document]) -> dict[str, str]:
    """The node that a pod is on, by the pod's name and by its addresses: what is in a pod knows no other names."""
    found: dict[str, str] = {}
    for pod in objects:
        node = text_in(pod, "spec", "nodeName")
        if text_in(pod, "kind") != "Pod" or not node:
            continue
        addresses = [text_in(each, "ip") for each in list_in(pod, "status", "podIPs")]
        for name in (text_in(pod, "metadata", "name"), text_in(pod, "status", "podIP"), *addresses):
            # An address is given to another pod when its pod has ended.
            if name and (name not in found or text_in(pod, "status", "phase") == "Running"):
                found[name] = node
    return found


def rows(objects: Iterable[Document]) -> tuple[list[Job], list[str]]:
    """Rows, and in sentences what could not be told."""
    kinds: dict[str, list[Document]] = {}
    for each in objects:
        kinds.setdefault(text_in(each, "kind"), []).append(each)
    pods = kinds.get("Pod", [])
    owners, clusters = _owners(kinds)
    belong: dict[str, list[Document]] = {}
    told: dict[str, _Owner] = {}
    for pod in pods:
        if (owner := _of(pod, owners, clusters)) is not None:
            belong.setdefault(owner.name, []).append(pod)
            told[owner.name] = owner
    found = [row for name, some in belong.items() for row in _job(told[name], some)]
    lost = sum(
        owner.outcome != "" for owner in {each.name: each for each in owners.values()}.values() if owner.name not in belong
    )
    nowhere = sum(not row.node for row in found)
    troubles = [f"of {lost:,} jobs the pods are gone: where they ran is not known"] * (lost > 0)
    troubles += [f"{nowhere:,} pods were never given to a node: left out"] * (nowhere > 0)
    return [row for row in found if row.node], troubles


def _owners(kinds: Mapping[str, list[Document]]) -> tuple[dict[tuple[str, str, str], _Owner], dict[tuple[str, str], _Owner]]:
    """Jobs and RayJobs by kind, name space and name; and RayJobs by the cluster that was made for them."""
    found: dict[tuple[str, str, str], _Owner] = {}
    clusters: dict[tuple[str, str], _Owner] = {}
    for each in kinds.get("RayJob", []):
        space, name = place(each)
        status, message = text_in(each, "status", "jobStatus"), text_in(each, "status", "message")
        # jobDeploymentStatus is Failed as well if the cluster never came to be, or time was up (ray.io/v1: rayjob_types.go).
        failed = text_in(each, "status", "jobDeploymentStatus") == "Failed" and status != "SUCCEEDED"
        outcome = "failed" if failed else _RAY.get(status, "")
        owner = _Owner(
            f"{space}/{name}",
            outcome,
            True,
            seconds(text_in(each, "status", "startTime")),
            seconds(text_in(each, "status", "endTime")),
            (died(message).error or words(text_in(each, "status", "reason"), message)) if outcome == "failed" else "",
        )
        found["RayJob", space, name] = owner
        if cluster := text_in(each, "status", "rayClusterName"):
            clusters[space, cluster] = owner
    for each in kinds.get("Job", []):
        space, name = place(each)
        outer = found.get(("RayJob", space, controller(each)[1])) if controller(each)[0] == "RayJob" else None
        found["Job", space, name] = outer or _batch(each, f"{space}/{name}")
    return found, clusters


def _batch(job: Document, name: str) -> _Owner:
    outcome, ended, error = "", seconds(text_in(job, "status", "completionTime")), ""
    for condition in list_in(job, "status", "conditions"):
        if text_in(condition, "status") != "True":
            continue
        if (kind := text_in(condition, "type")) in ("Complete", "Failed"):
            outcome = "succeeded" if kind == "Complete" else "failed"
            ended = ended if ended is not None else seconds(text_in(condition, "lastTransitionTime"))
            if outcome == "failed":
                error = words(text_in(condition, "reason"), text_in(condition, "message"))
    return _Owner(name, outcome, True, seconds(text_in(job, "status", "startTime")), ended, error)


def _of(
    pod: Document, owners: Mapping[tuple[str, str, str], _Owner], clusters: Mapping[tuple[str, str], _Owner]
) -> _Owner | None:
    """Whose a pod is; None if it is no job's."""
    space, name = place(pod)
    kind, called = controller(pod)
    if kind in _STANDING:
        return None
    if kind == "RayCluster":
        return clusters.get((space, called))
    if kind:
        return owners.get((kind, space, called)) or _Owner(f"{space}/{called}")
    # Without a controller: a job by itself if it is not to be started again and again.
    return None if text_in(pod, "spec", "restartPolicy") in ("Always", "") else _Owner(f"{space}/{name}")


def _job(owner: _Owner, pods: list[Document]) -> list[Job]:
    judged = [(pod, outcome_of(pod)) for pod in pods]
    of_ray = owner.known and any(controller(pod)[0] == "RayCluster" for pod in pods)
    outcome = owner.outcome
    if not owner.known:
        every = {each for _, each in judged}
        outcome = "" if "" in every else next(each for each in ("failed", "stopped", "succeeded") if each in every)
    found = []
    for pod, own in judged:
        attempt = own == "failed" and outcome == "succeeded"
        started, ended = seconds(text_in(pod, "status", "startTime")), ended_of(pod)
        if of_ray:
            # The nodes of a Ray cluster outlive the job, or are ended with it.
            started = max((each for each in (started, owner.started_s) if each is not None), default=None)
            ended = min((each for each in (ended, owner.ended_s) if each is not None), default=None)
        elif ended is None:
            ended = owner.ended_s
        name = f"{owner.name} ({place(pod)[1]})" if attempt else owner.name
        row_outcome = "failed" if attempt else outcome
        error = (error_of(pod) or owner.error) if row_outcome == "failed" else ""
        node = text_in(pod, "spec", "nodeName")
        found.append(Job(name, node, started, ended if row_outcome else None, row_outcome, gpus(pod), error))
    return found
