"""Three hundred nodes, played by kwok: the limit holds over all of them, and the listing goes by pages."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from exhume.cluster import cordon
from exhume.cluster.fleet_limits import FleetLimits, ours
from exhume.errors import Refused
from exhume.remedy.node import at
from exhume.remedy.steps import cluster as steps
from tests.cluster.objects import await_ready, make_node
from tests.cluster.servers import Cluster

pytestmark = pytest.mark.ci
MANY = 300


def test_many_at_once_never_take_out_more_than_allowed(kubelets: Cluster) -> None:
    from dataclasses import replace

    acting = replace(at("/"), cluster=kubelets.client)
    with kubelets.client() as client:
        names = [make_node(client, name=f"many-{place:03}") for place in range(MANY)]
        await_ready(client, *names[-20:])
        held = len(ours(cordon.find_nodes(client)))
        limits = FleetLimits(held + 5, 0)

        def attempt(name: str) -> bool:
            step = steps.cordon(name, "test", limits)
            try:
                steps.Cordon().apply(step, acting, steps.Cordon().before(step, acting), "20260101-000000-0")
            except Refused:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            taken = sum(pool.map(attempt, names[:40]))
        out = ours(cordon.find_nodes(client))
        assert taken == len(out) - held <= 5
        environment = {**os.environ, "KUBECONFIG": os.fspath(kubelets.kubeconfig())}
        command = [sys.executable, "-m", "exhume", "node", "status"]
        shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert f"{len(out)} out of service by exhume" in shown
        for _, node in out:
            cordon.uncordon(client, node["metadata"]["name"])
