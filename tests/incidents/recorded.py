"""What is recorded of a node beside its cores: rows, counters, lines of the kernel, cgroups, units, interrupts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from exhume.recording.recording import Node, Recording, labels
from exhume.recording.source_state import SourceState
from exhume.sources.kernel_lines import Joiner

SECOND = 1_000_000_000
BASE = 684_000 * SECOND  # eight days after boot
REAL = 1_744_000_000 * SECOND
SOURCES = (
    "cpu", "samples", "memcg", "zombies", "cgroup-dirs", "cgroup-events", "kernel-log", "units", "throttling", "nic", "vmstat",
    "pressure", "meminfo", "interrupts", "softnet", "softirqs", "processes",
)  # fmt: skip
POD = "/kubepods/burstable/pod3c6a1f8e-52aa-4b7e-9d0c-8a4f1f6f2b11/" + "5f3c" * 16


@dataclass
class Recorded:
    cpus: int = 96
    seconds: float = 30.0
    kernel: str = "5.4.0-1103-aws"
    cgroups: str = "v1"
    off: tuple[str, ...] = ()
    recording: Recording = field(init=False)
    _lines: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.recording = Recording(Node("gpu-host", "b0071d00", self.kernel, self.cgroups, self.cpus))
        for name in SOURCES:
            if name not in self.off:
                self.recording.add_source(BASE, name, SourceState("on"))
        for second in range(int(self.seconds) + 1):
            now = BASE + second * SECOND
            self.recording["anchors"].add(now, now, now, REAL + second * SECOND, 1000)

    def at(self, second: float) -> int:
        return BASE + round(second * SECOND)

    def line(self, second: float, *texts: str) -> None:
        """Lines of the kernel log, one after the other."""
        self._lines.extend((self.at(second) + i * 20_000, text) for i, text in enumerate(texts))

    def row(self, table: str, **values: Any) -> None:
        """A row by the names of its columns; what is not said is empty."""
        empty: dict[str, Any] = {"time": BASE, "int": 0, "text": "", "labels": (), "list": []}
        columns = self.recording[table].schema.columns
        self.recording[table].add(*(values.get(column.name, empty[column.kind]) for column in columns))

    def counter(
        self, name: str, rates: Iterable[tuple[float, float, float]] = (), base: int = 10**6, every: float = 1.0, **at: Any
    ) -> None:
        """A counter that grows by so much a second in each (from, to, rate), read in a rhythm."""
        rates = list(rates)
        for i in range(int(self.seconds / every) + 1):
            now = i * every
            grown = sum(rate * max(0.0, min(now, end) - start) for start, end, rate in rates)
            self.recording.count(self.at(now), name, base + round(grown), labels(**at))

    def gauge(self, name: str, *points: tuple[float, int], **at: Any) -> None:
        for second, value in points:
            self.recording.count(self.at(second), name, value, labels(**at))

    def memcgs(self, live: int, dying: int, growth: int = 0) -> None:
        for second in range(int(self.seconds) + 1):
            now = dying + round(growth * second / self.seconds)
            total = live + now
            self.row(
                "memcg",
                time=self.at(second),
                path="/",
                live=live,
                dying=now,
                total=total,
                method="proc-cgroups",
                scope="node",
                complete=1,
            )

    def leak(
        self,
        path: str,
        example: str,
        home: str,
        zombies: int,
        unit: str = "",
        pod: str = "",
        image: str = "",
        how: str = "path",
        confidence: int = 90,
    ) -> None:
        """Zombies by name, walked every minute while their number changes, and at the end."""
        for second in (*range(2, round(self.seconds) - 30, 60), self.seconds - 1):
            self.row(
                "memcg_walk", time=self.at(second), path=path, example=example, home=home, zombies=zombies, siblings=3,
                file=zombies * 8192, unit=unit, pod=pod, image=image, confidence=confidence, how=how, method="bpf-walk",
            )  # fmt: skip

    def unreaped(self, place: str, zombies: int, defunct: int, held: int | None, parent: str = "", comm: str = "") -> None:
        """Zombies of one place without a charge, and defunct processes. `held` is how many of the zombies these hold, by the
        kernel; None where it was not asked."""
        for second in (2.0, self.seconds - 1):
            self.row(
                "memcg_walk", time=self.at(second), path=f"{place}/job-*", example=f"{place}/job-17", home=place,
                zombies=zombies, siblings=3, empty=zombies, method="bpf-walk", unreaped=held or 0,
                parent_pid=8123 if held else 0, parent_comm=comm, parent_cgroup=parent,
            )  # fmt: skip
            self.gauge("memcg_walk_zombies", (second, zombies))
            self.gauge("memcg_walk_live", (second, 220))
            self.gauge("processes_defunct", (second, defunct))
            if held is not None:
                self.gauge("memcg_walk_unreaped", (second, held))

    def interrupts(self, queues: dict[int, int] | None = None, rate: float = 900.0, device: str = "eth0") -> None:
        """Of the queues of the network device: queue to core."""
        for queue, core in (queues or {queue: (queue * 7 + 4) % self.cpus for queue in range(8)}).items():
            self.counter(
                "interrupts", [(0, self.seconds, rate)], every=5.0, irq=60 + queue, cpu=core, device=f"{device}-Tx-Rx-{queue}"
            )

    def units(self, *more: dict[str, Any]) -> None:
        ordinary = ("kubelet", "containerd", "node_exporter", "sshd", "systemd-journald", "amazon-ssm-agent")
        for name in ordinary:
            one = {"unit": f"{name}.service", "cgroup": f"/system.slice/{name}.service", "main_pid": 1000}
            self._unit(0.0, **one)
            self._unit(self.seconds - 1, **one)
        for unit in more:
            self._unit(**unit)

    def _unit(self, second: float, **values: Any) -> None:
        given = {
            "active": "active",
            "sub": "running",
            "restarts": 0,
            "result": "success",
            "enabled": "enabled",
            "needed_by": "?",
        }
        self.row("units", time=self.at(second), **{**given, **values})

    def ena_reset(self, second: float, queue: int = 5, age_ms: int = 6596) -> None:
        pci = "ena 0000:20:03.0"
        self.line(
            second,
            f"{pci} eth0: TX q {queue} is paused for too long (threshold 5000000). Time since last napi {age_ms}000 usec. "
            "napi scheduled: 1",
            f"{pci} eth0: napi handler hasn't been called for a long time but is scheduled",
        )
        self.line(
            second + 0.4, f"{pci}: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g"
        )

    def _small_change(self) -> None:
        """What every node shows a little of. What the incident has said already is not said again."""
        said = set(self.recording["counters"].texts("name"))
        end = self.seconds
        for name, rate, source in (
            ("vmstat_pgscan_direct", 0, "vmstat"),
            ("vmstat_pgscan_kswapd", 300, "vmstat"),
            ("vmstat_pgsteal_direct", 0, "vmstat"),
            ("vmstat_pgsteal_kswapd", 290, "vmstat"),
            ("vmstat_pgmajfault", 3, "vmstat"),
            ("vmstat_pgfault", 20_000, "vmstat"),
            ("printk_records", 0.2, "kernel-log"),
        ):
            if name not in said and source not in self.off:
                self.counter(name, [(0, end, rate)])
        if "vmstat_nr_writeback" not in said and "vmstat" not in self.off:
            self.gauge("vmstat_nr_writeback", (0, 12), (end, 30))
            self.gauge("vmstat_nr_dirty", (0, 9_000), (end, 9_500))
            self.gauge("vmstat_nr_dirty_threshold", (0, 4_000_000), (end, 4_000_000))
        if "pressure_us" not in said and "pressure" not in self.off:
            for resource, kind, rate in (
                ("cpu", "some", 9_000),
                ("memory", "some", 0),
                ("io", "some", 7_000),
                ("io", "full", 4_000),
            ):
                self.counter("pressure_us", [(0, end, rate)], every=2.0, cgroup="", kind=kind, resource=resource)
        if "cpu_periods" not in said and "throttling" not in self.off:
            at = POD.rsplit("/", 1)[0]
            self.gauge("cpu_quota_us", (0, 1_600_000), (end, 1_600_000), cgroup=at)
            self.gauge("cpu_period_us", (0, 100_000), (end, 100_000), cgroup=at)
            self.counter("cpu_periods", [(0, end, 10)], cgroup=at)
            self.counter("cpu_throttled_periods", [(0, end, 0.2)], cgroup=at)
            self.gauge("cpu_quota_groups", (0, 12), (end, 12))
        if "interrupts" not in said and "interrupts" not in self.off:
            self.interrupts()
        if "processes_defunct" not in said and "processes" not in self.off:
            self.gauge("processes_defunct", (0, 2), (end, 2))
        if not len(self.recording["units"]) and "units" not in self.off:
            self.units()

    def said(self) -> None:
        """The log, and the small change of every node."""
        if "kernel-log" not in self.off:
            self.recording["events"].add_rows([line.row for line in Joiner().join(sorted(self._lines))])
        self._small_change()
