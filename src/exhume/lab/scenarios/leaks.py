"""Leaks that do not take the whole node down: zombies that nobody walks, directories that nobody removes, two at once."""

import time
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path

from exhume.errors import Refused
from exhume.lab import measure, network
from exhume.lab.cgroup import Cgroup
from exhume.lab.link import Link
from exhume.lab.scenario import Number, Promise, Scenario, Settings, Truth
from exhume.lab.scenarios.starvation import starved_core
from exhume.lab.works.list_groups import one_pass
from exhume.lab.workshop import Lab, end

_HARMLESS = """\
The same forgotten agent as in zombie-starvation, and as many zombies; half of them are pinned by page cache of a file on disk,
half by a file in memory. But nothing on this node walks them: no reclaim, no reader of statistics on an old kernel. So the
link is as fast as ever, and the job on it runs on. Zombies are a debt, not yet a harm: they cost memory, and whoever comes to
walk them will pay. A good verdict warns of the leak by name and says that it has not hurt; it is not critical, and whatever
else goes wrong on such a node is not to be blamed on zombies because they are there."""

_DIRECTORIES = """\
A container runtime makes a cgroup for each container and does not remove it. These are no zombies: the directories are there
for everybody to see, with no process in them, and rmdir is all it takes. Beside them an agent for container metrics goes
through all cgroups and reads the statistics of each, as cAdvisor does. Its pass over a fresh node takes a millisecond, over
this one hundreds of times that, so it keeps a core busy for nothing. The agent is not the culprit: it does what it always did.
A good verdict names the place where the directories pile up, and does not count them as zombies."""

_TWO = """\
Two agents crash in loops of their own and leave zombies in two places, one ten times as many as the other. Who stops at the
first name has fixed most of it and wonders, a month later, why the zombies are back. A good verdict names both, the larger
first, each with its share."""


class Leaker:
    """A supervisor of its own home whose agent leaves a zombie in `groups` each time it crashes."""

    def __init__(self, lab: Lab, groups: Cgroup, home: Cgroup, files: tuple[Path, ...], count: int, pause: float, name: str):
        groups.hand_down("memory")
        self._groups = groups
        written = ":".join(map(str, files))
        self._process = lab.work(
            "crash-loop", groups.directory, groups.tasks.name, home.directory, written, count, pause, name, into=home
        )
        self._heard = measure.Heard(self._process)
        if self._heard.wait("leaked", 30 + count / 100) is None:
            raise Refused("the zombies could not be made; see dmesg, or ask for fewer with --scale")

    @property
    def zombies(self) -> int:
        """Its own, there now."""
        return measure.zombies_below(self._groups)

    @property
    def restarts(self) -> int:
        return int(self._heard.get("restarts"))

    def stop(self) -> None:
        """As who disables the agent does: what it left stays."""
        end(self._process)


class Harmless:
    def __init__(self, lab: Lab, settings: Settings) -> None:
        core = starved_core()
        groups = lab.cgroup("memory", "docker")
        files = (lab.file("pages", memory=False), lab.file("pages", memory=True))
        home = lab.cgroup("memory", "system", "ecs.service")
        self._leaker = Leaker(lab, groups, home, files, settings.scale, 1.0, "amazon-ecs-init")
        self._zombies = measure.zombies(groups)
        lab.begins()
        self._link = Link(lab, core, patience_s=5.0)
        self._begin = time.monotonic()
        self._kernel = measure.KernelTime(core)

    def measured(self) -> dict[str, Number]:
        return {
            "zombies": self._zombies,
            "zombies_at_the_end": self._leaker.zombies,
            "restarts": self._leaker.restarts,
            "core_full_ratio": round(self._kernel.full_s / max(0.1, time.monotonic() - self._begin), 3),
            **self._link.measured(),
        }

    def close(self) -> None:
        self._kernel.close()


class Directories:
    FRESH = 20

    def __init__(self, lab: Lab, settings: Settings) -> None:
        self._groups = lab.cgroup("memory", "kubepods")
        self._groups.hand_down("memory")
        for number in range(self.FRESH):
            lab.cgroup("memory", "kubepods", f"pod{number}")
        self._fresh_ms = self._pass_ms()
        runtime = lab.cgroup("memory", "system", "crio.service")
        agent = lab.cgroup("memory", "system", "cadvisor.service")
        self._runtime = measure.Heard(lab.work("leak-dirs", self._groups.directory, settings.scale, 1.0, "crio", into=runtime))
        if self._runtime.wait("leaked", 30 + settings.scale / 100) is None:
            raise Refused("the directories could not be made; see dmesg, or ask for fewer with --scale")
        self._now_ms = self._pass_ms()
        lab.begins()
        self._agent = lab.work("list-groups", self._groups.directory, starved_core(), "cadvisor", into=agent)
        self._heard = measure.Heard(self._agent)
        self._heard.wait("pass_ms", 10 + settings.scale / 100)
        self._begin = time.monotonic()
        self._used, self._wanted = measure.cpu_seconds(self._agent.pid), measure.wanted_seconds(self._agent.pid)

    def _pass_ms(self) -> float:
        """What going through them once takes, at best of three."""
        passes = []
        for _ in range(3):
            begin = time.perf_counter()
            one_pass(str(self._groups.directory))
            passes.append((time.perf_counter() - begin) * 1000)
        return max(0.001, min(passes))

    def measured(self) -> dict[str, Number]:
        passed = max(0.1, time.monotonic() - self._begin)
        user, system = (now - then for now, then in zip(measure.cpu_seconds(self._agent.pid), self._used, strict=True))
        return {
            "directories": measure.directories(self._groups) - 1,
            "processes_in_them": measure.processes(self._groups),
            "fresh_pass_ms": round(self._fresh_ms, 2),
            "pass_ms": round(self._now_ms, 1),
            "slower": round(self._now_ms / self._fresh_ms, 1),
            "agent_wants_core": round((measure.wanted_seconds(self._agent.pid) - self._wanted) / passed, 3),
            "agent_core_share": round((user + system) / passed, 3),
            "agent_kernel_share": round(system / max(0.01, user + system), 3),
        }

    def close(self) -> None:
        """Everything of it is the lab's to end."""


