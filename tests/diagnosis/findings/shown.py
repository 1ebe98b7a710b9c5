"""What the rivals of a recording are made of: counters that burst, cores that do something for a while, stacks."""

from typing import Any

from exhume.diagnosis.findings.model import Examined
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording, labels
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import SECOND

T = Thresholds()
DIRECT = ("shrink_inactive_list", "shrink_lruvec", "try_to_free_pages", "__alloc_pages_direct_reclaim", "__alloc_pages")
KSWAPD = ("shrink_inactive_list", "shrink_lruvec", "shrink_node", "balance_pgdat", "kswapd")
ASKED = (
    "mem_cgroup_iter",
    "shrink_node",
    "do_try_to_free_pages",
    "try_to_free_mem_cgroup_pages",
    "mem_cgroup_force_empty_write",
)
CONSOLE = ("wait_for_lsr", "serial8250_console_write", "console_unlock", "vprintk_emit", "_printk")
FAULT = ("clear_page_erms", "do_anonymous_page", "handle_mm_fault", "do_user_addr_fault", "exc_page_fault")


def one(examined: Examined) -> Any:
    assert len(examined.findings) == 1, examined
    return examined.findings[0]


def burst(
    recording: Recording, name: str, per_second: float, start: int = 300, end: int = 320, until: int = 600, at: Any = ()
) -> None:
    """A counter that is read every two seconds and has a row only when it changed, as it is on disk."""
    value = 10**9
    recording.count(0, name, value, at)
    for second in range(2, until + 1, 2):
        if start < second <= end:
            value += round(2 * per_second)
            recording.count(second * SECOND, name, value, at)


def read(recording: Recording, source: str, until: int = 600) -> None:
    """Something of that source changes at each reading."""
    for second in range(0, until + 1, 2):
        recording.count(second * SECOND, f"{source}_something", second)


def ten_minutes(*sources: str) -> Recording:
    recording = made.recording(on=("cpu", "kernel-log", "throttling", "interrupts"))
    made.cores(recording, 600.0, {}, step=1.0)
    for source in sources:
        read(recording, source)
    return recording


def lasted(finding: Any) -> tuple[float, float]:
    return finding.start / SECOND, finding.end / SECOND


PSI_MEMORY = labels(cgroup="", kind="some", resource="memory")


def sampled(kinds: dict[int, tuple[float, float, tuple[str, ...], str]], cpus: int = 4, seconds: float = 10.0) -> Recording:
    """Cores that do something from here to there, and are idle otherwise, by their stacks."""
    recording = made.recording(cpus=cpus)
    made.cores(recording, seconds, {}, step=1.0)
    for core in range(cpus):
        start, end, stack, comm = kinds.get(core, (0.0, 0.0, (), ""))
        if stack:
            made.sample(recording, start, end, core, comm, 100 + core, stack, cgroup=f"/kubepods/{comm}")
        for idle_from, idle_to in ((0.0, start), (end, seconds)):
            if idle_to > idle_from:
                made.sample(recording, idle_from, idle_to, core, f"swapper/{core}", 0, ("do_idle",), "idle")
    return recording


LIMIT = ("shrink_inactive_list", "do_try_to_free_pages", "try_to_free_mem_cgroup_pages", "try_charge_memcg", "handle_mm_fault")


def flood(recording: Recording, name: str = "printk_records") -> None:
    burst(recording, name, 500)
    burst(recording, name, 450, at=labels(prefix="veth#", example="veth7: entered promiscuous mode"))
    burst(recording, name, 50, at=labels(prefix="usb #-#", example="usb 1-1: reset"))
