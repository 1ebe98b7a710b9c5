"""Nodes before and after a fix, made with the noise of a busy machine: what leaks, who walks, what else goes on."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from exhume.recording.columns import IntColumn
from exhume.recording.recording import Recording, Table
from tests.incidents.recorded import POD
from tests.incidents.rivals import KUBELET
from tests.incidents.scene import Scene
from tests.incidents.zombies import ZOMBIE_READ

DOCKER = "/docker"
_COPY = ("copy_user_enhanced_fast_string", "generic_perform_write", "vfs_write", "ksys_write", "do_syscall_64")


@dataclass(frozen=True)
class Made:
    seed: int
    seconds: float = 120.0
    leak: float = 6.0
    """Zombies a minute; regular, as a supervisor with a pause makes them."""
    walk_s: float = 2.0
    """How long each walk of the kubelet holds a core; every ten to fifteen seconds."""
    zombies: int = 20_000
    others: float = 0.0
    """Zombies a minute that come elsewhere, each in a place of its own, and go again."""
    busy: float = 0.6
    copies: int = 3
    """Half a second or a second of some other kernel work, now and then."""
    cpus: int = 8
    off: tuple[str, ...] = ()
    boot: str = "b0071d00"


def node(made: Made) -> Recording:
    generator = np.random.default_rng(made.seed)
    scene = Scene(cpus=made.cpus, seconds=made.seconds, busy=made.busy, hz=19, seed=made.seed, off=made.off)
    if made.boot != scene.recording.node.boot_id:
        object.__setattr__(scene.recording.node, "boot_id", made.boot)
    removed = _leak(scene, generator, made)
    gone = _others(scene, generator, made)
    for second in range(int(made.seconds) + 1):
        dying = made.zombies + sum(at <= second for at in removed) + sum(at <= second < end for at, end in gone)
        if "memcg" not in made.off:
            scene.row(
                "memcg", time=scene.at(second), path="/", live=240, dying=dying + int(generator.integers(0, 3)),
                total=240 + dying, method="proc-cgroups", scope="node", complete=1,
            )  # fmt: skip
    at = float(generator.uniform(0, 10))
    while made.walk_s and at + made.walk_s < made.seconds:
        scene.hold(3, at, at + made.walk_s, "kubelet", 3021, ZOMBIE_READ, KUBELET)
        at += float(generator.uniform(10, 15))
    for _ in range(made.copies):
        begin = float(generator.uniform(0, made.seconds - 1))
        length = float(generator.uniform(0.4, 1.0))
        scene.hold(int(generator.integers(4, made.cpus)), begin, begin + length, "cp", 20_777, _COPY, POD)
    return scene.whole()


def _events(scene: Scene, number: int, path: str, *times: tuple[float, str]) -> None:
    if "cgroup-events" in scene.off:
        return
    for second, kind in times:
        scene.row(
            "cgroup_events", time=scene.at(second), kind=kind, hierarchy=9, id=number, level=2, path=path, pid=31, comm="runc"
        )


def _leak(scene: Scene, generator: np.random.Generator, made: Made) -> list[float]:
    if not made.leak:
        return []
    period = 60 / made.leak
    removed = np.arange(float(generator.uniform(0, period)), made.seconds, period) + generator.normal(0, period / 20)
    times = [float(one) for one in removed if 0 < one < made.seconds]
    for i, at in enumerate(times):
        _events(scene, 90_000 + i, f"{DOCKER}/{i:064x}", (max(0.0, at - period / 4), "mkdir"), (at, "rmdir"))
    return times


def _others(scene: Scene, generator: np.random.Generator, made: Made) -> list[tuple[float, float]]:
    """Containers of honest tenants: most are released at once, some stay for a while."""
    found = []
    for i in range(int(generator.poisson(made.others * made.seconds / 60))):
        at = float(generator.uniform(0, made.seconds))
        end = at + float(generator.exponential(60.0))
        shown = [(at, "rmdir")] + ([(end, "release")] if end < made.seconds else [])
        _events(scene, 50_000 + i, f"/kubepods/burstable/tenant-{chr(97 + i % 26)}", *shown)
        found.append((at, end))
    for i in range(int(made.seconds / 4)):
        at = float(generator.uniform(0, made.seconds - 1))
        _events(scene, 70_000 + i, f"/kubepods/job-{i}", (at, "mkdir"), (at + 0.2, "rmdir"), (at + 0.25, "release"))
    return found


READ = ("cpu", "samples", "anchors", "memcg", "cgroup_events", "processes")
"""What has no rows while no recorder runs."""


def holed(made: Recording, *holes: tuple[float, float], tables: tuple[str, ...] = READ) -> Recording:
    """The same without what was read between these seconds of it."""
    start, _ = made.window
    for name in tables:
        old = made[name]
        times = (old.ints("time") - start) / 1e9
        keep = np.flatnonzero(~np.any([(times > first) & (times < last) for first, last in holes], axis=0))
        made.tables[name] = new = Table(old.schema)
        new.add_columns({column.name: _kept(old.column(column.name), keep) for column in old.schema.columns})
    return made


def _kept(column: IntColumn | list[Any], keep: np.ndarray[Any, np.dtype[np.intp]]) -> Any:
    return column.ints()[keep] if isinstance(column, IntColumn) else [column[i] for i in keep]
