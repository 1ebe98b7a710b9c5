"""Incidents in which dead or leaked memory cgroups are the cause, and one in which many of them are."""

from tests.incidents.recorded import POD, SOURCES
from tests.incidents.rivals import KUBELET
from tests.incidents.scene import Scene
from tests.incidents.truth import Told, Truth

ZOMBIE_READ = (
    "mem_cgroup_nr_lru_pages", "memcg_numa_stat_show", "seq_read", "kernfs_fop_read", "__vfs_read", "vfs_read", "ksys_read",
    "__x64_sys_read", "do_syscall_64", "entry_SYSCALL_64_after_hwframe",
)  # fmt: skip
ECS = "/system.slice/ecs.service"
ID = "9d1e40c7" * 8
BUSY_39 = ((4.0, 6.1), (11.2, 17.8), (24.0, 26.5))
INNOCENT = ("containerd", "node_exporter", "python3", "raylet", "ssm-agent", "kubelet")


def _walks(scene: Scene) -> None:
    for start, end in BUSY_39:
        scene.hold(39, start, end, "kubelet", 3021, ZOMBIE_READ, KUBELET)


def _loop_inside_ecs(scene: Scene) -> None:
    """ecs-init starts its container again every ten seconds: systemd sees one run, the cgroups come and go."""
    scene.thread("ecs-init", 1899, ECS)
    for i in range(round(scene.seconds / 10)):
        path = f"/docker/{i:02x}{ID[2:]}"
        for second, kind, pid, comm in (
            (10 * i + 1.0, "mkdir", 30_001 + 20 * i, "runc"),
            (10 * i + 3.4, "rmdir", 30_009 + 20 * i, "runc"),
        ):
            scene.row(
                "cgroup_events",
                time=scene.at(second),
                kind=kind,
                hierarchy=9,
                id=90_000 + i,
                level=2,
                path=path,
                pid=pid,
                comm=comm,
            )
    unit = {"unit": "ecs.service", "cgroup": ECS, "main_pid": 1899, "restarts": 0, "enabled": "enabled", "needed_by": ""}
    scene.units({"second": 0.0, **unit}, {"second": scene.seconds - 1, **unit})


def as_published() -> Told:
    """96 vCPUs, core 39 at 100 % system for seconds, kubelet in memory.numa_stat, 68,680 memory cgroups and 240 directories,
    left by the ECS agent that nobody needed (Pinterest, 2025)."""
    scene = Scene(seconds=120.0, hz=19)
    _walks(scene)
    _loop_inside_ecs(scene)
    scene.memcgs(240, 68_428, growth=12)
    example = f"/docker/{ID}"
    scene.leak(
        "/docker/<id>",
        example,
        "/docker",
        68_440 - 95,
        "ecs.service",
        image="amazon/amazon-ecs-agent",
        how="its image's agent is run by ecs-init",
    )
    scene.leak("/kubepods/burstable/pod<uid>/<id>", POD, "/kubepods/burstable", 95, confidence=60)
    scene.gauge("memcg_walk_live", (119, 240))
    scene.gauge("memcg_walk_zombies", (119, 68_440))
    scene.interrupts({queue: 39 if queue == 5 else (queue * 11 + 2) % 96 for queue in range(8)})
    scene.ena_reset(17.9)
    return Told(
        scene.whole(),
        Truth(
            ("memcg-leak", "crash-loop"),
            culprits=("ecs.service",),
            innocent=INNOCENT,
            chain=("memcg-leak", "zombie-memcgs", "core-saturated", "napi-starved", "nic-reset"),
        ),
    )


def a_capture_and_dmesg() -> Told:
    """What the team had: perf record -F 97 -g -a for two minutes, and the kernel's log. Nothing counted the cgroups."""
    scene = Scene(seconds=30.0, hz=97, off=tuple(name for name in SOURCES if name not in ("samples", "kernel-log")))
    _walks(scene)
    scene.ena_reset(17.9)
    return Told(
        scene.whole(),
        Truth(
            ("memcg-walk",),
            innocent=tuple(name for name in INNOCENT if name != "kubelet"),
            never=("steal", "reclaim"),
            says=("zombies",),
        ),
    )


