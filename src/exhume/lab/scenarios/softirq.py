"""A core that is full of network softirqs, because somebody sends that much."""

import os
import subprocess
from contextlib import AbstractContextManager, closing
from pathlib import Path

from exhume.errors import Refused
from exhume.lab import measure, network, rates
from exhume.lab.scenario import Number, Promise, Scenario, Settings, Truth
from exhume.lab.scenarios.starvation import starved_core
from exhume.lab.tenant import Tenant, without
from exhume.lab.workshop import Lab

_STORY = """\
Somebody sends thousands of packets a second to a multicast group on which very many listen. One core receives them all, and
hands each packet to every listener, in a softirq: it does nothing else any more, and no program on that core gets on, be it
ever so important. It looks like the incident, one core full of kernel time and the others idle. But the time is softirq time,
not system time; there is no leak, and nothing walks anything. Who happens to run on that core is a victim. A good verdict says
that the core is full of interrupts, and accuses nobody but the sender."""

GROUP, PORT = "239.203.0.1", network.PORT
LISTENERS, A_SECOND = 3000, 10_000


def core_mask(core: int) -> str:
    """A set of one core, as bitmap_parse of the kernel reads it: groups of 32 bits, commas between them."""
    groups = ["00000000"] * (core // 32)
    return ",".join([f"{1 << core % 32:08x}", *groups])


class Flooded:
    def __init__(self, lab: Lab) -> None:
        self.core = starved_core()
        link = network.Network(lab, self.core, threaded=False)
        self._receive_on(link, self.core)
        for name, device in ((link.near, network.NEAR), (link.far, network.FAR)):
            _run("ip", "-n", name, "route", "add", "239.0.0.0/8", "dev", device)
        sender, audience = Tenant(lab, "web", "sender"), Tenant(lab, "web", "listeners")
        listen = ("listen", GROUP, PORT, network.FAR_ADDRESS, LISTENERS)
        listeners = measure.Heard(audience.work(*listen, network=link.far))
        if listeners.wait("listening", 20) is None:
            raise Refused(f"no {LISTENERS:,} sockets could be opened: see ulimit -n")
        flood = ("flood", GROUP, PORT, network.NEAR_ADDRESS, A_SECOND, min(os.sched_getaffinity(0)))
        self._sender = measure.Heard(sender.work(*flood, network=link.near))
        self._sender.wait("sent", 20)
        self._sent = rates.Rate(lambda: int(self._sender.get("sent")))
        self._softirq = rates.CoreTime(self.core, rates.SOFTIRQ)

    @staticmethod
    def _receive_on(link: network.Network, core: int) -> None:
        """Receive packet steering: what comes out of a veth is received on the core that it was sent from, else."""
        steering = f"/sys/class/net/{network.FAR}/queues/rx-0/rps_cpus"
        _run("ip", "netns", "exec", link.far, "sh", "-c", f"echo {core_mask(core)} > {steering}")

    def measured(self) -> dict[str, Number]:
        return {
            "core": self.core,
            "core_softirq_share": round(self._softirq.mean, 3),
            "highest_softirq_share": round(self._softirq.highest, 3),
            "core_full_s": round(self._softirq.full_s, 1),
            "packets_per_s": round(self._sent.per_second),
        }

    def close(self) -> None:
        self._softirq.close()


def _run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Refused(f"{' '.join(command)} failed: {done.stderr.strip()}")


def _make(lab: Lab, settings: Settings) -> AbstractContextManager[Flooded]:
    return closing(Flooded(lab))


def _promises(settings: Settings) -> tuple[Promise, ...]:
    return (
        Promise("highest_softirq_share", ">=", 0.95, "/proc/stat, over half a second"),
        Promise("core_full_s", ">=", round(settings.seconds * 0.3, 1), "/proc/stat, softirq above 95 %"),
        Promise("packets_per_s", ">=", 500, "the sender's own count; each goes to 3,000 listeners"),
    )


def _missing() -> str:
    if not Path("/sys/class/net/lo/queues/rx-0/rps_cpus").exists():
        return "it takes receive packet steering (CONFIG_RPS)"
    return network.missing() or without("memory")


SCENARIOS = [
    Scenario(
        name="busy-softirq",
        summary="a packet flood fills a core with softirqs; no leak, nobody guilty but the sender",
        story=_STORY,
        truth=Truth(
            cause="core-saturated",
            also_right=("irq-imbalance",),
            culprits=("lab-flood", "{run}/web/sender"),
            innocent=("lab-listen", "{run}/web/listeners", "kubelet"),
        ),
        promises=_promises,
        make=_make,
        missing=_missing,
    )
]
