"""A real API server that can be made to hang, to fail and to go away, and the node that an agent speaks of to it."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from exhume.cluster.conditions import KINDS
from exhume.cluster.document import seconds
from exhume.cluster.rights import AGENT, missing, rules
from tests.agent.relay import Relay
from tests.cluster import servers
from tests.cluster.objects import grant, make_node, until
from tests.cluster.test_reporter import conditions
from tests.recorders import children


class ShakyCluster:
    """The agent reaches it through `relay`."""

    def __init__(self, real: servers.Cluster) -> None:
        self._real = real
        self._etcd = next(pid for pid in children(os.getpid()) if b"etcd" in Path(f"/proc/{pid}/cmdline").read_bytes())
        with real.client() as admin, real.client("agent") as client:
            grant(admin, "agent", rules(AGENT))
            until(lambda: not missing(client, AGENT))
            self.node = make_node(admin)
        self.relay = Relay(int(real.address.rpartition(":")[2]))

    @property
    def settings(self) -> dict[str, str]:
        """For the agent's environment."""
        seen = replace(self._real, address=f"https://127.0.0.1:{self.relay.port}")
        name = {"EXHUME_AGENT_KUBERNETES_NODE_NAME": self.node, "EXHUME_AGENT_KUBERNETES_ENABLED": "true"}
        return {"KUBECONFIG": str(seen.kubeconfig("agent")), **name}

    def without_etcd(self, forgets: bool) -> None:
        """A server whose etcd does not answer takes what it is asked, and then says 500 or 504."""
        os.kill(self._etcd, signal.SIGSTOP if forgets else signal.SIGCONT)

    def well(self) -> None:
        self.without_etcd(False)
        self.relay.become("through")

    def told_s(self) -> dict[str, float]:
        """When the agent last spoke of each condition."""
        names = {kind.name for kind in KINDS}
        with self._real.client() as admin:
            found = conditions(admin, self.node)
        return {name: seconds(one["lastHeartbeatTime"]) or 0.0 for name, one in found.items() if name in names}


@contextmanager
def shaky(scratch: Path) -> Iterator[ShakyCluster]:
    with servers.running(scratch) as real:
        cluster = ShakyCluster(real)
        try:
            yield cluster
        finally:
            cluster.well()
            cluster.relay.close()
