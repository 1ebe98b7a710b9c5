"""Nodes as directories: trees of /proc, /sys and /dev for nodes that we cannot have here, read by the same code as a live one.

`python -m tests.trees incident` builds the incident's host, keeps its counters moving and runs `exhume check` on it.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

from exhume.kernel.clock import Clock
from exhume.recording.recording import Recording
from exhume.recording.source_state import Reasons
from exhume.sources.cpu import Cpu
from exhume.sources.processes import Processes

HZ = 100


class Tree:
    """A node made of files. Give it to readers as `Root(str(tree.path))`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, name: str, content: str | bytes) -> None:
        file = self.path / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        raw = content.encode() if isinstance(content, str) else content
        # Replaced as a whole, so that a reader never sees half a file.
        new = file.with_name(file.name + ".new")
        new.write_bytes(raw)
        os.replace(new, file)

    def facts(self, cpus: int = 2, kernel: str = "5.4.0-1128-aws") -> "Tree":
        self.write("proc/sys/kernel/hostname", "node-7\n")
        self.write("proc/sys/kernel/osrelease", kernel + "\n")
        self.write("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n")
        self.write("sys/devices/system/cpu/online", f"0-{cpus - 1}\n")
        return self

    def mounts(self, *lines: str) -> None:
        text = "".join(f"{30 + i} 23 0:{28 + i} {line}\n" for i, line in enumerate(lines))
        self.write("proc/1/mountinfo", text)

    def proc_cgroups(self, memory: int, row: bool = True) -> None:
        lines = ["#subsys_name\thierarchy\tnum_cgroups\tenabled", "cpuset\t3\t1\t1", "cpu\t1\t80\t1"]
        if row:
            lines.append(f"memory\t4\t{memory}\t1")
        self.write("proc/cgroups", "\n".join([*lines, "pids\t8\t90\t1", ""]))

    def v1(self, live: list[str], total: int, whole: bool = True) -> "Tree":
        """The memory and cpu controllers on v1; `live` are directories below the memory root."""
        self.mounts(
            "/ /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755",
            "/ /sys/fs/cgroup/memory rw,nosuid shared:9 - cgroup cgroup rw,memory",
            "/ /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:10 - cgroup cgroup rw,cpu,cpuacct",
        )
        base = "sys/fs/cgroup/memory"
        if whole:
            self.write(f"{base}/release_agent", "")
            self.write("sys/fs/cgroup/cpu,cpuacct/release_agent", "")
        self.write(f"{base}/cgroup.procs", "1\n")
        for path in live:
            self.write(f"{base}/{path.strip('/')}/cgroup.procs", "77\n")
        self.proc_cgroups(total)
        return self

    def v2(self, live: dict[str, str], whole: bool = True, row: bool = False, total: int = 0) -> "Tree":
        """cgroup v2; `live` maps a directory to its cgroup.stat, `/` to the root's."""
        self.mounts("/ /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot")
        for path, stat in live.items():
            base = f"sys/fs/cgroup/{path.strip('/')}".rstrip("/")
            self.write(f"{base}/cgroup.procs", "1\n")
            if stat:
                self.write(f"{base}/cgroup.stat", stat)
            if path != "/" or not whole:
                self.write(f"{base}/cgroup.events", "populated 1\nfrozen 0\n")
                self.write(f"{base}/cgroup.type", "domain\n")
        self.write("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n")
        self.proc_cgroups(total, row)
        return self

    def stat(self, ticks: Mapping[int, tuple[int, ...]]) -> None:
        lines = [f"cpu{core} {' '.join(map(str, values))}" for core, values in sorted(ticks.items())]
        total = [sum(column) for column in zip(*ticks.values(), strict=True)]
        self.write("proc/stat", "\n".join([f"cpu  {' '.join(map(str, total))}", *lines, "intr 1 0 0", "ctxt 5", ""]))


def cgroup_stat(live: int, dying: int, memory: bool = False) -> str:
    text = f"nr_descendants {live}\nnr_dying_descendants {dying}\n"
    if memory:
        text += (
            f"nr_subsys_cpu {live + 1}\nnr_subsys_memory {live + 1}\nnr_dying_subsys_cpu 0\nnr_dying_subsys_memory {dying}\n"
        )
    return text


class Moving:
    """A tree's CPU counters, and one process's, move like a node's: they are written anew for each reading, as they stand at
    the moment that the recorder gives it. So a busy machine does not change what is seen. Only for readers of this process."""

    def __init__(self, tree: Tree, cpus: int, saturated: int | None, busy: float = 0.14, process: int | None = None) -> None:
        self._tree, self._cpus, self._saturated, self._busy, self._process = tree, cpus, saturated, busy, process
        self._began: int | None = None
        self._patched = ExitStack()

    def __enter__(self) -> "Moving":
        for reader, write in ((Cpu, self._write_cores), (Processes, self._write_process)):
            self._patched.enter_context(patch.object(reader, "read", self._moved(reader.read, write)))
        self._patched.enter_context(patch.object(Cpu, "take", self._taken(Cpu.take)))
        return self

    def __exit__(self, *_: object) -> None:
        self._patched.close()

    def _ticks(self, time: int) -> int:
        if self._began is None:
            self._began = time
        return max(0, round((time - self._began) * HZ / 1e9))

    def _moved(self, read: Callable[..., Reasons], write: Callable[[int], None]) -> Callable[..., Reasons]:
        def moved(reader: object, into: Recording, time: int) -> Reasons:
            write(self._ticks(time))
            return read(reader, into, time)

        return moved

    def _taken(self, take: Callable[[Cpu, int], bytes]) -> Callable[[Cpu, int], bytes]:
        def taken(reader: Cpu, time: int) -> bytes:
            self._write_cores(self._ticks(time))
            reader._fd = -1  # the file is another one each time; it is closed with the reader
            return take(reader, time)

        return taken

    def _write_cores(self, ticks: int) -> None:
        cores = {}
        for core in range(self._cpus):
            base = 100_000
            if core == self._saturated:
                cores[core] = (base, 0, base + ticks, base, 0, 0, 0, 0, 0, 0)
            else:
                user = round(ticks * self._busy)
                cores[core] = (base + user, 0, base, base + ticks - user, 0, 0, 0, 0, 0, 0)
        self._tree.stat(cores)

    def _write_process(self, ticks: int) -> None:
        if self._process is not None and self._saturated is not None:
            self._tree.write(
                f"proc/{self._process}/stat", process_stat(self._process, "kubelet", 40, 900 + ticks, self._saturated)
            )