class TwoCulprits:
    def __init__(self, lab: Lab, settings: Settings) -> None:
        ecs, shipper = (lab.cgroup("memory", "system", unit) for unit in ("ecs.service", "log-shipper.service"))
        pods = lab.cgroup("memory", "kubepods", "burstable")
        few = max(10, settings.scale // 10)
        lesser = (lab.file("shipped", memory=True),)
        larger = (lab.file("pages", memory=True),)
        docker = lab.cgroup("memory", "docker")
        self._larger = Leaker(lab, docker, ecs, larger, settings.scale, 0.2, "amazon-ecs-init")
        self._lesser = Leaker(lab, pods, shipper, lesser, few, 2.0, "log-shipper")
        self._zombies = (
            measure.zombies(docker) if docker.hierarchy.version == 1 else self._larger.zombies + self._lesser.zombies
        )

    def measured(self) -> dict[str, Number]:
        larger, lesser = self._larger.zombies, self._lesser.zombies
        return {
            "zombies": self._zombies,
            "zombies_larger": larger,
            "zombies_lesser": lesser,
            "times": round(larger / max(1, lesser), 2),
            "restarts_larger": self._larger.restarts,
            "restarts_lesser": self._lesser.restarts,
        }

    def close(self) -> None:
        """Everything of it is the lab's to end."""


def _make_harmless(lab: Lab, settings: Settings) -> AbstractContextManager[Harmless]:
    return closing(Harmless(lab, settings))


def _make_directories(lab: Lab, settings: Settings) -> AbstractContextManager[Directories]:
    return nullcontext(Directories(lab, settings))


def _make_two(lab: Lab, settings: Settings) -> AbstractContextManager[TwoCulprits]:
    return nullcontext(TwoCulprits(lab, settings))


_COUNTED = "/proc/cgroups, or cgroup.stat on v2"
_HERE = "memory.stat of each place, or cgroup.stat on v2"


def _harmless_promises(settings: Settings) -> tuple[Promise, ...]:
    return (
        Promise("zombies", ">=", int(settings.scale * 0.95), _COUNTED),
        Promise("zombies_at_the_end", ">=", int(settings.scale * 0.8), _HERE),
        Promise("core_full_ratio", "<=", 0.25, "/proc/stat"),
        Promise("rtt_ms", "<=", 20, "packets across the link"),
        Promise("job_failed", "==", 0, "the job's exit"),
    )


def _directory_promises(settings: Settings) -> tuple[Promise, ...]:
    return (
        Promise("directories", ">=", settings.scale, "the directories themselves"),
        Promise("processes_in_them", "==", 0, "cgroup.procs of each"),
        Promise("slower", ">=", settings.scale / Directories.FRESH / 4, "one pass over them, timed, before and after"),
        Promise("agent_wants_core", ">=", 0.6, "/proc/PID/schedstat: on a core, or waiting for one"),
        Promise("agent_kernel_share", ">=", 0.5, "/proc/PID/stat"),
    )


def _two_promises(settings: Settings) -> tuple[Promise, ...]:
    return (
        Promise("zombies", ">=", int(settings.scale * 1.1 * 0.95), _COUNTED),
        Promise("zombies_larger", ">=", int(settings.scale * 0.95), _HERE),
        Promise("zombies_lesser", ">=", int(settings.scale * 0.09), _HERE),
        Promise("times", ">=", 8, _HERE),
        Promise("restarts_larger", ">=", 5, "the supervisor's own count"),
        Promise("restarts_lesser", ">=", 1, "the supervisor's own count"),
    )


SCENARIOS = [
    Scenario(
        name="zombies-harmless",
        summary="as many zombies, but nobody walks them: a leak to be told, not a node that starves",
        story=_HARMLESS,
        truth=Truth(
            cause="memcg-leak",
            also_right=("zombie-memcgs", "crash-loop"),
            culprits=("{run}/docker", "amazon-ecs-init", "ecs.service"),
            innocent=("ray::Trainer", "lab-echo", "lab-ping"),
            health=("warning",),
        ),
        promises=_harmless_promises,
        make=_make_harmless,
        prepares=True,
        missing=network.missing,
    ),
    Scenario(
        name="dir-leak",
        summary="cgroup directories that nobody removes, and an agent that reads them all, again and again",
        story=_DIRECTORIES,
        truth=Truth(
            cause="cgroup-dirs-leak",
            culprits=("{run}/kubepods", "crio"),
            innocent=("cadvisor",),
        ),
        promises=_directory_promises,
        make=_make_directories,
        prepares=True,
    ),
    Scenario(
        name="two-culprits",
        summary="two agents leak zombies, one ten times as many as the other: both are to be named",
        story=_TWO,
        truth=Truth(
            cause="memcg-leak",
            also_right=("zombie-memcgs", "crash-loop"),
            culprits=("{run}/docker", "amazon-ecs-init", "ecs.service"),
            lesser=("{run}/kubepods/burstable", "log-shipper"),
            health=("warning",),
        ),
        promises=_two_promises,
        make=_make_two,
        prepares=True,
    ),
]
