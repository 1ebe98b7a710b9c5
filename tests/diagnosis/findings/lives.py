"""cgroups that come and go, as the recorder's tracepoints tell of them; and the incident as it was told."""

from exhume.recording.recording import Recording
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import SECOND

CONTAINERD = ("containerd-shim", 4_000)


def life(
    recording: Recording,
    path: str,
    start: float,
    end: float | None,
    number: int,
    released: float | None = None,
    by: tuple[str, int] = ("runc", 0),
) -> None:
    """One cgroup from mkdir to rmdir, and release where it is released; seconds."""
    events = recording["cgroup_events"]
    level = path.count("/")
    comm, pid = by
    pid = pid or 50_000 + number
    events.add(round(start * SECOND), "mkdir", 9, number, level, path, pid, comm)
    if end is not None:
        events.add(round(end * SECOND), "rmdir", 9, number, level, path, pid, comm)
    if released is not None:
        events.add(round(released * SECOND), "release", 9, number, level, path, 7, "kworker/1:2")


def container(number: int) -> str:
    """An id as docker makes one up: 64 hexadecimal digits."""
    return f"{number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 16**64:064x}"


def window(recording: Recording, seconds: float) -> None:
    """A recording of so long: two readings of an idle machine."""
    made.cores(recording, seconds, {}, step=seconds)


def walk(
    recording: Recording,
    at: float,
    path: str,
    home: str,
    zombies: int,
    unit: str = "",
    pod: str = "",
    how: str = "",
    method: str = "bpf-walk",
) -> None:
    recording["memcg_walk"].add(
        round(at * SECOND), path, path, home, zombies, 3, zombies * 4096, 0, 0, 0, unit, pod, "", "", 95 if unit else 0, how,
        method, 0, 0, 0, "", "",
    )  # fmt: skip


def count(recording: Recording, at: float, dying: int, live: int) -> None:
    recording["memcg"].add(round(at * SECOND), "/", live, dying, live + dying, "proc-cgroups", "node", 1)


def unit(
    recording: Recording,
    at: float,
    name: str,
    restarts: int = 0,
    active: str = "active",
    sub: str = "running",
    needed_by: str = "?",
    enabled: str = "enabled",
    main_pid: int = 0,
) -> None:
    recording["units"].add(
        round(at * SECOND), name, active, sub, restarts, "success", enabled, main_pid, f"/system.slice/{name}", needed_by
    )


def incident(seconds: int = 600, zombies: int = 68_440, live: int = 240) -> Recording:
    """A unit that supervises its container itself: systemd saw no restart, the containers come and go every 10 s."""
    recording = made.recording(cpus=96, on=("cpu", "memcg", "units", "cgroup-events", "zombies"))
    window(recording, seconds)
    recording["anchors"].add(seconds * SECOND, 0, 9 * 86_400 * SECOND, (1_700_000_000 + seconds) * SECOND, 1)
    for at in (0, seconds):
        unit(recording, at, "ecs.service", needed_by="", main_pid=900)
        unit(recording, at, "kubelet.service", needed_by="")
        count(recording, at, zombies - (seconds - at) // 10, live)
    for i in range(seconds // 10):
        life(recording, f"/docker/{container(i)}", 10 * i + 1.0, 10 * i + 3.0 + 0.1 * (i % 3), i)
    walk(recording, seconds, "/docker/<id>", "/docker", zombies - 100, unit="ecs.service", how="it is the ECS agent")
    walk(recording, seconds, "/kubepods/burstable/pod<uid>/<id>", "/kubepods/burstable", 100, pod="default/web")
    recording.count(seconds * SECOND, "memcg_walk_live", live)
    recording.count(seconds * SECOND, "memcg_walk_zombies", zombies)
    return recording
