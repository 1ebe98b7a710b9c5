"""The agent's word to its cluster: what it finds becomes the node's conditions and events, in a thread of its own.

The recorder's thread only hands over what it found. When it has brought nothing for a while, nothing is written either: a
heartbeat that goes on while nobody looks would be a lie.
"""

import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from exhume.diagnosis.findings.model import Facts, Finding
from exhume.errors import ExhumeError

EVERY_S = 10.0
SILENT_S = 120.0


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """[agent.kubernetes]: conditions and events of the node."""

    enabled: bool = field(default=False, metadata={"doc": "set the node's conditions and write events; the Helm chart sets it"})
    node_name: str = field(
        default="", metadata={"doc": "the node's name in the cluster; empty: NODE_NAME, else the host's name"}
    )


class ClusterReport:
    def __init__(self, settings: Kubernetes, tell: Callable[[str], None], every_s: float = EVERY_S) -> None:
        self._tell, self._every_s = tell, every_s
        self._lock = threading.Lock()
        self._found: dict[str, str] = {}
        self._looked_s = float("-inf")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if settings.enabled:
            from exhume.cluster.client import connect
            from exhume.cluster.reporter import Reporter

            try:
                self._reporter = Reporter(connect(), settings.node_name or os.environ.get("NODE_NAME", "") or _own_name())
            except ExhumeError as error:
                tell(f"no node conditions: {error}")
                return
            self._thread = threading.Thread(target=self._run, name="cluster", daemon=True)
            self._thread.start()

    def observe(self, findings: Iterable[Finding[Facts]]) -> None:
        """What was found just now; several looks between two reports add up."""
        if self._thread is None:
            return
        with self._lock:
            self._looked_s = time.monotonic()
            self._found |= {one.kind: one.summary for one in findings if one.severity != "info"}

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(5)
            self._reporter.close()

    def _run(self) -> None:
        from exhume.cluster.conditions import Seen

        while not self._stop.wait(self._every_s):
            with self._lock:
                found, self._found = self._found, {}
                silent = time.monotonic() - self._looked_s > SILENT_S
            if silent and not found:
                continue
            for trouble in self._reporter.report([Seen(kind, summary) for kind, summary in found.items()]):
                self._tell(f"cluster: {trouble}")
            if not self._reporter.conditions:  # the node could not be read so far: nobody was told of it
                with self._lock:
                    self._found = found | self._found


def _own_name() -> str:
    """The kubelet's own default is the host's name in small letters (cmd/kubelet, nodeutil.GetHostname)."""
    return os.uname().nodename.lower()
