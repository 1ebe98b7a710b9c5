"""The incident, whole: a forgotten agent leaks memory cgroups, somebody's routine work walks them, a NAPI thread starves."""

import os
import time
from contextlib import AbstractContextManager, closing

from exhume.errors import Refused
from exhume.lab import measure, network
from exhume.lab.scenario import Number, Promise, Scenario, Settings, Truth
from exhume.lab.watchdog import Watchdog
from exhume.lab.workshop import Lab

_STORY = """\
An agent that nobody uses crashes as soon as it starts. Its supervisor starts it again, each time in a new cgroup; each run
writes one page that outlives it, and so leaves a zombie memory cgroup behind. Nothing of that shows in systemd: the unit is
active, and has never been restarted. Elsewhere a kubelet does its periodic work, and the kernel walks every cgroup, dead ones
included, to answer. That walk takes the core on which a network device is polled. Packets come late by a second and more, the
driver's watchdog resets the device, and a job that had nothing to do with any of it dies of a time-out. (The walker runs with
real-time priority, which stands in for kernels on which such a walk cannot be interrupted; the supervisor and the leaked
cgroups live in different places, as with ecs-init and Docker.)"""

WALKER_PRIORITY, POLLER_PRIORITY = 50, 1
ROUND_S = 1.8
"""How long the walker goes on at least; a pass over 20,000 takes about as long."""
# A pass takes 80 us and more for each zombie, and between two of them the poll gets in: fewer zombies, shorter stalls.
_STALL_MS_EACH = 0.05
_QUIET_MS, _QUIET_WITHIN_S = 20, 5
LATE_MS = 100
"""A packet that takes longer was kept waiting."""


def patience_s(settings: Settings) -> float:
    """Of the job: as much shorter than Ray's as the stalls are."""
    return min(1.0, max(0.1, settings.scale * _STALL_MS_EACH / 1000))


def starved_core() -> int:
    """The last one: most machines serve their own devices on the first."""
    return max(os.sched_getaffinity(0))


def quietest(ping: measure.Heard) -> float:
    """The round trip of the first half second in which nobody else on the machine is in the way, in ms; of the best of them if
    there is none for a while."""
    deadline = time.monotonic() + _QUIET_WITHIN_S
    while (best := min(ping.all("rtt_ms"), default=0.0)) > _QUIET_MS and time.monotonic() < deadline:
        time.sleep(0.1)
    return float(best)


class Starvation:
    def __init__(self, lab: Lab, settings: Settings) -> None:
        self.core = starved_core()
        self._groups = lab.cgroup("memory", "docker")
        self._groups.hand_down("memory")
        home = lab.cgroup("memory", "system", "ecs.service")
        kubelet = lab.cgroup("memory", "system", "kubelet.service")
        tasks = self._groups.tasks.name
        supervisor = lab.work(
            "crash-loop", self._groups.directory, tasks, home.directory, lab.file("pages", memory=True), settings.scale, 0.2,
            "amazon-ecs-init", into=home,
        )  # fmt: skip
        self._supervisor = measure.Heard(supervisor)
        if self._supervisor.wait("leaked", 30 + settings.scale / 100) is None:
            raise Refused("the zombies could not be made; see dmesg, or ask for fewer with --scale")
        self._zombies = measure.zombies(self._groups)
        self._network = network.Network(lab, self.core, POLLER_PRIORITY)
        measure.Heard(self._network.work(self._network.far, "echo", network.PORT)).wait("listening", 10)
        self._ping = measure.Heard(self._network.work(self._network.near, "ping", network.FAR_ADDRESS, network.PORT))
        self._ping.wait("rtt_ms", 10)
        self._quiet_rtt = quietest(self._ping)
        self._job = measure.Heard(
            self._network.work(self._network.near, "job", network.FAR_ADDRESS, network.PORT, patience_s(settings))
        )
        self._watchdog = Watchdog(lab.kmsg, network.FAR, self._ping)
        self._kernel = measure.KernelTime(self.core)
        lab.begins()
        walker = lab.work("walk", self._groups.directory, self.core, WALKER_PRIORITY, 2.0, ROUND_S, "kubelet", into=kubelet)
        self._walker = measure.Heard(walker)

    def first_symptom(self) -> float | None:
        """When packets began to be late, by the ping."""
        late = [self._ping.since(name, LATE_MS) for name in ("worst_rtt_ms", "quiet_ms")]
        return min((at for at in late if at is not None), default=None)

    def measured(self) -> dict[str, Number]:
        return {
            "zombies": self._zombies,
            "zombies_below": measure.zombies_below(self._groups),
            "restarts": self._supervisor.get("restarts"),
            "walk_ms": max(self._walker.all("walk_ms"), default=0),
            "round_ms": max(self._walker.all("round_ms"), default=0),
            "core_kernel_share": round(self._kernel.highest, 3),
            "core_full_s": round(self._kernel.full_s, 1),
            "quiet_rtt_ms": self._quiet_rtt,
            "worst_rtt_ms": max(self._ping.get("worst_rtt_ms"), self._ping.get("silence_ms")),
            "resets": self._watchdog.resets,
            "job_failed": int(self._job.get("job", "") == "failed"),
        }

    def close(self) -> None:
        self._watchdog.close()
        self._kernel.close()


def _make(lab: Lab, settings: Settings) -> AbstractContextManager[Starvation]:
    return closing(Starvation(lab, settings))


def _promises(settings: Settings) -> tuple[Promise, ...]:
    return (
        Promise("zombies", ">=", settings.scale * 0.95, "/proc/cgroups, or cgroup.stat on v2"),
        Promise("restarts", ">=", 5, "the supervisor's own count"),
        Promise("core_kernel_share", ">=", 0.95, "/proc/stat"),
        Promise("quiet_rtt_ms", "<=", _QUIET_MS, "packets across the link, before"),
        Promise("worst_rtt_ms", ">=", min(300, settings.scale * _STALL_MS_EACH), "packets across the link"),
        Promise("job_failed", "==", 1, "the job's exit"),
    )


SCENARIOS = [
    Scenario(
        name="zombie-starvation",
        summary="the whole incident: leaked cgroups, a walker, a starved NAPI thread, a dead job",
        story=_STORY,
        truth=Truth(
            cause="memcg-leak",
            also_right=("zombie-memcgs", "crash-loop"),
            culprits=("{run}/docker", "amazon-ecs-init", "ecs.service"),
            innocent=("kubelet", "ray::Trainer", "lab-echo", "lab-ping"),
            health=("critical", "warning"),
        ),
        promises=_promises,
        make=_make,
        missing=network.missing,
        prepares=True,
    )
]