def process_stat(
    pid: int, comm: str, user: int, system: int, core: int, state: str = "R", ppid: int = 1, start: int = 500
) -> str:
    """A line of /proc/PID/stat as proc(5) numbers it."""
    fields = [str(pid), f"({comm})", state, str(ppid), *["0"] * 9, str(user), str(system), *["0"] * 6, str(start), *["0"] * 16]
    return " ".join([*fields, str(core), *["0"] * 13]) + "\n"


ENA_LINES = (
    (
        "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). "
        "Time since last napi 6596000 usec. napi scheduled: 1"
    ),
    "ena 0000:20:03.0 eth0: napi handler hasn't been called for a long time but is scheduled",
    "ena 0000:20:03.0: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g",
)


def kmsg(lines: list[tuple[float, int, str]]) -> str:
    """/dev/kmsg records from (seconds ago, priority with facility, message)."""
    with Clock() as clock:
        now_us = clock.now() // 1000
    return "".join(
        f"{priority},{1000 + i},{max(1, now_us - int(ago * 1e6))},-;{message}\n"
        for i, (ago, priority, message) in enumerate(lines)
    )


def incident(path: Path) -> Tree:
    """The host of the incident: 96 cores, 68,680 memory cgroups against 240 directories, kubelet on core 39, ENA resets."""
    tree = Tree(path).facts(cpus=96)
    live = ["system.slice", "user.slice", "kubepods"]
    live += [f"system.slice/unit{i}.service" for i in range(80)]
    live += [f"kubepods/burstable/pod{i:08x}-0000-4000-8000-000000000000" for i in range(155)]
    tree.v1([*live, "kubepods/burstable"], total=68_680)
    tree.write("dev/kmsg", kmsg([(40.2, 4, ENA_LINES[0]), (40.1, 3, ENA_LINES[1]), (38.7, 6, ENA_LINES[2])]))
    heads = "".join(f"{f'CPU{core}':>11}" for core in range(96))
    rows = [
        f"{irq}:"
        + "".join(f"{(7_000_000 if core == target else 0):>11}" for core in range(96))
        + f"  PCI-MSI 5-edge      eth0-Tx-Rx-{queue}"
        for irq, queue, target in ((60, 4, 12), (61, 5, 39), (62, 6, 40))
    ]
    tree.write("proc/interrupts", "     " + heads + "\n" + "\n".join(rows) + "\n")
    tree.write("proc/vmstat", "nr_writeback 0\npgscan_kswapd 10\npgscan_direct 0\npgmajfault 7\npgfault 10\noom_kill 0\n")
    tree.write(
        "proc/meminfo", "MemTotal: 1188000000 kB\nMemAvailable: 900000000 kB\nSUnreclaim: 1950000 kB\nPercpu: 9300000 kB\n"
    )
    packets = [f"{900 + core:08x} 00000000 00000003 " + "00000000 " * 8 for core in range(96)]
    tree.write("proc/1/net/softnet_stat", "\n".join(packets) + "\n")
    vectors = ("HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU")
    table = [f"{vector:>12}:" + "".join(f"{core * 7:>11}" for core in range(96)) for vector in vectors]
    tree.write("proc/softirqs", " " * 13 + heads + "\n" + "\n".join(table) + "\n")
    for resource in ("cpu", "memory", "io"):
        tree.write(f"proc/pressure/{resource}", "some avg10=0.10 avg60=0.08 avg300=0.05 total=812345\n")
    for name in ("rx_packets", "tx_packets", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors"):
        tree.write(f"sys/class/net/eth0/statistics/{name}", "123456\n")
    tree.write("sys/class/net/eth0/device/vendor", "0x1d0f\n")
    tree.write("proc/4242/stat", process_stat(4242, "kubelet", 40, 900, 39))
    tree.write("proc/4242/cgroup", "4:memory:/system.slice/kubelet.service\n1:name=systemd:/system.slice/kubelet.service\n")
    tree.stat(dict.fromkeys(range(96), (1, 0, 1, 1, 0, 0, 0, 0, 0, 0)))
    return tree


def main() -> None:
    from exhume.cli.main import main as exhume

    with tempfile.TemporaryDirectory() as directory:
        tree = incident(Path(directory))
        with Moving(tree, cpus=96, saturated=39, process=4242):
            code = exhume(["check", "--host", directory, *sys.argv[2:]])
    sys.exit(code)


if __name__ == "__main__":
    main()
