"""What `exhume record` says: one line while it runs, a few when it ends."""

from typing import TYPE_CHECKING

import numpy as np

from exhume.host.quantities import counted, size
from exhume.recording.schema import CPU_STATES

if TYPE_CHECKING:
    from exhume.recorder.recorder import Status
    from exhume.recording.recording import Recording


def progress(status: "Status", before: "Status | None") -> str:
    """Time, what is seen, what it costs itself."""
    lasted = status.elapsed_ns - (before.elapsed_ns if before is not None else 0)
    parts = [clock(status.elapsed_ns), f"{status.samples * 1e9 / max(1, lasted):,.0f} samples/s"]
    if (busiest := busiest_core(status.rows)) is not None:
        parts.append("core {} {:.0f}% busy, {:.0f}% kernel".format(*busiest))
    zombies = status.rows["memcg"].ints("dying")
    if len(zombies) and zombies[-1] >= 0:
        parts.append(f"{zombies[-1]:,} zombies")
    if before is not None and status.elapsed_ns > before.elapsed_ns:
        share = (status.own_cpu_ns - before.own_cpu_ns) / (status.elapsed_ns - before.elapsed_ns)
        parts.append(f"own {share:.1%} CPU")
    if status.own_memory_bytes:
        parts.append(size(status.own_memory_bytes))
    parts.append(f"{size(status.size_bytes)} on disk")
    if lost := status.lost_samples + status.lost_rows:
        parts.append(f"{lost:,} lost")
    return " · ".join(parts)


def closing(path: str, first: "Status", last: "Status", samples: int, incidents: int) -> str:
    lost = [f"{last.lost_samples:,} samples lost"] if last.lost_samples else []
    lost += [f"{last.lost_rows:,} rows of all tables could not be written"] if last.lost_rows else []
    lines = [f"recorded {clock(last.elapsed_ns)} to {path}: {samples:,} samples taken, {', '.join(lost) or 'nothing lost'}"]
    cost = []
    if last.elapsed_ns > first.elapsed_ns:  # its start-up apart
        cost.append(f"{(last.own_cpu_ns - first.own_cpu_ns) / (last.elapsed_ns - first.elapsed_ns):.2%} of one core")
    if last.own_memory_bytes:
        cost.append(f"{size(last.own_memory_bytes)} of memory")
    lines.append(f"cost {', '.join([*cost, f'{size(last.size_bytes)} of disk'])}")
    if incidents:
        lines.append(f"{counted(incidents, 'incident')} pinned")
    pictures = f" · exhume heat {path} · exhume flame {path}" if samples else ""
    lines.append(f"look at it: exhume diagnose {path} · exhume info {path}{pictures}")
    return "\n".join(lines)


def clock(ns: int) -> str:
    seconds = ns // 10**9
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def busiest_core(rows: "Recording") -> tuple[int, float, float] | None:
    """The core that did most in these rows: its number, how busy it was and how much of that in the kernel, per cent."""
    table = rows["cpu"]
    if not len(table):
        return None
    core = table.ints("core")
    ticks = {state: table.ints(state) for state in CPU_STATES[:8]}
    best = None
    for number in np.flatnonzero(np.bincount(core)).tolist():
        at = np.flatnonzero(core == number)[[0, -1]]
        used = {state: int(values[at[1]] - values[at[0]]) for state, values in ticks.items()}
        total = sum(used.values())
        if total <= 0:
            continue
        busy = 100 * (total - used["idle"] - used["iowait"]) / total
        kernel = 100 * (used["system"] + used["irq"] + used["softirq"]) / total
        if best is None or busy > best[1]:
            best = number, busy, kernel
    return best