def soft_lockup() -> Told:
    """4.19: cAdvisor reads memory.stat, which walks every group several times. The kernel itself complains after 22 s."""
    scene = Scene(cpus=32, seconds=60.0, kernel="4.19.0-25-amd64", off=("samples", "zombies", "cgroup-events"))
    trace = ("mem_cgroup_iter", "memcg_stat_show", "seq_read", "__vfs_read", "vfs_read", "ksys_read", "do_syscall_64")
    scene.hold(11, 8.0, 34.0, "cadvisor", 5120, trace, POD)
    lines = [
        "watchdog: BUG: soft lockup - CPU#11 stuck for 22s! [cadvisor:5120]",
        "Modules linked in: xt_nat veth overlay nf_nat ena",
    ]
    lines += [
        "CPU: 11 PID: 5120 Comm: cadvisor Not tainted 4.19.0-25-amd64 #1 Debian 4.19.289-2",
        "RIP: 0010:mem_cgroup_iter+0x9c/0x2e0",
    ]
    lines += [
        "Call Trace:",
        *(f" {name}+0x7d/0x1a0" for name in trace[1:]),
        " entry_SYSCALL_64_after_hwframe+0x5c/0xc1",
        " RIP: 0033:0x4bd6c0",
    ]
    scene.line(31.0, *lines)
    scene.memcgs(310, 41_200, growth=4)
    return Told(
        scene.whole(),
        Truth(
            ("zombie-memcgs", "memcg-leak"), innocent=("cadvisor", "containerd", "kubelet", "python3"), chain=("zombie-memcgs",)
        ),
    )


def reclaim_over_zombies() -> Told:
    """Memory is short for a while, and every pass of kswapd visits 60,000 dead groups that have nothing to give."""
    scene = Scene(cpus=32, seconds=60.0, kernel="5.15.0-91-generic", cgroups="v2")
    visit = ("css_next_descendant_pre", "mem_cgroup_iter", "shrink_node", "balance_pgdat", "kswapd", "kthread", "ret_from_fork")
    for start, end in ((10.0, 17.5), (22.0, 27.0), (35.0, 44.0)):
        scene.hold(6, start, end, "kswapd0", 221, visit)
        scene.hold(6, start, end, "kswapd0", 221, ("shrink_inactive_list", *visit[2:]), share=0.06)
    scene.counter("vmstat_pgscan_kswapd", [(10, 44, 5_200)])
    scene.counter("vmstat_pgsteal_kswapd", [(10, 44, 3_900)])
    scene.memcgs(420, 60_300, growth=60)
    home = "/system.slice/batch-runner.service"
    scene.leak(f"{home}/job-*", f"{home}/job-58213", home, 59_700, "batch-runner.service")
    scene.leak("/system.slice/*.service", "/system.slice/logrotate.service", "/system.slice", 600, confidence=40)
    scene.gauge("memcg_walk_live", (59, 420))
    scene.gauge("memcg_walk_zombies", (59, 60_360))
    return Told(
        scene.whole(),
        Truth(
            ("memcg-leak", "zombie-memcgs"),
            ("warning", "critical"),
            ("batch-runner.service",),
            ("kubelet", "containerd", "logrotate", "kswapd"),
        ),
    )


def leaked_directories() -> Told:
    """kubernetes#64137: 30,000 empty cgroup directories that nobody removed; kubelet lists them all, again and again."""
    scene = Scene(cpus=16, seconds=60.0, kernel="4.15.0-112-generic", off=("cgroup-events",))
    read = (
        "css_next_descendant_pre",
        "mem_cgroup_iter",
        "memcg_stat_show",
        "seq_read",
        "vfs_read",
        "ksys_read",
        "do_syscall_64",
    )
    for start, end in ((5.0, 9.1), (20.0, 24.0), (35.2, 39.4), (50.0, 54.1)):
        scene.hold(3, start, end, "kubelet", 3021, read, KUBELET)
    scene.memcgs(30_420, 210)
    example = "/system.slice/run-r9f31c0de8a4f4c6aa0b1.scope"
    for second in (1.0, 59.0):
        scene.row(
            "cgroup_dirs",
            time=scene.at(second),
            path="/system.slice",
            mount="/sys/fs/cgroup/memory",
            children=30_180,
            leaves=30_140,
            looked=256,
            empty=251,
            example=example,
        )
    return Told(
        scene.whole(),
        Truth(
            ("cgroup-dirs-leak",),
            ("warning", "critical"),
            ("/system.slice",),
            ("kubelet", "containerd"),
            never=("zombie-memcgs", "memcg-leak"),
        ),
    )


