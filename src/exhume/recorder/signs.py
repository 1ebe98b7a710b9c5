"""Whether anything happens on a node at all, by a look at each batch, so that a quiet node need not be judged as often.

This judges nothing. It is far more easily alarmed than any detector, and from the first sign on the node is judged at the full
rate. What has no sign (a short burst that two batches share, a state that was there before) is found with the next turn: the
window that is judged is longer than any pause between two turns, so that nothing falls between them.

What comes and goes all day is no sign of anything new: a node that starts a pod every second, or has leaked for weeks, is not
judged more often for it once a whole window of it has been judged. That is for comings and goings alone (STEADY), whose numbers
are in the metrics as they are, and only if they come all the time: of what comes every quarter of a minute, as restarts of a
container do, a window has just enough to be judged by, and only when the last one has come. A core that works may saturate at
any moment, and is judged at the full rate for as long.
"""

from typing import Any

import numpy as np

from exhume.recorder.policy import DEFAULT, Policy
from exhume.recording.recording import Labels, Recording

TICK_NS = 10_000_000  # USER_HZ is 100 on every architecture that has a perf clock
# Counters of which any growth is a sign.
_ANY = (
    "cpu_throttled_ns",
    "cpu_throttled_periods",
    "vmstat_allocstall",
    "vmstat_oom_kill",
    "vmstat_pgscan_direct",
    "vmstat_nr_vmscan_write",
    "softnet_dropped",
    "nic_carrier_changes",
    "nic_rx_errors",
    "nic_rx_missed_errors",
    "nic_tx_errors",
    "nic_stat",
)
# Series that are remembered: cgroups under quota may be many.
_MOST = 1 << 14
# Signs that count as background once they have come all the time for a whole window.
STEADY = frozenset({"cgroups", "zombies", "units"})


def _growth(policy: Policy) -> dict[str, float]:
    """Growth a second from which a counter is a sign."""
    return dict.fromkeys(_ANY, 0.0) | {
        "pressure_us": policy.sign_pressure_ratio * 1e6,
        "printk_records": policy.sign_log_lines_per_s,
        "printk_program_records": policy.sign_program_lines_per_s,
        "vmstat_pgscan_kswapd": policy.sign_kswapd_per_s,
        "vmstat_pgmajfault": policy.sign_major_faults_per_s,
        "softnet_squeezed": policy.sign_squeezed_per_s,
    }


class Signs:
    """Asked once a batch."""

    def __init__(self, policy: Policy = DEFAULT) -> None:
        self._growth = _growth(policy)
        self._pause_ns = round(policy.sign_pause_s * 1e9)
        """Units are read every ten seconds and come with the next batch; of what comes every twelve a window always has the
        five that make a loop."""
        self._idle_ratio = policy.sign_idle_ratio
        self._last: dict[tuple[str, Labels], tuple[int, int]] = {}
        self._runs: dict[str, tuple[int, int]] = {}
        """Steady signs: since when they come all the time, and when they came last."""
        self._dying = -1
        self._units: list[tuple[Any, ...]] = []

    def seen(self, rows: Recording) -> set[str]:
        """Their names. Of everything the last value is remembered, whatever else there was: no short cuts."""
        signs = {
            "counters": self._grown(rows),
            "zombies": self._leaked(rows),
            "units": self._changed(rows),
            "events": bool(len(rows["events"])),
            "cgroups": bool(len(rows["cgroup_events"])),
            "cores": busy(rows, self._idle_ratio),
        }
        found = {name for name, there in signs.items() if there}
        now = rows.window[1]
        for name in found & STEADY:
            since, last = self._runs.get(name, (now, now))
            self._runs[name] = since if now - last <= self._pause_ns else now, now
        return found

    def usual(self, since: int) -> set[str]:
        """Those that have come all the time since then or longer."""
        return {name for name, (begun, _) in self._runs.items() if begun <= since}

    def _leaked(self, rows: Recording) -> bool:
        """More zombies than ever since it was asked."""
        dying = rows["memcg"].ints("dying")
        before, self._dying = self._dying, max(self._dying, int(dying.max(initial=-1)))
        return self._dying > before >= 0

    def _changed(self, rows: Recording) -> bool:
        """Whether a service came, went, restarted or is in another state."""
        table = rows["units"]
        if not len(table):
            return False
        before = self._units
        columns = (table.column(name) for name in ("unit", "active", "sub", "restarts", "main_pid"))
        self._units = sorted(zip(*columns, strict=True))
        return bool(before) and before != self._units

    def _grown(self, rows: Recording) -> bool:
        table, found = rows["counters"], False
        columns = table.texts("name"), table.column("labels"), table.ints("time").tolist(), table.ints("value").tolist()
        for name, at, time, value in zip(*columns, strict=True):
            allowed = self._growth.get(name)
            if allowed is None:
                continue
            if (known := self._last.get((name, at))) is not None:
                more, seconds = value - known[1], max(0, time - known[0]) / 1e9
                found = found or (more > allowed * seconds if more >= 0 else True)
            self._last[name, at] = time, value
        if len(self._last) > _MOST:
            self._last.clear()
            return True
        return found


def busy(rows: Recording, idle_ratio: float) -> bool:
    """Whether a core worked for more than a moment, or is not known to have been without work. A detector asks for 300 ms in
    the kernel, a batch has 1.8 s at most; what the hypervisor took, or what was not accounted, is not without work either."""
    table = rows["cpu"]
    if not len(table):
        return False
    cores, times, idle = table.ints("core"), table.ints("time"), table.ints("idle") + table.ints("iowait")
    order = np.lexsort((times, cores))
    cores, times, idle = cores[order], times[order], idle[order]
    first = np.flatnonzero(np.append(True, cores[1:] != cores[:-1]))
    last = np.append(first[1:], len(cores)) - 1
    return bool(((idle[last] - idle[first]) * TICK_NS < idle_ratio * (times[last] - times[first])).any())
