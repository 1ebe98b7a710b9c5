"""The schema of every table of a recording: names, kinds and units, in one place, for the store and for the documentation.

Times are nanoseconds of the kernel's perf/printk clock (what `dmesg` shows); the `anchors` table ties it to wall time.
"""

from dataclasses import dataclass
from typing import Literal

VERSION = 1

Kind = Literal["time", "int", "text", "labels", "list"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `labels` are sorted (key, value) pairs, a JSON object on disk; a `list` is of numbers."""

    name: str
    kind: Kind
    doc: str


@dataclass(frozen=True, slots=True)
class TableSchema:
    name: str
    doc: str
    columns: tuple[Column, ...]


def _table(name: str, doc: str, *columns: tuple[str, Kind, str]) -> TableSchema:
    return TableSchema(name, doc, tuple(Column(*column) for column in columns))


# The ten counters of a cpu line in /proc/stat, in its order, in USER_HZ ticks (proc_stat in fs/proc/stat.c).
CPU_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")

TABLES: dict[str, TableSchema] = {
    table.name: table
    for table in (
        _table(
            "cpu",
            "Per-core CPU time, cumulative, ten times a second or better.",
            ("time", "time", "when it was read"),
            ("core", "int", "CPU number"),
            *((state, "int", f"{state} time, USER_HZ ticks since boot") for state in CPU_STATES),
        ),
        _table(
            "samples",
            "Stack samples: what each core did, as often as it was asked. Those of idle cores are kept; `stacks` tells which.",
            ("time", "time", "when it was taken; by exhume record to a microsecond"),
            ("core", "int", "CPU number"),
            ("thread", "int", "who ran: the id of a row of threads"),
            ("stack", "int", "where: the id of a row of stacks"),
        ),
        _table(
            "stacks",
            "The different stacks that the samples have. An id is never given to another stack of the same recording.",
            ("id", "int", "what samples call it"),
            ("class", "text", "idle, user, system (the kernel for a task), softirq or irq: what the core did, by its stack"),
            ("frames", "list", "ids of rows of frames, the outermost caller first, user space before the kernel"),
        ),
        _table(
            "frames",
            "The different functions that stacks have. Several ids may stand for the same function.",
            ("id", "int", "what stacks call it"),
            ("name", "text", "the function, demangled; empty if its name could not be learnt"),
            ("module", "text", "path of the program or library, name of the kernel module, [kernel], [vdso] ..."),
            ("space", "text", "kernel or user"),
            ("offset", "int", "of a frame without a name where it is in the module; -1 otherwise"),
        ),
        _table(
            "threads",
            "The different threads that samples have; one that changes its name or its cgroup gets another row.",
            ("id", "int", "what samples call it"),
            ("pid", "int", "process; 0 is the idle task of a core"),
            ("tid", "int", "thread"),
            ("start", "int", "when the process began, on the clock of the recording, to 10 ms; 0 where not known"),
            ("comm", "text", "name of the thread"),
            ("process", "text", "name of the process: that of its first thread"),
            ("cgroup", "text", "its cgroup, where it could be learnt"),
            ("unit", "text", "the unit the cgroup belongs to"),
            ("pod", "text", "the pod"),
            ("container", "text", "the container; ? of a process whose cgroup is that of its parent, as far as is known"),
        ),
        _table(
            "summary",
            "What a core did in a second, counted in samples: for maps of hours, which need not read every sample.",
            ("time", "time", "when the second began; a second that two segments share has a row in both"),
            ("core", "int", "CPU number"),
            ("idle", "int", "samples in the idle task"),
            ("user", "int", "in user space"),
            ("system", "int", "in the kernel for a task"),
            ("softirq", "int", "in a softirq"),
            ("irq", "int", "in an interrupt"),
            ("offsets", "list", "busy samples (all but idle) in each fiftieth of the second"),
        ),
        _table(
            "memcg",
            "How many memory cgroups there are below a directory, alive and dying (zombies).",
            ("time", "time", "when it was counted"),
            ("path", "text", "the directory, as seen from the root of the memory hierarchy"),
            ("live", "int", "directories, itself included; -1 where not known"),
            ("dying", "int", "groups without a directory; -1 where not known"),
            ("total", "int", "live and dying together as the kernel counts them; -1 where not known"),
            ("method", "text", "proc-cgroups, cgroup-stat-memory, cgroup-stat"),
            ("scope", "text", "node, or container where only part of the hierarchy is visible"),
            ("complete", "int", "1 if every directory was counted; 0 if there were too many, live is then at least"),
        ),
        _table(
            "memcg_walk",
            "Zombies by where they lived, named by walking the kernel's tree. Every zombie is in exactly one row of a time.",
            ("time", "time", "when it was walked"),
            ("path", "text", "where they lived; * <id> <uid> stand for what differs"),
            ("example", "text", "the path of one of them"),
            ("home", "text", "the nearest directory above them that is still there"),
            ("zombies", "int", "how many"),
            ("siblings", "int", "live groups directly below the same home"),
            ("file", "int", "bytes of page cache charged to them"),
            ("anon", "int", "bytes of anonymous, shared and locked memory, tmpfs included"),
            ("kernel", "int", "bytes of kernel objects, where they can hold a group; without a column swap, swap as well"),
            ("empty", "int", "how many of them have nothing charged"),
            ("unit", "text", "the unit that owns them, as far as it can be known"),
            ("pod", "text", "the pod"),
            ("container", "text", "the container, of the example"),
            ("image", "text", "its image"),
            ("confidence", "int", "how sure the owner is, per cent"),
            ("how", "text", "how the owner was found"),
            ("method", "text", "bpf-walk, cgroup-stat, events, count"),
            ("swap", "int", "bytes in swap"),
            ("unreaped", "int", "how many of them a process holds that has ended and was not reaped, in it or below it"),
            ("parent_pid", "int", "the parent that has not reaped most of those; 0 if there are none"),
            ("parent_comm", "text", "its name"),
            ("parent_cgroup", "text", "its cgroup, where it could be learnt"),
        ),
        _table(
            "cgroup_dirs",
            "Visible cgroup directories by parent: how many children, how many of those looked at hold no process.",
            ("time", "time", "when it was counted"),
            ("path", "text", "the parent, as seen from the root of the hierarchy"),
            ("mount", "text", "where the hierarchy is mounted: mount and path together are the directory"),
            ("children", "int", "directories directly below it"),
            ("leaves", "int", "those of them that have no child, as far as they were listed"),
            ("looked", "int", "how many of the leaves were looked into"),
            ("empty", "int", "how many of those have neither a process nor a child"),
            ("example", "text", "one that is empty"),
        ),
        _table(
            "cgroup_events",
            "cgroups made, removed and released, when they were. Removed but not released is a zombie; older ones do not show.",
            ("time", "time", "when it happened"),
            ("kind", "text", "mkdir; rmdir, the directory went; release, the last thing that pinned it went"),
            ("hierarchy", "int", "of which hierarchy: column 2 of /proc/cgroups, 0 for cgroup v2"),
            ("id", "int", "the cgroup's number in that hierarchy; used again only by kernels before 5.5"),
            ("level", "int", "how deep below the root it is: a path of fewer parts was cut by the kernel, at 1,023 bytes"),
            ("path", "text", "as seen from the root of the hierarchy"),
            (
                "pid",
                "int",
                "the process that did it: PID 1, runc, a kernel thread. Its hand, not whose cgroup it is; 0 if not known",
            ),
            ("comm", "text", "that process's name, where it could still be learnt"),
        ),
        _table(
            "counters",
            "Cumulative counters and gauges. A series without a new row has not changed.",
            ("time", "time", "when it was read"),
            ("name", "text", "what is counted, unit in the name"),
            ("labels", "labels", "of which core, device, cgroup ..."),
            ("value", "int", "the value"),
        ),
        _table(
            "events",
            "Things that happened: kernel log, journal, job outcomes.",
            ("time", "time", "when it happened"),
            ("kind", "text", "e.g. nic-tx-timeout, nic-reset-done, soft-lockup"),
            ("subject", "text", "device, process or unit it happened to"),
            ("severity", "text", "info, warning, critical"),
            ("message", "text", "the line itself"),
            ("fields", "labels", "what the line says, typed by name: queue, cpu, napi_age_ms ..."),
        ),
        _table(
            "latency",
            "How late things were, second by second: log2 histograms. Stalls, which are long, are events as well.",
            ("time", "time", "when the second that it counts ended"),
            ("what", "text", "napi, softirq, runqueue, reclaim, rstat"),
            (
                "stage",
                "text",
                "wait: due to running; stall: a long wait; gap: poll to poll with more to do; run, direct, memcg: length",
            ),
            ("core", "int", "CPU number; -1 for any"),
            ("device", "text", "network device, where it is known"),
            ("netns", "int", "inode of its network namespace; 0 where not known"),
            ("name", "text", "softirq vector, thread or cgroup"),
            ("count", "int", "how many were counted"),
            ("sum", "int", "of all of them, ns"),
            ("max", "int", "the longest, ns"),
            ("histogram", "list", "how many took less than 1 us, from 1, 2, 4 ... us to twice that; the last takes the rest"),
            ("worst_at", "int", "when the longest one ended, on the recording's clock; 0 where not known"),
            ("worst_pid", "int", "whom it happened to; 0 where not known"),
            ("worst_comm", "text", "its name"),
            ("share", "int", "of the time in which they were counted, per mille; stalls are found at all times"),
        ),
        _table(
            "units",
            "systemd units.",
            ("time", "time", "when it was read"),
            ("unit", "text", "name"),
            ("active", "text", "active state"),
            ("sub", "text", "sub state"),
            ("restarts", "int", "NRestarts; -1 where systemd has no such property or was not asked"),
            ("result", "text", "result of the last run; a check asks it, and what follows, only of units in trouble"),
            ("enabled", "text", "unit file state"),
            ("main_pid", "int", "main process, 0 if none"),
            ("cgroup", "text", "control group"),
            ("needed_by", "text", "units that need it, apart by a space; empty if none does, ? where that was not asked"),
        ),
        _table(
            "processes",
            "The busiest processes and threads, and the defunct ones. CPU time is cumulative.",
            ("time", "time", "when it was read"),
            ("pid", "int", "process"),
            ("tid", "int", "thread, or 0 for the process as a whole"),
            ("start", "int", "start time, USER_HZ ticks since boot; with pid it names a process for good"),
            ("ppid", "int", "parent"),
            ("comm", "text", "name"),
            ("state", "text", "R S D Z ..."),
            ("core", "int", "CPU it last ran on"),
            ("user", "int", "user time, ticks"),
            ("system", "int", "system time, ticks"),
            ("cgroup", "text", "its cgroup, where it was looked up"),
        ),
        _table(
            "sources",
            "Each source, on, partial or off, and why.",
            ("time", "time", "since when"),
            ("name", "text", "source"),
            ("state", "text", "on, partial (something is missing from it) or off"),
            ("reason", "text", "a sentence: why off, what is missing, or how it was read"),
            ("cost", "int", "CPU nanoseconds spent on it so far"),
            ("reasons", "text", "the same for programs: a JSON list of objects with a code and its parameters"),
        ),
        _table(
            "anchors",
            "The same moment on four clocks.",
            ("time", "time", "perf clock"),
            ("monotonic", "int", "CLOCK_MONOTONIC, ns"),
            ("boot", "int", "CLOCK_BOOTTIME, ns"),
            ("real", "int", "CLOCK_REALTIME, ns"),
            ("error", "int", "how far the perf clock may be off, ns; -1 if it could only be guessed"),
        ),
    )
}
