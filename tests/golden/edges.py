"""Small scenes near a threshold: with the threshold doubled or halved, the judgement changes.

Incidents are far from any threshold, so no other case notices when one changes. Each scene has the name of its threshold.
"""

from collections.abc import Callable

import numpy as np

from exhume.recording.recording import Recording, Table
from exhume.recording.schema import CPU_STATES
from exhume.recording.source_state import SourceState
from tests.diagnosis.findings.made import stall
from tests.incidents.recorded import POD
from tests.incidents.scene import Scene
from tests.incidents.zombies import ZOMBIE_READ

Make = Callable[[], Recording]

KUBELET = "/system.slice/kubelet.service"
JOB = "/system.slice/job.service"
WORK = ("mdelay", "bad_ioctl", "__x64_sys_ioctl")
FAULTS = (
    "clear_page_erms",
    "do_anonymous_page",
    "handle_mm_fault",
    "do_user_addr_fault",
    "exc_page_fault",
    "asm_exc_page_fault",
)
DIRECT = (
    "shrink_inactive_list", "shrink_lruvec", "shrink_node", "do_try_to_free_pages", "try_to_free_pages", "__alloc_pages",
    "handle_mm_fault", "exc_page_fault",
)  # fmt: skip
PRINT = ("wait_for_xmitr", "serial8250_console_putchar", "serial8250_console_write", "console_unlock", "vprintk_emit", "printk")
CORES = 8


def _scene(
    seconds: float = 30, live: int = 200, dying: int = 50, off: tuple[str, ...] = (), busy: float = 0.1, growth: int = 0
) -> Scene:
    scene = Scene(cpus=CORES, seconds=seconds, kernel="5.4.0", cgroups="v1", off=off, busy=busy)
    scene.memcgs(live, dying, growth)
    return scene


def _pressure(scene: Scene, resource: str, some: float, full: float = 0.0) -> None:
    for kind, share in (("some", some), ("full", full)):
        scene.counter("pressure_us", [(0, scene.seconds, round(share * 1_000_000))], cgroup="", kind=kind, resource=resource)


def _all_cores(scene: Scene, start: float, end: float, share: float, state: str, stack: tuple[str, ...] = ()) -> None:
    for core in range(CORES):
        scene.hold(core, start, end, "java", 6000 + core, stack, POD, state=state, share=share)


# Zombies and leaks.


def zombies_floor() -> Recording:
    return _scene(live=100, dying=1500).whole()


def zombies_per_live() -> Recording:
    return _scene(live=1000, dying=7000).whole()


def _places(total: int, zombies: int) -> Recording:
    scene = _scene(dying=total, live=100)
    scene.leak("/a/job-*", "/a/job-1", "/a", zombies, "a.service")
    scene.leak("/b/job-*", "/b/job-1", "/b", total - zombies, "b.service")
    scene.gauge("memcg_walk_live", (29, 100))
    scene.gauge("memcg_walk_zombies", (29, total))
    return scene.whole()


def leak_share() -> Recording:
    return _places(10_000, 700)


def leak_warning_share() -> Recording:
    return _places(2000, 600)


def _small_leak(period: float, seconds: float) -> Recording:
    scene = Scene(cpus=2, seconds=seconds, kernel="5.4.0", off=("samples", "processes"), step=5.0)
    count = int((seconds - 10) / period)
    for i in range(count):
        at = 5 + i * period
        for second, kind in ((at, "mkdir"), (at + 1, "rmdir")):
            scene.row(
                "cgroup_events", time=scene.at(second), kind=kind, hierarchy=9, id=90_000 + i, level=2,
                path=f"/system.slice/agent.service/run-{i}", pid=31 + i, comm="agent",
            )  # fmt: skip
    scene.memcgs(200, 10, growth=count)
    home = "/system.slice/agent.service"
    scene.leak(f"{home}/run-*", f"{home}/run-1", home, count, "agent.service")
    scene.gauge("memcg_walk_live", (seconds - 1, 200))
    scene.gauge("memcg_walk_zombies", (seconds - 1, 10 + count))
    return scene.whole()


def leak_per_minute() -> Recording:
    return _small_leak(40.0, 2400.0)


def leak_fewest() -> Recording:
    return _small_leak(8.0, 250.0)


def zombies_baseline() -> Recording:
    return _places(2000, 300)


def empty_dirs_floor() -> Recording:
    return _directories(1400, 200)


