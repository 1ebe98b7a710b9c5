"""Load that is nobody's fault: a machine that is full, and one that is busy and well."""

import os
from contextlib import AbstractContextManager, closing, nullcontext

from exhume.lab import measure, network, rates
from exhume.lab.scenario import Number, Promise, Scenario, Settings, Truth
from exhume.lab.tenant import Tenant, without
from exhume.lab.workshop import Lab

_FULL = """\
More programs than cores, of two tenants, and all of them want to compute. Every core is busy in user space all the time, and
tasks wait for their turn. Everything on the node is slow, network polls included, and nobody does anything wrong: there is
too much work for this machine. A good verdict says so, and names those who use most of it; it accuses no leak and no kernel
path."""

_HEALTHY = """\
A node that earns its keep: computing that takes a good part of its cores, ten megabytes a second over a link, a file that is
written, synchronised and read again and again. Counters move, cores are busy, interrupts come in. But nobody waits long: each
round trip across the link is answered at once. The only right verdict is that nothing is wrong; whoever finds a culprit here
will find one everywhere."""

PROGRAMS_PER_CORE = 2
STREAM_PORT, STREAM_MB_S = network.PORT + 1, 10
HEALTHY_SHARE = 0.25
"""Of each core, for computing."""


class Full:
    def __init__(self, lab: Lab) -> None:
        cores = len(os.sched_getaffinity(0))
        solver, renderer = Tenant(lab, "batch", "solver"), Tenant(lab, "web", "renderer")
        burning = []
        for _ in range(cores * PROGRAMS_PER_CORE // 2):
            burning.append(measure.Heard(solver.work("burn", "lab-solver", 1)))
            burning.append(measure.Heard(renderer.work("burn", "lab-renderer", 1)))
        for program in burning:
            program.wait("cpu_s", 30)
        self._waited = rates.Rate(lambda: rates.pressure_us("cpu"))
        self._user = rates.CoreTime(rates.ALL_CORES, rates.USER, rates.NICE)
        self._busy = rates.CoreTime(rates.ALL_CORES, rates.USER, rates.NICE, rates.SYSTEM, rates.IRQ, rates.SOFTIRQ)

    def measured(self) -> dict[str, Number]:
        return {
            "busy_share": round(self._busy.mean, 3),
            "user_share": round(self._user.mean, 3),
            "waited_share": round(self._waited.per_second / 1e6, 3),
        }

    def close(self) -> None:
        self._user.close()
        self._busy.close()


def _make_full(lab: Lab, settings: Settings) -> AbstractContextManager[Full]:
    return closing(Full(lab))


def _full_promises(settings: Settings) -> tuple[Promise, ...]:
    return (
        Promise("busy_share", ">=", 0.95, "/proc/stat, all cores, what the hypervisor took left out"),
        Promise("user_share", ">=", 0.75, "/proc/stat"),
        Promise("waited_share", ">=", 0.4, "/proc/pressure/cpu some"),
    )


class Healthy:
    def __init__(self, lab: Lab) -> None:
        cores = len(os.sched_getaffinity(0))
        service = Tenant(lab, "web", "service")
        self._link = network.Network(lab, core=0, threaded=False)
        near, far = self._link.near, self._link.far
        measure.Heard(self._link.work(far, "echo", network.PORT)).wait("listening", 10)
        self._taken = measure.Heard(self._link.work(far, "stream", "take", network.FAR_ADDRESS, STREAM_PORT))
        self._taken.wait("listening", 10)
        self._link.work(near, "stream", "give", network.FAR_ADDRESS, STREAM_PORT, STREAM_MB_S)
        self._ping = measure.Heard(self._link.work(near, "ping", network.FAR_ADDRESS, network.PORT))
        self._files = measure.Heard(service.work("files", lab.file("files", memory=False), 8, 0.5))
        self._burning = [measure.Heard(service.work("burn", "lab-service", HEALTHY_SHARE)) for _ in range(cores)]
        for heard, name in ((self._taken, "bytes"), (self._ping, "rtt_ms"), (self._files, "written_bytes")):
            heard.wait(name, 20)
        for program in self._burning:
            program.wait("cpu_s", 20)
        self._cpu = rates.Rate(self._cpu_ms)
        self._network = rates.Rate(lambda: int(self._taken.get("bytes")))
        self._written = rates.Rate(lambda: int(self._files.get("written_bytes")))

    def _cpu_ms(self) -> int:
        return sum(int(program.get("cpu_s", 0.0) * 1000) for program in self._burning)

    def measured(self) -> dict[str, Number]:
        trips = sorted(self._ping.all("rtt_ms"))
        return {
            "computing_cores": round(self._cpu.per_second / 1000, 3),
            "network_mb_s": round(self._network.per_second / 1e6, 2),
            "written_mb_s": round(self._written.per_second / 1e6, 2),
            "rtt_ms": trips[len(trips) // 2],
            "longest_silence_ms": self._ping.get("silence_ms"),
        }


def _make_healthy(lab: Lab, settings: Settings) -> AbstractContextManager[Healthy]:
    return nullcontext(Healthy(lab))


def _healthy_promises(settings: Settings) -> tuple[Promise, ...]:
    cores = os.cpu_count() or 1
    return (
        Promise("computing_cores", ">=", round(cores * HEALTHY_SHARE / 2, 2), "the programs' CPU time"),
        Promise("computing_cores", "<=", round(cores * HEALTHY_SHARE * 1.5, 2), "the programs' CPU time"),
        Promise("network_mb_s", ">=", STREAM_MB_S / 2, "bytes that came across the link"),
        Promise("written_mb_s", ">=", 1, "bytes written and synchronised"),
        Promise("rtt_ms", "<=", 10, "packets across the link, median"),
        Promise("longest_silence_ms", "<=", 1000, "packets across the link"),
    )


def _healthy_missing() -> str:
    return network.missing() or without("cpu")


def _full_missing() -> str:
    return rates.no_pressure() or without("cpu")


SCENARIOS = [
    Scenario(
        name="cpu-full",
        summary="every core is full of honest programs of several tenants",
        story=_FULL,
        truth=Truth(
            cause="cpu-full",
            culprits=("lab-solver", "lab-renderer", "{run}/batch", "{run}/web"),
            health=("warning", "critical"),
            shared=True,
        ),
        promises=_full_promises,
        make=_make_full,
        missing=_full_missing,
    ),
    Scenario(
        name="healthy",
        summary="heavy but honest load: computing, network, files; nobody starves",
        story=_HEALTHY,
        truth=Truth(
            cause=None,
            innocent=("lab-service", "lab-give", "lab-take", "lab-files", "lab-ping", "lab-echo", "{run}"),
            health=("healthy",),
        ),
        promises=_healthy_promises,
        make=_make_healthy,
        missing=_healthy_missing,
    ),
]
