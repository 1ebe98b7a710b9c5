"""exhume node, as it is typed, against a real API server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exhume.cluster import cordon
from exhume.cluster.rights import DRAIN, missing, rules
from tests.cluster.objects import await_ready, grant, make_node, make_pod, pod, until
from tests.cluster.servers import Cluster

pytestmark = pytest.mark.ci


def exhume(cluster: Cluster, journal: Path, *words: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "KUBECONFIG": os.fspath(cluster.kubeconfig(user))}
    command = [sys.executable, "-m", "exhume", "node", *words]
    if words[0] != "status":
        command += ["--journal", os.fspath(journal)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


def test_a_plan_changes_nothing_and_apply_drains(kubelets: Cluster, tmp_path: Path) -> None:
    with kubelets.client() as client:
        name = make_node(client)
        await_ready(client, name)
        make_pod(client, pod(f"{name}-a", name))
        shown = exhume(kubelets, tmp_path, "drain", name)
        assert shown.returncode == 0, shown.stderr
        assert f"evict   default/{name}-a  ReplicaSet makes it again" in shown.stdout
        assert "Nothing was changed" in shown.stdout
        assert not cordon.closed(cordon.read_node(client, name))
        done = exhume(kubelets, tmp_path, "drain", name, "--apply", "--yes", "--yes-irreversible", "--max-at-once", "99")
        assert done.returncode == 0, done.stderr
        assert "1 evicted" in done.stdout
        assert f"  {name} " in exhume(kubelets, tmp_path, "status").stdout
        back = exhume(kubelets, tmp_path, "release", name, "--apply", "--yes")
        assert back.returncode == 0, back.stderr
        assert not cordon.closed(cordon.read_node(client, name))


def test_rights_that_are_too_small_are_named(kubelets: Cluster, tmp_path: Path) -> None:
    with kubelets.client() as client, kubelets.client("drainer") as drainer:
        name = make_node(client)
        await_ready(client, name)
        make_pod(client, pod(f"{name}-a", name))
        for taken in DRAIN:
            grant(client, "drainer", rules([right for right in DRAIN if right is not taken]))
            until(lambda taken=taken: missing(drainer, DRAIN) == (taken,))  # type: ignore[misc]
            words = ("drain", name, "--apply", "--yes", "--yes-irreversible", "--max-at-once", "99")
            journal = tmp_path / f"{taken.verb}-{taken.resource.replace('/', '-')}"
            journal.mkdir()
            done = exhume(kubelets, journal, *words, user="drainer")
            told = " ".join((done.stdout + done.stderr).split())
            assert done.returncode in (2, 3), told
            assert f"a role must give it the verb {taken.verb} on {taken.resource}" in told
            cordon.uncordon(client, name)
        assert [one["metadata"]["name"] for one in client.list("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")] == [
            f"{name}-a"
        ]


def test_a_drain_that_a_pod_stands_in_the_way_of_does_not_begin(kubelets: Cluster, tmp_path: Path) -> None:
    with kubelets.client() as client:
        name = make_node(client)
        await_ready(client, name)
        make_pod(client, pod(f"{name}-bare", name, None))
        done = exhume(kubelets, tmp_path, "drain", name, "--apply", "--yes", "--yes-irreversible", "--max-at-once", "99")
        assert done.returncode == 2
        assert "nothing would make it again (--unmanaged evicts it)" in done.stderr
        assert not cordon.closed(cordon.read_node(client, name))
        assert not (tmp_path / "var").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("drain",),
        ("status", "n1"),
        ("drain", "n1", "--max-at-once", "0"),
        ("drain", "n1", "--reboot", "now", "--journal", "/tmp"),
    ],
)
def test_what_cannot_be_meant_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "exhume", "node", *words]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 64