def empty_dirs_ratio() -> Recording:
    return _directories(5000, 120)


def _directories(children: int, empty: int) -> Recording:
    scene = _scene()
    for second in (1, 29):
        scene.row(
            "cgroup_dirs", time=scene.at(second), path="/kubepods", mount="/sys/fs/cgroup/memory", children=children,
            leaves=children, looked=200, empty=empty, example="/kubepods/pod1",
        )  # fmt: skip
    return scene.whole()


# Cores.


def core_saturated_ratio() -> Recording:
    scene = _scene()
    scene.hold(3, 5, 15, "job", 777, WORK, JOB, share=0.97)
    return scene.whole()


def core_saturated_ms() -> Recording:
    scene = _scene()
    for start in range(2, 28, 3):
        scene.hold(3, start, start + 0.5, "job", 777, WORK, JOB)
    return scene.whole()


def core_saturated_warning_ms() -> Recording:
    scene = _scene()
    scene.hold(3, 5, 6.5, "job", 777, WORK, JOB)
    return scene.whole()


def others_kernel_ratio() -> Recording:
    scene = _scene()
    _all_cores(scene, 5, 15, 0.35, "system", WORK)
    scene.hold(3, 5, 15, "job", 777, WORK, JOB, share=0.64)
    return scene.whole()


def machine_kernel_ratio() -> Recording:
    scene = _scene()
    _all_cores(scene, 5, 15, 0.88, "system", WORK)
    return scene.whole()


def machine_kernel_ms() -> Recording:
    scene = _scene()
    _all_cores(scene, 5, 9.5, 0.88, "system", WORK)
    return scene.whole()


def _walks(length: float, every: float, seconds: float = 30, first: float = 1.0, last: float = 29.0) -> Recording:
    scene = _scene(seconds, dying=9000)
    scene.hz = 97
    at = first
    while at < last:
        scene.hold(3, at, at + length, "kubelet", 3021, ZOMBIE_READ, KUBELET)
        at += every
    return scene.whole()


def memcg_walk_ms() -> Recording:
    return _walks(0.11, 7.0)


def memcg_walk_ratio() -> Recording:
    return _walks(0.13, 0.9, seconds=2.0, first=0.2, last=1.5)


def memcg_walk_stretch_ms() -> Recording:
    return _walks(0.18, 6.0)


def memcg_walk_warning_ratio() -> Recording:
    return _walks(0.27, 6.0)


def core_unaccounted_ms() -> Recording:
    """The counters of a core stand still for a while and go on from there."""
    recording = _scene(off=("samples",)).whole()
    old = recording["cpu"]
    times, cores = old.ints("time"), old.ints("core")
    first, last = recording.window[0] + 10 * 10**9, recording.window[0] + 10 * 10**9 + 450 * 10**6
    columns = {"time": times, "core": cores}
    for state in CPU_STATES:
        values = old.ints(state).copy()
        mine = cores == 3
        then = values[mine & (times <= first)][-1]
        lost = values[mine & (times <= last)][-1] - then
        values[mine & (times > last)] -= lost
        values[mine & (times > first) & (times <= last)] = then
        columns[state] = values
    recording.tables["cpu"] = new = Table(old.schema)
    new.add_columns({column.name: np.asarray(columns[column.name]) for column in old.schema.columns})
    return recording


# Network.


def _stalls(ms: float, *ends: float, seconds: float = 30) -> Recording:
    scene = _scene(seconds, off=("processes",))
    scene.recording.add_source(scene.at(0), "latency", SourceState("on"))
    for end in ends:
        stall(scene.recording, scene.at(end) / 1e9, ms, core=3)
    return scene.whole()


def napi_stall_ms() -> Recording:
    return _stalls(70, 10)


def napi_stall_warning_ms() -> Recording:
    return _stalls(300, 10)


def napi_stalls() -> Recording:
    return _stalls(100, 5, 10, 15, 20)


def napi_stall_ratio() -> Recording:
    return _stalls(60, 20, 60, 100, seconds=120)


def napi_stall_critical_ms() -> Recording:
    return _stalls(1400, 10)


def _interrupts(rate: float, share: float, spent: float) -> Recording:
    scene = _scene()
    scene.interrupts({0: 2}, rate=rate * share)
    scene.interrupts({1: 5}, rate=rate * (1 - share))
    poll = ("ena_io_poll", "__napi_poll", "net_rx_action", "__do_softirq", "run_ksoftirqd")
    scene.hold(2, 0, 30, "ksoftirqd/2", 22, poll, state="softirq", share=spent)
    return scene.whole()