JOBS = "/kubepods/burstable/jobs"
SUPERVISOR = "/system.slice/job-supervisor.service"


def unreaped_children() -> Told:
    """A supervisor starts each job in a cgroup, removes the cgroup when the job has ended, and never waits for the job: 30,000
    zombies without a page, which kubelet walks."""
    scene = Scene(seconds=120.0, hz=19)
    _walks(scene)
    scene.memcgs(220, 30_100, growth=30)
    scene.unreaped(JOBS, 30_000, 30_040, 29_950, SUPERVISOR, "job-supervisor")
    scene.interrupts({queue: 39 if queue == 5 else (queue * 11 + 2) % 96 for queue in range(8)})
    scene.ena_reset(17.9)
    return Told(
        scene.whole(),
        Truth(
            ("defunct-processes",),
            culprits=("job-supervisor.service",),
            innocent=(*INNOCENT, JOBS),
            chain=("defunct-processes", "zombie-memcgs", "core-saturated", "napi-starved", "nic-reset"),
            never=("memcg-leak",),
            says=("job-supervisor.service does not reap", "exhume fix defunct-processes"),
        ),
    )


def unreaped_children_before_harm() -> Told:
    """The same in its first hours, on v2; a third of the zombies is held by something else."""
    scene = Scene(cpus=16, seconds=60.0, kernel="5.15.0", cgroups="v2")
    scene.memcgs(220, 6_000, growth=6)
    scene.unreaped(JOBS, 6_000, 4_100, 4_000, SUPERVISOR, "job-supervisor")
    return Told(
        scene.whole(),
        Truth(
            ("defunct-processes",),
            ("warning",),
            ("job-supervisor.service",),
            chain=("defunct-processes", "zombie-memcgs"),
            never=("memcg-leak",),
            says=("no harm seen yet",),
        ),
    )


def unreaped_by_number() -> Told:
    """A recording by a kernel without BPF iterators: as many defunct processes as zombies to which nothing is charged."""
    scene = Scene(cpus=16, seconds=60.0, kernel="5.4.0", cgroups="v2")
    scene.memcgs(220, 6_000, growth=6)
    scene.unreaped(JOBS, 6_000, 5_900, None)
    return Told(
        scene.whole(),
        Truth(
            ("defunct-processes",),
            ("warning",),
            innocent=(JOBS,),
            chain=("defunct-processes", "zombie-memcgs"),
            never=("memcg-leak",),
            says=("perhaps hold",),
        ),
    )


def defunct_beside_zombies() -> Told:
    """As many defunct processes as zombies, which they have nothing to do with: the kernel says that they hold 300."""
    scene = Scene(cpus=16, seconds=60.0, kernel="5.15.0", cgroups="v2")
    scene.memcgs(220, 6_000, growth=6)
    scene.unreaped(JOBS, 6_000, 5_900, 300, SUPERVISOR, "job-supervisor")
    return Told(
        scene.whole(),
        Truth(("memcg-leak",), ("warning",), (JOBS,), ("job-supervisor",), never=("defunct-processes",)),
    )


UNREAPED = (unreaped_children, unreaped_children_before_harm, unreaped_by_number)
INCIDENTS = (
    as_published, a_capture_and_dmesg, soft_lockup, reclaim_over_zombies, leaked_directories, *UNREAPED,
    defunct_beside_zombies,
)  # fmt: skip
