"""The agent as it runs on a node of a real cluster, with exactly the rights of its role: its conditions appear."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exhume.cluster.conditions import KINDS
from exhume.cluster.rights import AGENT, missing, rules
from tests.cluster.objects import grant, make_node, until
from tests.cluster.servers import Cluster
from tests.cluster.test_reporter import conditions

pytestmark = pytest.mark.ci


def test_a_node_whose_agent_runs_has_the_three_conditions(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.client() as admin, cluster.client("agent") as client:
        grant(admin, "agent", rules(AGENT))
        until(lambda: not missing(client, AGENT))
        node = make_node(admin)
        environment = {
            **os.environ,
            "KUBECONFIG": os.fspath(cluster.kubeconfig("agent")),
            "EXHUME_AGENT_KUBERNETES_ENABLED": "true",
            "EXHUME_AGENT_KUBERNETES_NODE_NAME": node,
            "EXHUME_AGENT_HZ": "0",
            "EXHUME_AGENT_LATENCY": "false",
            "EXHUME_AGENT_AUDIT_EVERY_H": "0",
        }
        command = [
            sys.executable,
            "-m",
            "exhume",
            "agent",
            "--dir",
            os.fspath(tmp_path / "recording"),
            "--listen",
            "127.0.0.1:0",
        ]
        with open(tmp_path / "said", "wb") as said:
            agent = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        try:
            until(lambda: agent.poll() is not None or "MemoryCgroupLeak" in conditions(admin, node), 90.0)
        finally:
            agent.terminate()
            assert agent.wait(30) == 0, (tmp_path / "said").read_text()
        found = conditions(admin, node)
        assert {kind.name for kind in KINDS} <= set(found)
        assert "cluster:" not in (tmp_path / "said").read_text()