def irq_share() -> Recording:
    return _interrupts(40_000, 0.6, 0.9)


def irq_rate() -> Recording:
    return _interrupts(30_000, 1.0, 0.9)


def irq_time_ratio() -> Recording:
    return _interrupts(60_000, 1.0, 0.7)


# The whole machine.


def _full(share: float, seconds: float, waited: float) -> Recording:
    scene = _scene(40, busy=0.05)
    _all_cores(scene, 5, 5 + seconds, share, "user")
    _pressure(scene, "cpu", waited)
    return scene.whole()


def cpu_full_ratio() -> Recording:
    return _full(0.96, 20, 0.6)


def cpu_full_s() -> Recording:
    return _full(1.0, 14, 0.6)


def cpu_wait_ratio() -> Recording:
    return _full(1.0, 30, 0.3)


def _throttled(periods: float, throttled: float) -> Recording:
    scene = _scene()
    for name, value in (("cpu_quota_us", 200_000), ("cpu_period_us", 100_000)):
        scene.gauge(name, (0, value), (30, value), cgroup=JOB)
    scene.counter("cpu_periods", [(0, 30, periods / 30)], cgroup=JOB)
    scene.counter("cpu_throttled_periods", [(0, 30, throttled / 30)], cgroup=JOB)
    scene.counter("cpu_throttled_ns", [(0, 30, throttled / 30 * 6e7)], cgroup=JOB)
    return scene.whole()


def throttled_ratio() -> Recording:
    return _throttled(300, 105)


def throttled_periods() -> Recording:
    return _throttled(21, 8)


def throttled_warning_ratio() -> Recording:
    return _throttled(300, 210)


def throttled_warning_periods() -> Recording:
    return _throttled(18, 15)


def _stolen(share: float, cores: int = CORES, busy: float = 0.1, waited: float = 0.0) -> Recording:
    scene = _scene(busy=busy)
    for core in range(cores):
        scene.hold(core, 3, 28, "java", 6000 + core, (), POD, state="steal", share=share)
    _pressure(scene, "cpu", waited)
    return scene.whole()


def steal_ratio() -> Recording:
    return _stolen(0.15)


def steal_warning_ratio() -> Recording:
    return _stolen(0.4)


def steal_wait_ratio() -> Recording:
    return _stolen(0.26, busy=0.97, waited=0.6)


def steal_core_ratio() -> Recording:
    return _stolen(0.7, cores=1)


# Memory.


def _reclaim(direct: float = 0, kswapd: float = 0, freed: float = 0, waited: float = 0.0) -> Scene:
    scene = _scene()
    for name, rate in (("pgscan_direct", direct), ("pgscan_kswapd", kswapd), ("pgsteal_kswapd", freed)):
        scene.counter(f"vmstat_{name}", [(5, 25, rate)])
    _pressure(scene, "memory", waited)
    return scene


def direct_reclaim_pages() -> Recording:
    return _reclaim(direct=3000).whole()


def direct_reclaim_ratio() -> Recording:
    scene = _reclaim(direct=500)
    _all_cores(scene, 5, 25, 0.22, "system", DIRECT)
    return scene.whole()


def kswapd_pages() -> Recording:
    return _reclaim(kswapd=350_000, freed=30_000).whole()


def memory_wait_ratio() -> Recording:
    return _reclaim(direct=100, waited=0.15).whole()


def stretch_s() -> Recording:
    scene = _scene()
    scene.counter("vmstat_pgscan_direct", [(10, 13, 50_000)], every=0.5)
    scene.counter("vmstat_pgscan_kswapd", [(10, 13, 900)], every=0.5)
    return scene.whole()


def _major(rate: float, waited: float) -> Recording:
    scene = _scene()
    scene.counter("vmstat_pgmajfault", [(5, 25, rate)])
    scene.counter("vmstat_workingset_refault_file", [(5, 25, rate)])
    _pressure(scene, "io", waited)
    return scene.whole()


def major_faults() -> Recording:
    return _major(1500, 0.4)


def fault_wait_ratio() -> Recording:
    return _major(9000, 0.15)


def minor_faults() -> Recording:
    scene = _scene(off=("samples",))
    scene.counter("vmstat_pgfault", [(5, 25, 140_000 * CORES)])
    _all_cores(scene, 5, 25, 0.7, "system")
    return scene.whole()


