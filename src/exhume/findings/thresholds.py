"""Every number that turns a reading into a finding, in one place. `[thresholds]` of the configuration file sets them."""

from dataclasses import dataclass, field
from typing import Any


def _threshold(default: float, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Defaults fit a node that serves other people's work; each can be set in the configuration."""

    zombies_floor: int = _threshold(
        1000, "zombie memory cgroups below this are told as information only, whatever their ratio to live ones"
    )
    zombies_per_live: float = _threshold(
        5.0, "zombies are a warning from this multiple of the live memory cgroups on (and the floor)"
    )
    leak_share: float = _threshold(0.5, "share of all zombies that must have lived in one place for it to be named as the leak")
    zombies_baseline: int = _threshold(
        50, "zombies that one place may have without being suspected; a leak's probability is judged against it"
    )
    empty_dirs_floor: int = _threshold(1000, "child directories of one cgroup from which empty ones count as leaked")
    empty_dirs_ratio: float = _threshold(0.8, "share of those that must hold no process")
    core_saturated_ratio: float = _threshold(
        0.95, "share of a core's time in the kernel (system, irq, softirq) that counts as saturated"
    )
    core_saturated_ms: int = _threshold(300, "how long a core must be saturated at a stretch to be told, ms")
    others_kernel_ratio: float = _threshold(
        0.5, "mean share of the other cores' time in the kernel from which a saturated core is no more than they are"
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
    cpu_full_ratio: float = _threshold(0.9, "share of all cores' time that is busy from which the machine itself is full")
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
    kswapd_pages: int = _threshold(
        250_000, "pages a second scanned by kswapd (1 GiB/s); a warning if it frees less than half of them"
    )
    memory_wait_ratio: float = _threshold(0.1, "share of the window in which some task waited for memory (PSI)")
    major_faults: int = _threshold(1000, "major page faults a second")
    steal_ratio: float = _threshold(0.1, "share of all cores' time that the hypervisor gave to others")
    io_full_ratio: float = _threshold(
        0.2, "share of the window in which all tasks that were not idle waited for I/O while pages were written back"
    )
    dirty_ratio: float = _threshold(
        0.5, "dirty pages and those under writeback, as a share of nr_dirty_threshold, from which writers are held up"
    )
    printk_rate: int = _threshold(200, "kernel-log records a second")
    defunct_processes: int = _threshold(100, "defunct (<defunct>, state Z) processes from which it is a warning")
    crash_restarts: int = _threshold(5, "restarts of a unit from which its loop is a warning")
    irq_share: float = _threshold(0.9, "share of all interrupts of network queues that one core takes")
    irq_rate: int = _threshold(20_000, "network interrupts a second below which their spread does not matter")
    irq_time_ratio: float = _threshold(0.5, "share of that core's time that interrupts must take (irq and softirq)")
    recent_s: int = _threshold(3600, "kernel-log events within this many seconds before now count as current")
    observer_wait_ms: int = _threshold(1000, "how long exhume itself may wait for a core before that is told, ms")
