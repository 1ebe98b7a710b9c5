"""Jobs that fix nodes, on a real API server with the real Job controller; kwok and the test play kubelet and container."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.cli.main import main
from exhume.cluster.client import Client
from exhume.errors import Refused
from exhume.fleet.waves import Result
from exhume.fleet.waves_job import JOB_RIGHTS, NODE_RIGHTS, Asked, manifest, name
from exhume.fleet.waves_job_run import Clock, fix, refuse_without_rights
from tests.cluster import servers
from tests.cluster.objects import await_ready, grant, until
from tests.fleet.controllers import Logs, controllers, ending, faster, played, waiting

pytestmark = pytest.mark.ci
ASKED = Asked("registry.test/exhume:1", "ecs.service", irreversible=True)
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PROOF = b'some text\n{"schema": "exhume.proof/2", "passed": true}\n'
QUICK = Clock(*faster(10))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Cluster]:
    with servers.running(tmp_path_factory.mktemp("jobs")) as running, servers.kubelets(running), controllers(running):
        yield running


@pytest.fixture(scope="module")
def logs(cluster: servers.Cluster) -> Iterator[Logs]:
    made = Logs(cluster)
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def client(cluster: servers.Cluster) -> Iterator[Client]:
    with cluster.client() as one:
        yield one


@pytest.fixture
def node(client: Client, logs: Logs) -> str:
    made = logs.node(client)
    await_ready(client, made)
    return made


def jobs(client: Client) -> list[str]:
    return [job["metadata"]["name"] for job in client.list(JOBS)]


def test_a_job_runs_on_its_node_is_believed_by_its_proof_and_leaves_nothing(
    cluster: servers.Cluster, client: Client, logs: Logs, node: str
) -> None:
    logs.said[name(ASKED, node)] = PROOF
    with played(cluster, node, ending(0)) as seen:
        assert fix(cluster.client, ASKED, node, QUICK) == Result(node, "fixed", "it ended well, and the proof passed")
    spec = seen[0]["spec"]
    assert (spec["nodeName"], spec["hostPID"], spec["restartPolicy"]) == (node, True, "Never")
    assert spec["containers"][0]["securityContext"]["privileged"] is True
    assert any(one.startswith(f"/containerLogs/default/{seen[0]['metadata']['name']}/fix") for one in logs.asked)
    until(lambda: name(ASKED, node) not in jobs(client))
    until(lambda: not list(client.list("/api/v1/namespaces/default/pods", fieldSelector=f"spec.nodeName={node}")))


def test_a_failure_says_what_went_wrong_and_is_left_to_be_looked_at_and_can_be_done_again(
    cluster: servers.Cluster, client: Client, logs: Logs, node: str
) -> None:
    logs.said[name(ASKED, node)] = b"stopping\nexhume: ecs.service is needed by \x1b[31mapp.service\nand more\n"
    with played(cluster, node, ending(2)):
        result = fix(cluster.client, ASKED, node, QUICK)
    assert result.outcome == "failed"
    assert result.said.startswith(r"exit code 2: ecs.service is needed by \x1b[31mapp.service; the Job exhume-fix-")
    assert name(ASKED, node) in jobs(client)
    logs.said[name(ASKED, node)] = PROOF
    with played(cluster, node, ending(0)):
        assert fix(cluster.client, ASKED, node, QUICK).outcome == "fixed"


def test_what_could_not_be_judged_is_not_taken_for_fixed(cluster: servers.Cluster, logs: Logs, node: str) -> None:
    logs.said[name(ASKED, node)] = b"OPEN  Nothing can be said yet: 3 minutes are too few.\n\n  detail\n"
    with played(cluster, node, ending(3)):
        result = fix(cluster.client, ASKED, node, QUICK)
    assert result.outcome == "not proven"
    assert "3 minutes are too few" in result.said


def test_without_a_log_the_last_message_of_the_container_is_read(cluster: servers.Cluster, logs: Logs, node: str) -> None:
    with cluster.client() as client:
        logs.serves(client, node, 1)  # nobody is there
    with played(cluster, node, ending(3, message="exhume: the bus of the node cannot be reached")):
        result = fix(cluster.client, ASKED, node, QUICK)
    assert (result.outcome, result.said.partition(";")[0]) == ("not proven", "the bus of the node cannot be reached")


def test_one_that_does_not_end_is_ended_by_the_cluster(cluster: servers.Cluster, client: Client, node: str) -> None:
    short = replace(ASKED, timeout_s=2.0)
    result = fix(cluster.client, short, node, Clock())
    assert result.outcome == "failed"
    assert result.said.startswith("it did not end within 2 s and was ended; the Job")
    until(lambda: not list(client.list("/api/v1/namespaces/default/pods", fieldSelector=f"spec.nodeName={node}")))


def test_an_image_that_cannot_be_pulled_is_given_up_at_once(cluster: servers.Cluster, client: Client, node: str) -> None:
    with played(cluster, node, waiting("ImagePullBackOff", "Back-off pulling image registry.test/exhume:1")):
        result = fix(cluster.client, ASKED, node, QUICK)
    assert result.outcome == "failed"
    assert result.said == (
        "its container cannot begin: ImagePullBackOff: Back-off pulling image registry.test/exhume:1; the Job was deleted"
    )
    assert name(ASKED, node) not in jobs(client)


def test_a_namespace_that_forbids_privileged_pods_is_said(cluster: servers.Cluster, client: Client, node: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    client.create("/api/v1/namespaces", {"metadata": {"name": "strict", "labels": labels}})
    asked = replace(ASKED, namespace="strict")
    result = fix(cluster.client, asked, node, Clock(*faster(20)))
    assert result.outcome == "failed"
    assert "the cluster made no pod of it within 60 s" in result.said
    assert "violates PodSecurity" in result.said
    assert not list(client.list("/apis/batch/v1/namespaces/strict/jobs"))


def test_a_namespace_or_a_node_that_is_not_there_is_said(cluster: servers.Cluster, client: Client, node: str) -> None:
    assert 'namespaces "nowhere" not found' in fix(cluster.client, replace(ASKED, namespace="nowhere"), node, QUICK).said
    assert 'nodes "no-such-node" not found' in fix(cluster.client, ASKED, "no-such-node", QUICK).said
    assert "is not the name of a node" in fix(cluster.client, ASKED, "Not_A-Name", QUICK).said


def test_a_job_that_runs_already_is_watched_and_none_is_begun_beside_it(
    cluster: servers.Cluster, client: Client, logs: Logs, node: str
) -> None:
    made = client.create(JOBS, manifest(ASKED, node))
    logs.said[name(ASKED, node)] = PROOF
    with played(cluster, node, ending(0)) as seen:
        assert fix(cluster.client, ASKED, node, QUICK).outcome == "fixed"
    assert [one["metadata"]["ownerReferences"][0]["uid"] for one in seen] == [made["metadata"]["uid"]]


def test_one_that_somebody_deletes_meanwhile_is_not_proven(cluster: servers.Cluster, client: Client, node: str) -> None:
    def delete() -> None:
        with cluster.client() as other:
            until(lambda: name(ASKED, node) in jobs(other))
            other.request("DELETE", f"{JOBS}/{name(ASKED, node)}", query={"propagationPolicy": "Background"})

    thread = threading.Thread(target=delete)
    thread.start()
    result = fix(cluster.client, ASKED, node, QUICK)
    thread.join()
    assert result.outcome == "not proven"
    assert "deleted by somebody" in result.said


def test_rights_are_asked_for_before_anything_is_done_and_just_these_are_enough(
    cluster: servers.Cluster, client: Client, logs: Logs, node: str
) -> None:
    with cluster.client("drainer") as one, pytest.raises(Refused) as nothing:
        refuse_without_rights(one, ASKED)
    assert "get nodes, create jobs, get jobs, delete jobs, list pods, get pods/log are missing" in str(nothing.value)
    rules = [{"apiGroups": [one.group], "resources": [one.resource], "verbs": [one.verb]} for one in NODE_RIGHTS]
    grant(client, "drainer", rules)
    inner = [{"apiGroups": [one.group], "resources": [one.resource], "verbs": [one.verb]} for one in JOB_RIGHTS]
    role = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    client.create(f"{role}/roles", {"metadata": {"name": "fixer"}, "rules": inner[:-1]})
    client.create(
        f"{role}/rolebindings",
        {
            "metadata": {"name": "fixer"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "fixer"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "drainer"}],
        },
    )
    with cluster.client("drainer") as one:
        until(lambda: _lacks(one) == "get pods/log is missing")
        client.patch(f"{role}/roles/fixer", {"rules": inner})
        until(lambda: _lacks(one) == "")
    logs.said[name(ASKED, node)] = PROOF
    with played(cluster, node, ending(0)):
        assert fix(lambda: cluster.client("drainer"), ASKED, node, QUICK).outcome == "fixed"


def _lacks(client: Client) -> str:
    try:
        refuse_without_rights(client, ASKED)
    except Refused as refused:
        return str(refused).partition("default: ")[2].partition(";")[0]
    return ""


def test_the_command_rolls_it_out_over_the_nodes_of_a_cluster(
    cluster: servers.Cluster,
    client: Client,
    logs: Logs,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig()))
    monkeypatch.setattr("exhume.fleet.waves_job_run.POLL_S", 0.2)
    names = [logs.node(client) for _ in range(3)]
    await_ready(client, *names)
    asked = Asked("registry.test/exhume:1", "ecs.service")
    for one in names:
        logs.said[name(asked, one)] = PROOF
    command = ["fleet", "fix", "k8s:", "ecs.service", "--nodes", ",".join(names), "--image", asked.image, "--at-most", "2"]
    command += ["--journal", str(tmp_path / "j")]
    assert main(command) == 0
    assert "For each: a Job of registry.test/exhume:1 in the namespace default: exhume fix" in capsys.readouterr().out
    assert not set(jobs(client)) & {name(asked, one) for one in names}
    with played(cluster, names[0], ending(0)), played(cluster, names[1], ending(0)), played(cluster, names[2], ending(0)):
        assert main([*command, "--apply"]) == 0
    said = capsys.readouterr()
    assert said.out == "Fixed: all 3 nodes.\n"
    assert said.err.count("the proof passed") == 3
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig("nobody")))
    assert main([*command[:-1], str(tmp_path / "other"), "--apply"]) == 2
    assert "give too little in the namespace default" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()
