"""What is left in a real cluster when the agents are gone, and that exhume uninstall --cluster takes exactly that away."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.cli.main import main
from exhume.cluster.cleanup import left, remove, still_out
from exhume.cluster.client import STRATEGIC, Client
from exhume.cluster.conditions import KINDS, Seen
from exhume.cluster.cordon import MARK, cordon, find_nodes, read_node, uncordon
from exhume.cluster.document import names_in
from exhume.cluster.reporter import Reporter
from tests.cluster import servers
from tests.cluster.objects import make_node
from tests.cluster.servers import Cluster

pytestmark = pytest.mark.ci
OURS = {kind.name for kind in KINDS}


def conditions(client: Client, node: str) -> set[str]:
    return {one["type"] for one in read_node(client, node)["status"].get("conditions", [])}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of its own: other tests leave nodes that are out."""
    with servers.running(tmp_path) as cluster:
        yield cluster


def test_conditions_and_marks_go_and_everything_of_others_stays(
    own: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", os.fspath(own.kubeconfig()))
    with own.client() as client:
        sick, other, held = (make_node(client, name=name) for name in ("sick", "other", "held"))
        assert Reporter(client, sick).report([Seen("memcg-leak", "it leaks")]) == []
        theirs = [{"type": name, "status": "True", "reason": "R"} for name in ("DiskPressure", "MemoryCgroupLeak")]
        by = {"fieldManager": "node-problem-detector"}
        for node, told in ((sick, theirs[:1]), (other, theirs)):
            body = {"status": {"conditions": [{**one, "lastHeartbeatTime": "2026-01-01T00:00:00Z"} for one in told]}}
            client.request("PATCH", f"/api/v1/nodes/{node}/status", body, STRATEGIC, by)
        # Somebody uncordoned it by hand: the mark stays behind.
        assert cordon(client, other, "plan-1") == ""
        client.request(
            "PATCH", f"/api/v1/nodes/{other}", {"spec": {"unschedulable": None}}, STRATEGIC, {"fieldManager": "kubectl"}
        )
        assert cordon(client, held, "plan-2") == ""

        assert main(["uninstall", "--cluster", "--yes"]) == 2
        assert "held is out of service by exhume: exhume node release puts a node back" in capsys.readouterr().err
        assert still_out(find_nodes(client)) == ["held"]
        assert uncordon(client, held) == ""

        assert main(["uninstall", "--cluster", "--dry-run"]) == 0
        said = capsys.readouterr().out
        assert "Left by exhume at 2 of 3 nodes:" in said
        assert "the mark of a cordon that is over" in said
        assert main(["uninstall", "--cluster"]) == 2  # nobody is there to be asked
        assert conditions(client, sick) == {*OURS, "DiskPressure"}
        capsys.readouterr()

        assert main(["uninstall", "--cluster", "--yes"]) == 0
        assert conditions(client, sick) == {"DiskPressure"}
        assert conditions(client, other) == {"DiskPressure", "MemoryCgroupLeak"}
        assert MARK not in names_in(read_node(client, other), "metadata", "annotations")
        capsys.readouterr()
        assert main(["uninstall", "--cluster", "--yes"]) == 0
        assert capsys.readouterr().out == "exhume left nothing in this cluster.\n"

        Reporter(client, sick).report([])
        [one] = left(find_nodes(client))
        client.request("DELETE", f"/api/v1/nodes/{sick}")
        assert remove(client, one) is False
    monkeypatch.setenv("KUBECONFIG", os.fspath(own.kubeconfig("nobody")))
    assert main(["uninstall", "--cluster", "--yes"]) == 3
    assert "nobody may not list nodes in this cluster: a role must give it the verb list on nodes" in capsys.readouterr().err
    assert main(["uninstall", "--cluster", "--keep-journal"]) == 64
