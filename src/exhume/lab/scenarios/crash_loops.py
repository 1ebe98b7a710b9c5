"""An agent that crashes again and again, and leaves nothing behind."""

from contextlib import AbstractContextManager, closing

from exhume.lab import measure
from exhume.lab.churn import Churn
from exhume.lab.scenario import Number, Promise, Scenario, Settings, Truth
from exhume.lab.workshop import Lab

_STORY = """\
A supervisor starts its agent, the agent dies at once, and so on, five times a second, each time in a new cgroup. It looks like
the beginning of zombie-starvation. But the agent writes nothing that outlives it, so its cgroup goes away whole: no zombie is
left, after a minute as little as after a week. systemd sees a unit that is active and was never restarted; what shows is that
cgroups come and go in one place. A good verdict tells the loop, if it can see it, and accuses nobody of a leak."""

_PAUSE_S = 0.2


class CrashLoop:
    def __init__(self, lab: Lab) -> None:
        self._groups = lab.cgroup("memory", "docker")
        self._groups.hand_down("memory")
        home = lab.cgroup("memory", "system", "ecs.service")
        self._churn = Churn(self._groups)
        supervisor = lab.work(
            "crash-loop", self._groups.directory, self._groups.tasks.name, home.directory, "", 0, _PAUSE_S, "amazon-ecs-init",
            into=home,
        )  # fmt: skip
        self._supervisor = measure.Heard(supervisor)
        self._supervisor.wait("restarts", 30)

    def measured(self) -> dict[str, Number]:
        return {
            "restarts": self._supervisor.get("restarts"),
            "cgroups_made": self._churn.made,
            "cgroups_removed": self._churn.removed,
            "left_each": round(self._churn.left_each(), 2),
            "zombies_below": measure.zombies_below(self._groups),
        }

    def close(self) -> None:
        self._churn.close()


def _make(lab: Lab, settings: Settings) -> AbstractContextManager[CrashLoop]:
    return closing(CrashLoop(lab))


def _promises(settings: Settings) -> tuple[Promise, ...]:
    return (
        Promise("restarts", ">=", settings.seconds, "the supervisor's own count"),
        Promise("cgroups_made", ">=", settings.seconds, "inotify"),
        Promise("cgroups_removed", ">=", settings.seconds, "inotify"),
        Promise("left_each", "<=", 0.2, "/proc/cgroups, or cgroup.stat on v2"),
        Promise("zombies_below", "<=", 20, "memory.stat of that place, or cgroup.stat on v2"),
    )


SCENARIOS = [
    Scenario(
        name="crash-loop-no-leak",
        summary="an agent that crashes inside its supervisor, in cgroups that go away whole: no leak",
        story=_STORY,
        truth=Truth(
            cause="crash-loop",
            culprits=("{run}/docker", "amazon-ecs-init", "ecs.service"),
            health=("warning", "healthy"),
        ),
        promises=_promises,
        make=_make,
    )
]
