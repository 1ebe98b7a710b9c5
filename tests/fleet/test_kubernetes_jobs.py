"""Jobs from a dump of Kubernetes: whose a pod is, how it ended, what it died of, and nothing that a dump can hold breaks it."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli import fleet_jobs
from exhume.cluster.document import seconds
from exhume.errors import ExhumeError, UsageError
from exhume.fleet import jobs_sources
from exhume.fleet.jobs_directory import load
from exhume.fleet.kubernetes_jobs import read, rows
from exhume.fleet.model import Job

START, END = "2025-03-01T12:00:00Z", "2025-03-01T13:42:10Z"


def run_jobs(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    fleet_jobs.arguments(parser)
    return fleet_jobs.run(parser.parse_args(arguments))


def pod(name: str, node: str = "node-a", phase: str = "Succeeded", **more: Any) -> dict[str, Any]:
    """As the API server has it; `owner` is kind and name, `ended` the terminated state, `status` and `spec` are put on top."""
    owner = more.get("owner")
    ended = more.get("ended", {"exitCode": 0, "reason": "Completed", "finishedAt": END})
    container = {"name": "train", "resources": {"limits": {"nvidia.com/gpu": str(more.get("gpus", 8)), "cpu": "64"}}}
    references = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    status = {"phase": phase, "startTime": START, "containerStatuses": [{"name": "train", "state": {"terminated": ended}}]}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", "ownerReferences": references},
        "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [container], **more.get("spec", {})},
        "status": {**status, **more.get("status", {})},
    }


def job(name: str, condition: str, **more: Any) -> dict[str, Any]:
    conditions = [{"type": condition, "status": "True", "lastTransitionTime": END, **more}] if condition else []
    return {
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ml"},
        "status": {"startTime": START, "conditions": conditions},
    }


def died(reason: str, code: int = 1, **more: Any) -> dict[str, Any]:
    return {"exitCode": code, "reason": reason, "finishedAt": END, **more}


def one(*objects: dict[str, Any]) -> Job:
    (found,), troubles = rows(objects)
    assert troubles == []
    return found


def test_a_pod_of_a_job_that_went_well() -> None:
    found = one(job("train", "Complete"), pod("train-x", owner=("Job", "train")))
    assert found == Job("ml/train", "node-a", seconds(START), seconds(END), "succeeded", 8.0, "")


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"ended": died("OOMKilled", 137)}, "OOMKilled: container train, exit code 137"),
        ({"ended": died("Error", 3)}, "Error: container train, exit code 3"),
        (
            {
                "ended": died(
                    "Error", 1, message="Traceback ...\nray.exceptions.ActorDiedError: The actor died.\n\tip: 10.0.0.1"
                )
            },
            "ActorDiedError: The actor died.",
        ),
        (
            {"status": {"reason": "Evicted", "message": "The node was low on resource: memory. ", "containerStatuses": None}},
            "Evicted: The node was low on resource: memory.",
        ),
        ({"status": {"reason": "NodeLost"}}, "NodeLost"),
        (
            {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]}},
            "DeletionByTaintManager",
        ),
    ],
)
def test_what_a_pod_died_of_is_told(more: dict[str, Any], error: str) -> None:
    failed = job("train", "Failed", reason="BackoffLimitExceeded", message="Job has reached the specified backoff limit")
    found = one(failed, pod("train-x", phase="Failed", owner=("Job", "train"), **more))
    assert (found.outcome, found.error) == ("failed", error)
    assert found.ended_s == seconds(END)


def test_an_evicted_pod_ends_when_it_was_told_to_go() -> None:
    told = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "lastTransitionTime": END}
    status = {"reason": "Evicted", "containerStatuses": [], "conditions": [told]}
    found = one(pod("lonely", phase="Failed", status=status))
    assert (found.job, found.ended_s, found.error) == ("ml/lonely", seconds(END), "Evicted")


def test_what_made_room_for_another_was_stopped() -> None:
    told = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    assert one(pod("lonely", phase="Failed", status={"conditions": told})).outcome == "stopped"


def test_an_attempt_that_failed_is_a_job_of_its_own_if_the_job_succeeded_later() -> None:
    found, _ = rows(
        [
            job("train", "Complete"),
            pod("train-1", phase="Failed", owner=("Job", "train"), ended=died("OOMKilled", 137)),
            pod("train-2", node="node-b", owner=("Job", "train")),
        ]
    )
    assert [(row.job, row.node, row.outcome) for row in found] == [
        ("ml/train (train-1)", "node-a", "failed"),
        ("ml/train", "node-b", "succeeded"),
    ]


def test_pods_of_a_ray_cluster_belong_to_the_ray_job_and_end_with_it() -> None:
    message = "Job entrypoint command failed\nray.exceptions.ObjectFetchTimedOutError: Failed to retrieve object 00ff"
    status = {"jobStatus": "FAILED", "rayClusterName": "tune-c", "startTime": START, "endTime": END, "message": message}
    ray = {"kind": "RayJob", "metadata": {"name": "tune", "namespace": "ml"}, "status": status}
    submitter = {**job("tune", "Failed"), "metadata": {"name": "tune", "namespace": "ml"}}
    submitter["metadata"]["ownerReferences"] = [{"kind": "RayJob", "name": "tune", "controller": True}]
    running = {"containerStatuses": [{"name": "ray-worker", "state": {"running": {}}}]}
    found, troubles = rows(
        [
            ray,
            submitter,
            pod("tune-c-head", "node-h", "Running", owner=("RayCluster", "tune-c"), gpus=0, status=running),
            pod("tune-c-worker", "node-w", "Running", owner=("RayCluster", "tune-c"), status=running),
            pod("other-c-head", "node-o", "Running", owner=("RayCluster", "other-c"), status=running),
        ]
    )
    error = "ObjectFetchTimedOutError: Failed to retrieve object 00ff"
    assert found == [
        Job("ml/tune", "node-h", seconds(START), seconds(END), "failed", 0.0, error),
        Job("ml/tune", "node-w", seconds(START), seconds(END), "failed", 8.0, error),
    ]
    assert troubles == []


def test_what_runs_for_ever_is_no_job_and_what_runs_still_has_no_outcome() -> None:
    found, troubles = rows(
        [
            pod("web-1", owner=("ReplicaSet", "web")),
            pod("agent-1", owner=("DaemonSet", "agent")),
            pod("shell", spec={"restartPolicy": "Always"}),
            pod("mpi-1", phase="Running", owner=("MPIJob", "mpi")),
            pod("waits", node="", phase="Pending"),
            job("gone", "Complete"),
        ]
    )
    assert [(row.job, row.outcome, row.ended_s) for row in found] == [("ml/mpi", "", None)]
    assert troubles == [
        "of 1 jobs the pods are gone: where they ran is not known",
        "1 pods were never given to a node: left out",
    ]


def test_gpus_are_what_containers_ask_for_together() -> None:
    def wants(**resources: dict[str, str]) -> dict[str, Any]:
        return {"name": "c", "resources": resources}

    both = {"nvidia.com/gpu": "2"}
    containers = [
        wants(limits=both, requests=both),
        wants(limits={"amd.com/gpu": "1"}),
        wants(limits={"nvidia.com/mig-3g.40gb": "1"}),
    ]
    assert one(pod("many", spec={"containers": containers})).gpus == pytest.approx(3 + 3 / 7)
    assert one(pod("first", spec={"initContainers": [wants(limits={"nvidia.com/gpu": "16"})]})).gpus == 16


def test_a_dump_is_told_from_a_table_and_joined_with_the_minutes(tmp_path: Path) -> None:
    (tmp_path / "minutes.csv").write_text("node,time,resets\nnode-a,2025-03-01 13:40:00,1\nnode-a,2025-03-01 12:10:00,0\n")
    dump = {"apiVersion": "v1", "kind": "List", "items": [pod("\ud800", phase="Failed", ended=died("Error"))]}
    (tmp_path / "pods.json").write_text(json.dumps(dump))
    given_rows = jobs_sources.read(str(tmp_path / "pods.json"))
    assert given_rows is not None
    joined = load(str(tmp_path), rows=given_rows[0])
    assert joined.names == ("ml/\\ud800",)
    assert joined.near.tolist() == [[True, False]]
    assert joined.gpu_hours.tolist() == pytest.approx([8 * 6130 / 3600])
    (tmp_path / "table.json").write_text('[{"job": "j", "node": "node-a"}]')
    assert jobs_sources.read(str(tmp_path / "table.json")) is None
    with pytest.raises(ExhumeError, match="cannot be read: No such file"):
        jobs_sources.read(str(tmp_path / "none.json"))


def test_nodes_of_ray_that_are_pods_are_put_onto_their_machines(tmp_path: Path) -> None:
    running = pod(
        "ray-head", "node-a", "Running", status={"podIP": "10.1.0.5", "podIPs": [{"ip": "10.1.0.5"}, {"ip": "fd00::5"}]}
    )
    ended = pod("ray-old", "node-b", status={"podIP": "10.1.0.5"})
    (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "items": [ended, running, ended, job("x", "Complete")]}))
    names = ["ray-head", "10.1.0.5", "fd00::5", "ray-old", "node-c"]
    placed = jobs_sources.placed([Job("j", name, 0.0, 1.0, "failed") for name in names], str(tmp_path / "pods.json"))
    assert [row.node for row in placed] == ["node-a", "node-a", "node-a", "node-b", "node-c"]
    with pytest.raises(UsageError, match="--pods goes with --jobs ray:"):
        run_jobs(str(tmp_path), "--pods", "pods.json")


NAMES = (
    "kind metadata name namespace ownerReferences controller spec status phase reason message conditions type items "
    "containerStatuses state terminated finishedAt exitCode containers resources limits nvidia.com/gpu"
).split()
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from([START, END, "Failed", "Job"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=6,
        )
    ),
    max_leaves=25,
)
KIND = st.sampled_from(["Pod", "Job", "RayJob", "List", ""])


@given(st.lists(st.tuples(KIND, ANY), max_size=6))
def test_objects_of_any_shape_become_rows_or_nothing(objects: list[tuple[str, Any]]) -> None:
    found, troubles = rows([{**(each if isinstance(each, dict) else {}), "kind": kind} for kind, each in objects])
    assert len(found) <= len(objects)
    assert all(isinstance(each, str) for each in troubles)
    for row in found:
        assert row.node
        assert row.outcome in ("succeeded", "failed", "stopped", "")
        assert row.gpus >= 0


@given(st.binary(max_size=80) | ANY.map(lambda each: json.dumps({"kind": "List", "items": [each]}).encode()))
def test_any_bytes_are_read_or_refused_in_a_sentence(raw: bytes) -> None:
    said = r"x\x1b.json is not"
    found: list[Job] = []
    try:
        found, _ = read(raw, "x\x1b.json")
    except ExhumeError as error:
        said = str(error)
    assert said.startswith(r"x\x1b.json is not")
    assert len(found) <= 1


@given(st.data(), ANY)
def test_a_pod_with_anything_in_one_place_is_still_read(data: st.DataObject, anything: Any) -> None:
    whole = [job("train", "Failed", reason="x"), pod("train-x", phase="Failed", owner=("Job", "train"), ended=died("Error"))]
    place: Any = whole
    while isinstance(place, dict | list) and place:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.booleans()):
            place[key] = anything
            break
        place = place[key]
    found, _ = rows([each for each in whole if isinstance(each, dict)])
    assert [(row.node != "", row.gpus >= 0, isinstance(row.error, str)) for row in found] == [(True, True, True)] * len(found)
