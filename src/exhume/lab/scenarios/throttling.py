"""A container that is held back by its own quota, on a node that has room."""

from contextlib import AbstractContextManager, nullcontext

from exhume.lab import measure, rates
from exhume.lab.cgroup import Cgroup
from exhume.lab.scenario import Number, Promise, Scenario, Settings, Truth
from exhume.lab.tenant import Tenant, without
from exhume.lab.workshop import Lab

_STORY = """\
A container has two programs that could use a core each, and a quota of a fifth of a core. In every period of a tenth of a
second it runs for a fiftieth, then the kernel takes it off its cores until the next period begins. Whatever it serves is slow,
and whoever calls it sees time-outs that look like those of a starving node. But the node has room: a neighbour without a quota
is woken within a fraction of a millisecond. A good verdict says that the container is throttled by its own quota, and does not
call the node sick."""

POD = "pod3f1c8a52-7d90-4be6-a1c4-5e8d20c7b913"
QUOTA_US, PERIOD_US = 20_000, 100_000


def limit(group: Cgroup, quota_us: int, period_us: int) -> None:
    """A quota of the CPU, as the hierarchy has it."""
    if group.hierarchy.version == 2:
        group.set("cpu.max", f"{quota_us} {period_us}")
    else:
        group.set("cpu.cfs_period_us", period_us)
        group.set("cpu.cfs_quota_us", quota_us)


class Throttling:
    def __init__(self, lab: Lab) -> None:
        slow, neighbour = Tenant(lab, "kubepods", POD, "slow-container"), Tenant(lab, "kubepods", "neighbour")
        self._group = slow.group("cpu")
        limit(self._group, QUOTA_US, PERIOD_US)
        self._neighbour = measure.Heard(neighbour.work("tick", "lab-neighbour"))
        self._hungry = [measure.Heard(slow.work("burn", "lab-throttled", 1)) for _ in range(2)]
        self._hungry[0].wait("cpu_s", 20)
        self._neighbour.wait("late_ms", 10)
        self._periods = rates.Rate(lambda: self._counted("nr_periods"))
        self._throttled = rates.Rate(lambda: self._counted("nr_throttled"))

    def _counted(self, name: str) -> int:
        return rates.named((self._group.directory / "cpu.stat").read_text(), name)

    def measured(self) -> dict[str, Number]:
        late = sorted(self._neighbour.all("late_ms"))
        return {
            "periods": self._periods.grown,
            "throttled_periods": self._throttled.grown,
            "throttled_share": round(self._throttled.grown / max(1, self._periods.grown), 3),
            "neighbour_late_ms": late[len(late) // 2],
        }


def _make(lab: Lab, settings: Settings) -> AbstractContextManager[Throttling]:
    return nullcontext(Throttling(lab))


def _promises(settings: Settings) -> tuple[Promise, ...]:
    return (
        Promise(
            "throttled_periods", ">=", round(settings.seconds * 4), "cpu.stat nr_throttled; there are ten periods a second"
        ),
        Promise("throttled_share", ">=", 0.7, "cpu.stat"),
        Promise("neighbour_late_ms", "<=", 10, "a timer of a program without a quota, median"),
    )


SCENARIOS = [
    Scenario(
        name="quota-throttling",
        summary="a container that its own CPU quota holds back most of the time; the node has room",
        story=_STORY,
        truth=Truth(
            cause=None,
            also_right=("cpu-throttled",),
            culprits=(f"{{run}}/kubepods/{POD}/slow-container",),
            innocent=("lab-neighbour", "{run}/kubepods/neighbour"),
            health=("healthy",),
        ),
        promises=_promises,
        make=_make,
        missing=lambda: without("cpu"),
    )
]
