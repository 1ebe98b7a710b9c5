"""What becomes of each pod, one by one: the table of the documentation, and which pods are somebody's run."""

from typing import Any

import pytest

from exhume.cluster.pods import Allowed, has_gpu, is_job, one_pod
from tests.cluster.objects import pod

ALL = Allowed(unmanaged=True, empty_dir=True)
IDLE = Allowed(when_idle=True)
DAEMON = {"kind": "DaemonSet", "controller": True}
JOB = {"kind": "Job", "controller": True}
DELETED = "2026-11-16T12:00:00Z"


def made(owner: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, phase: str = "Running", **meta: Any) -> Any:
    one = pod("p", "n", owner or {"kind": "ReplicaSet", "controller": True}, **meta)
    return {**one, "spec": {**one["spec"], **(spec or {})}, "status": {"phase": phase}}


def wanting(name: str, amount: object = "1") -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {"limits": {name: amount}}}]}


@pytest.mark.parametrize(
    ("one", "allowed", "fate"),
    [
        (made(), Allowed(), "evict"),
        (made(DAEMON), ALL, "leave"),
        (made(DAEMON, wanting("nvidia.com/gpu")), IDLE, "leave"),
        (made(DAEMON, deletionTimestamp=DELETED), ALL, "leave"),
        (made(annotations={"kubernetes.io/config.mirror": "x"}), ALL, "leave"),
        (made(phase="Succeeded"), Allowed(), "leave"),
        (made(phase="Failed", deletionTimestamp=DELETED), Allowed(), "leave"),
        (made(phase="Pending"), Allowed(), "evict"),
        (made(phase="Unknown"), Allowed(), "evict"),
        (made(deletionTimestamp=DELETED), Allowed(), "wait"),
        (made({"kind": "ReplicaSet"}), Allowed(), "blocks"),
        (made({"kind": "ReplicaSet"}), ALL, "evict"),
        (made(spec={"volumes": [{"emptyDir": {"medium": "Memory"}}]}), Allowed(), "blocks"),
        (made(spec={"volumes": [{"emptyDir": {}}]}), ALL, "evict"),
        (made(spec={"volumes": [{"hostPath": {"path": "/data"}}]}), Allowed(), "evict"),
        (made(annotations={"karpenter.sh/do-not-disrupt": "true"}), ALL, "blocks"),
        (made(annotations={"karpenter.sh/do-not-disrupt": "true"}), IDLE, "wait"),
        (made(JOB), Allowed(), "evict"),
        (made(JOB), IDLE, "wait"),
        (made(spec=wanting("nvidia.com/gpu")), IDLE, "wait"),
        (made(), IDLE, "evict"),
    ],
)
def test_the_fate_of_a_pod(one: dict[str, Any], allowed: Allowed, fate: str) -> None:
    assert one_pod(one, allowed).fate == fate


@pytest.mark.parametrize(
    ("spec", "run"),
    [
        (wanting("nvidia.com/gpu"), True),
        (wanting("nvidia.com/gpu", 4), True),
        (wanting("nvidia.com/gpu", "0"), False),
        (wanting("nvidia.com/gpu.shared"), True),
        (wanting("nvidia.com/mig-1g.10gb"), True),
        (wanting("amd.com/gpu"), True),
        (wanting("gpu.intel.com/i915"), True),
        (wanting("habana.ai/gaudi"), True),
        (wanting("aws.amazon.com/neuroncore"), True),
        (wanting("google.com/tpu"), True),
        (wanting("cpu", "64"), False),
        ({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}, True),
        ({"restartPolicy": "Never"}, True),
        ({"restartPolicy": "OnFailure"}, True),
        ({"restartPolicy": "Always"}, False),
    ],
)
def test_which_pods_are_somebodys_run(spec: dict[str, Any], run: bool) -> None:
    assert is_job(made(spec=spec)) is run


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob", "RayCluster", "Workflow", "Pod"])
def test_what_no_service_has_made_is_a_run(kind: str) -> None:
    assert is_job(made({"kind": kind, "controller": True}))


@pytest.mark.parametrize(
    ("capacity", "idle"),
    [
        ({"nvidia.com/gpu": "8"}, True),
        ({"nvidia.com/mig-3g.40gb": "2"}, True),
        ({"amd.com/gpu": "8"}, True),
        ({"nvidia.com/gpu": "0", "cpu": "96"}, False),
        ({}, False),
    ],
)
def test_a_drain_waits_for_jobs_by_default_where_there_are_accelerators(capacity: dict[str, str], idle: bool) -> None:
    assert has_gpu({"status": {"capacity": capacity}}) is idle


def test_a_pod_that_is_being_deleted_keeps_others_company_only_if_it_is_a_run() -> None:
    assert not one_pod(made(deletionTimestamp=DELETED), IDLE).run
    assert one_pod(made(JOB, deletionTimestamp=DELETED), IDLE).run