def fault_ratio() -> Recording:
    scene = _scene()
    scene.counter("vmstat_pgfault", [(5, 25, 140_000 * CORES)])
    _all_cores(scene, 5, 25, 0.4, "system", FAULTS)
    return scene.whole()


def _writeback(full: float, dirty: int) -> Recording:
    scene = _scene()
    _pressure(scene, "io", full + 0.05, full)
    for name, pages in (("nr_dirty", dirty // 2), ("nr_writeback", dirty - dirty // 2), ("nr_dirty_threshold", 100_000)):
        scene.gauge(f"vmstat_{name}", *((second, pages) for second in range(30)))
    return scene.whole()


def io_full_ratio() -> Recording:
    return _writeback(0.3, 90_000)


def dirty_ratio() -> Recording:
    return _writeback(0.6, 70_000)


# The kernel log, processes and units.


def _messages(rate: float, printing: float = 0.0) -> Recording:
    scene = _scene()
    scene.counter("printk_records", [(5, 25, rate)])
    if printing:
        scene.hold(3, 5, 25, "kworker/3:1", 90, PRINT, share=printing)
    return scene.whole()


def printk_rate() -> Recording:
    return _messages(300, 0.2)


def printk_warning_rate() -> Recording:
    return _messages(1400)


def console_ratio() -> Recording:
    return _messages(20, 0.45)


def defunct_processes() -> Recording:
    scene = _scene()
    scene.gauge("processes_defunct", *((second, 150) for second in range(0, 31, 2)))
    return scene.whole()


def crash_restarts() -> Recording:
    scene = _scene(60)
    for i in range(11):
        scene.row(
            "units", time=scene.at(5.5 * i), unit="relay.service", active="activating", sub="auto-restart", restarts=min(7, i),
            result="exit-code", enabled="enabled", cgroup="/system.slice/relay.service", needed_by="",
        )  # fmt: skip
    scene.units()
    return scene.whole()


def _containers(count: int, period: float) -> Recording:
    scene = Scene(cpus=2, seconds=count * period + 10, kernel="5.4.0", off=("samples", "processes"), step=1.0)
    for i in range(count):
        for second, kind in ((i * period + 1.0, "mkdir"), (i * period + 3.0, "rmdir"), (i * period + 3.1, "release")):
            scene.row(
                "cgroup_events", time=scene.at(second), kind=kind, hierarchy=9, id=90_000 + i, level=2,
                path=f"/docker/{i:064x}", pid=30_001 + 20 * i, comm="runc",
            )  # fmt: skip
    scene.memcgs(200, 50)
    return scene.whole()


def crash_hasty() -> Recording:
    return _containers(28, 9.0)


def crash_hasty_s() -> Recording:
    return _containers(50, 11.0)


def observer_wait_ms() -> Recording:
    scene = _scene()
    scene.recording.count(scene.at(29), "own_wait_ns", 1_500_000_000)
    return scene.whole()


SCENES: tuple[Make, ...] = (
    zombies_floor, zombies_per_live, leak_share, leak_warning_share, leak_per_minute, leak_fewest, zombies_baseline,
    empty_dirs_floor, empty_dirs_ratio, core_saturated_ratio, core_saturated_ms, core_saturated_warning_ms,
    core_unaccounted_ms, others_kernel_ratio,
    machine_kernel_ratio, machine_kernel_ms, memcg_walk_ms, memcg_walk_ratio, memcg_walk_stretch_ms, memcg_walk_warning_ratio,
    napi_stall_ms, napi_stall_warning_ms, napi_stalls, napi_stall_ratio, napi_stall_critical_ms, irq_share, irq_rate,
    irq_time_ratio, cpu_full_ratio, cpu_full_s, cpu_wait_ratio, throttled_ratio, throttled_periods, throttled_warning_ratio,
    throttled_warning_periods, steal_ratio, steal_warning_ratio, steal_wait_ratio, steal_core_ratio, direct_reclaim_pages,
    direct_reclaim_ratio, kswapd_pages, memory_wait_ratio, stretch_s, major_faults, fault_wait_ratio, minor_faults, fault_ratio,
    io_full_ratio, dirty_ratio, printk_rate, printk_warning_rate, console_ratio, defunct_processes, crash_restarts, crash_hasty,
    crash_hasty_s, observer_wait_ms,
)  # fmt: skip
