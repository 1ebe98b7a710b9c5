"""Every number that turns a reading into a finding, in one place. `[thresholds]` of the configuration file sets them."""

from dataclasses import field, replace
from typing import Any

from exhume.record import record


def _threshold(default: float, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@record(frozen=True, slots=True)
class Thresholds:
    """Defaults fit a node that serves other people's work; each can be set in the configuration."""

    zombies_floor: int = _threshold(
        1000, "zombie memory cgroups below this are told as information only, whatever their ratio to live ones"
    )
    zombies_per_live: float = _threshold(
        5.0, "zombies are a warning from this multiple of the live memory cgroups on (and the floor)"
    )
    leak_share: float = _threshold(
        0.05, "share of all zombies from which a place that they lived in is told, if it has a tenth of the floor, too"
    )
    leak_warning_share: float = _threshold(
        0.2, "share of all zombies from which such a place is a warning; one that has as many as the floor is one anyway"
    )
    leak_per_minute: float = _threshold(
        1.0, "zombies a minute, over the whole window, from which a leak is told while it is small"
    )
    leak_fewest: int = _threshold(20, "zombies in the window below which a small leak is not told")
    zombies_baseline: int = _threshold(
        50, "zombies that one place may have without being suspected; a leak's probability is judged against it"
    )
    empty_dirs_floor: int = _threshold(1000, "child directories of one cgroup from which empty ones count as leaked")
    empty_dirs_ratio: float = _threshold(0.8, "share of those that must hold no process")
    core_saturated_ratio: float = _threshold(
        0.95, "share of a core's time in the kernel (system, irq, softirq) that counts as saturated"
    )
    core_saturated_ms: int = _threshold(300, "how long a core must be saturated at a stretch to be told, ms")
    core_saturated_warning_ms: int = _threshold(1000, "from this length on a stretch is a warning by itself, ms")
    core_saturated_warning_ratio: float = _threshold(
        0.1, "shorter stretches are a warning if they are this share of the time together"
    )
    others_kernel_ratio: float = _threshold(
        0.5, "mean share of the other cores' time in the kernel from which a saturated core is no more than they are"
    )
    machine_kernel_ratio: float = _threshold(
        0.8, "mean share of all cores' time in the kernel from which the machine as a whole is told, if it lasts"
    )
    machine_kernel_ms: int = _threshold(3000, "how long that must last at a stretch, ms")
    memcg_walk_ms: int = _threshold(
        300, "time that a program spent in the kernel's walk over memory cgroups, in all, from which it is told, ms"
    )
    memcg_walk_ratio: float = _threshold(
        0.1, "the same as a share of a core's time, for windows in which less than that time can pass"
    )
    memcg_walk_stretch_ms: int = _threshold(300, "a walk over memory cgroups is a warning from this long at a stretch on, ms")
    memcg_walk_warning_ratio: float = _threshold(
        0.2, "walks over memory cgroups are a warning from this share of a core's time within a second on"
    )
    core_unaccounted_ms: int = _threshold(
        300, "how long a core's time must have stood still while the others' passed to be told, ms"
    )
    napi_stall_ms: int = _threshold(
        50, "how late the poll of a network device must be to be told, ms; the probes see none that is shorter than 50"
    )
    napi_stall_warning_ms: int = _threshold(
        200, "a single stall is a warning from this length on, ms: TCP sends anew what is not acknowledged for 200"
    )
    napi_stalls: int = _threshold(
        3, "shorter stalls of a device are a warning from this number on, if their share is reached, too"
    )
    napi_stall_ratio: float = _threshold(0.001, "share of the time in which a device's poll was late, for shorter stalls")
    napi_stall_critical_ms: int = _threshold(1000, "a stall is critical from this length on, ms, or when a reset followed")
    stretch_s: float = _threshold(
        2.0, "how long a rate below must last to be told, s; in a shorter recording nine tenths of it"
    )
    cpu_full_ratio: float = _threshold(0.9, "share of all cores' time that is busy from which the machine itself is full")
    cpu_full_s: float = _threshold(
        10.0,
        "how long the machine must be full to be told, s; in a shorter recording (1 s at least) nine tenths of it",
    )
    cpu_wait_ratio: float = _threshold(
        0.2, "share of the window in which some task waited for a core (PSI) from which a full machine is a warning"
    )
    throttled_ratio: float = _threshold(0.25, "share of a cgroup's quota periods that were throttled, to be told")
    throttled_periods: int = _threshold(5, "throttled periods in the window below this prove nothing")
    throttled_warning_ratio: float = _threshold(0.5, "share of its periods from which a throttled cgroup is a warning")
    throttled_warning_periods: int = _threshold(10, "throttled periods below this are told as information only")
    direct_reclaim_pages: int = _threshold(
        2000, "pages a second scanned by processes that wait for memory themselves (direct reclaim)"
    )
    direct_reclaim_ratio: float = _threshold(
        0.15, "share of all cores' time that tasks spend on reclaiming memory themselves from which it is a warning"
    )
    kswapd_pages: int = _threshold(
        250_000, "pages a second scanned by kswapd (1 GiB/s); a warning if it frees less than half of them"
    )
    memory_wait_ratio: float = _threshold(0.1, "share of the window in which some task waited for memory (PSI)")
    major_faults: int = _threshold(1000, "major page faults a second")
    fault_wait_ratio: float = _threshold(
        0.1,
        "share of the time in which some task waited for memory or I/O (PSI) from which major faults are a warning, if what "
        "they read was in memory a moment ago",
    )
    minor_faults: int = _threshold(
        100_000, "page faults a second and core, of any kind, told where the kernel takes fault_ratio of all cores' time"
    )
    fault_ratio: float = _threshold(
        0.3, "share of the busy time spent on page faults to be told; a warning from this share of all cores' time on"
    )
    steal_ratio: float = _threshold(0.1, "share of all cores' time that the hypervisor gave to others")
    steal_warning_ratio: float = _threshold(0.3, "the same, from which it is a warning although nobody is seen to wait")
    steal_wait_ratio: float = _threshold(0.2, "the same, from which it is one where tasks wait and hardly a core is idle")
    steal_core_ratio: float = _threshold(
        0.5, "share of one core's time that the hypervisor took, for a second or more, to be told"
    )
    io_full_ratio: float = _threshold(
        0.2, "share of the window in which all tasks that were not idle waited for I/O while pages were written back"
    )
    dirty_ratio: float = _threshold(
        0.5, "dirty pages and those under writeback, as a share of nr_dirty_threshold, from which writers are held up"
    )
    printk_rate: int = _threshold(
        200, "kernel-log records a second to be told; a warning if they are printed to a console, too"
    )
    printk_warning_rate: int = _threshold(
        1000, "from this rate on they are a warning by themselves: they push the 8,192 records of a log of 256 KiB out in 8 s"
    )
    console_ratio: float = _threshold(0.3, "share of one core's time spent on printing to a console")
    defunct_processes: int = _threshold(100, "defunct (<defunct>, state Z) processes from which it is a warning")
    crash_restarts: int = _threshold(
        5, "restarts of a unit from which its loop is a warning; lives in a rhythm from which something is a loop"
    )
    crash_hasty: int = _threshold(
        20, "containers one after the other in a rhythm from which it is a warning, even if nobody saw how they ended"
    )
    crash_hasty_s: int = _threshold(15, "their period, at most, s")
    irq_share: float = _threshold(0.9, "share of all interrupts of network queues that one core takes")
    irq_rate: int = _threshold(20_000, "network interrupts a second below which their spread does not matter")
    irq_time_ratio: float = _threshold(0.5, "share of that core's time that interrupts must take (irq and softirq)")
    recent_s: int = _threshold(3600, "kernel-log events within this many seconds before now count as current")
    observer_wait_ms: int = _threshold(1000, "how long exhume itself may wait for a core before that is told, ms")

    def many_zombies(self, zombies: float, live: float) -> bool:
        """Whether so many zombie memory cgroups beside so many live ones matter."""
        return zombies >= self.zombies_floor and zombies >= self.zombies_per_live * live

    def ageless(self) -> "Thresholds":
        """For what happened in a recording: it is as bad as it was, whenever that was."""
        return replace(self, recent_s=1 << 40)
