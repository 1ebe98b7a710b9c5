"""A link with traffic on it, to see whether a node starves: a ping and a job, answered by an echo on the far end."""

import statistics

from exhume.lab import network
from exhume.lab.measure import Heard
from exhume.lab.scenario import Number
from exhume.lab.workshop import Lab


class Link:
    """Polled by a thread of its own on one core, as in `zombie-starvation`, so that the two can be compared."""

    def __init__(self, lab: Lab, core: int, patience_s: float) -> None:
        made = network.Network(lab, core)
        Heard(made.work(made.far, "echo", network.PORT)).wait("listening", 10)
        self._ping = Heard(made.work(made.near, "ping", network.FAR_ADDRESS, network.PORT))
        self._ping.wait("rtt_ms", 10)
        self._job = Heard(made.work(made.near, "job", network.FAR_ADDRESS, network.PORT, patience_s))

    def measured(self) -> dict[str, Number]:
        """The middle one of all half seconds: of a virtual machine, any single packet may be late."""
        return {
            "rtt_ms": round(statistics.median(self._ping.all("rtt_ms") or [0.0]), 3),
            "worst_rtt_ms": self._ping.get("worst_rtt_ms"),
            "job_failed": int(self._job.get("job", "") == "failed"),
            "job_steps": self._job.get("steps"),
        }
