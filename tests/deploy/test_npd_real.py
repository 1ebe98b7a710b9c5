"""A real node-problem-detector with our configuration, on a real API server: it runs exhume, and the node's conditions follow.

Only what the machine decides is changed in the configuration: where the program is, and how often it is asked.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exhume.cluster.client import Client
from exhume.cluster.conditions import KINDS
from tests import zombies
from tests.cluster import servers
from tests.cluster.objects import make_node, until

pytestmark = [pytest.mark.ci, pytest.mark.skipif(bool(zombies.unavailable()), reason=zombies.unavailable() or "-")]
TOP = Path(__file__).parents[2]
QUIET = "[thresholds]\nzombies_floor = 1000000000\nleak_fewest = 1000000000\nempty_dirs_floor = 1000000000\n"
LOUD = "[thresholds]\nzombies_floor = 1\nzombies_per_live = 0.0\n"
PATIENCE_S = 120.0


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Cluster]:
    servers.needed("node-problem-detector")
    with servers.running(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def configured(tmp_path: Path) -> Path:
    """deploy/npd/exhume.json, with this machine's exhume in the place of /usr/bin/exhume."""
    program = tmp_path / "exhume"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={TOP}/src exec {sys.executable} -m exhume "$@"\n')
    program.chmod(0o755)
    config = json.loads((TOP / "deploy/npd/exhume.json").read_text())
    config["pluginConfig"]["invoke_interval"] = "2s"
    for rule in config["rules"]:
        assert rule["path"] == "/usr/bin/exhume"
        rule["path"] = os.fspath(program)
    path = tmp_path / "exhume.json"
    path.write_text(json.dumps(config))
    return path


def conditions(client: Client, node: str) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in client.get(f"/api/v1/nodes/{node}")["status"].get("conditions", [])}


def test_the_nodes_condition_follows_what_exhume_finds(
    cluster: servers.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "exhume.toml"
    settings.write_text(QUIET)
    monkeypatch.setenv("EXHUME_CONFIG", os.fspath(settings))
    with cluster.client() as client, zombies.zombies(50, "npd"):
        node = make_node(client)
        command: list[str | Path] = [
            servers.program("node-problem-detector"),
            f"--config.custom-plugin-monitor={configured(tmp_path)}",
            f"--apiserver-override={cluster.address}?inClusterConfig=false&auth={cluster.kubeconfig()}",
            f"--hostname-override={node}",
            "--port=0",
            "--prometheus-port=0",
        ]

        def leak() -> tuple[str, str]:
            one = conditions(client, node).get("MemoryCgroupLeak", {})
            return one.get("status", ""), one.get("reason", "")

        with servers._started(command, tmp_path / "detector.log"):
            until(lambda: {kind.name for kind in KINDS} <= set(conditions(client, node)), PATIENCE_S)
            assert leak() == ("False", "NoMemoryCgroupLeak")
            settings.write_text(LOUD)
            until(lambda: leak() == ("True", "MemoryCgroupsLeak"), PATIENCE_S)
            message = conditions(client, node)["MemoryCgroupLeak"]["message"]
            assert "zombie" in message
            assert len(message.encode()) <= 80
            settings.write_text(QUIET)
            until(lambda: leak() == ("False", "NoMemoryCgroupLeak"), PATIENCE_S)
            events = list(client.list("/api/v1/namespaces/default/events", fieldSelector=f"involvedObject.name={node}"))
            told = {(one["reason"], one["source"]["component"]) for one in events}
            assert {("MemoryCgroupsLeak", "exhume"), ("NoMemoryCgroupLeak", "exhume")} <= told
            # Settings that cannot be read are no state of the node: it is not known. The sentence is in its log.
            settings.write_text("[thresholds]\nzombies_floor = 'many'\n")
            until(lambda: leak()[0] == "Unknown", PATIENCE_S)
