"""The incident as it is told, as a recording: 96 cores, core 39 held by kubelet, zombies, a starved queue, a reset; at any
length, quiet before and after, with names as friendly or as hostile as a test wants them."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from exhume.recording.recording import Node, Recording, Value, labels
from exhume.recording.schema import CPU_STATES, TABLES
from exhume.recording.source_state import Failed, SourceState
from exhume.recording.writer import Writer

SECOND = 1_000_000_000
BEGIN = 700_000 * SECOND
"""On the recording's clock: eight days after the boot."""
REAL = 1_760_000_000 * SECOND
"""The wall clock at BEGIN: 2025-10-09 08:53:20 UTC."""
HZ = 97
WALK = ("mem_cgroup_nr_lru_pages", "memcg_numa_stat_show", "seq_read", "vfs_read", "ksys_read", "do_syscall_64")
IDLE = ("native_safe_halt", "default_idle", "do_idle", "cpu_startup_entry")
POLL = ("ena_io_poll", "net_rx_action", "__do_softirq", "irq_exit", "do_IRQ")


@dataclass(frozen=True, slots=True)
class Names:
    host: str = "ip-10-1-7-7"
    comm: str = "kubelet"
    cgroup: str = "/system.slice/kubelet.service"
    unit: str = "ecs.service"
    device: str = "eth0"
    symbol: str = "kubelet.(*Summary).Get"
    message: str = "TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1"


PLAIN = Names()


def told(
    seconds: int = 100,
    held: tuple[tuple[float, float], ...] = ((60.0, 66.6),),
    cpus: int = 96,
    core: int = 39,
    names: Names = PLAIN,
    sampled: int = 8,
    begin: int = BEGIN,
) -> Recording:
    """`held` are the times (seconds from the begin) in which the core was; `sampled` cores have stack samples, that one too."""
    made = Recording(Node(names.host, "11111111-2222-3333-4444-555555555555", "5.4.0-1128-aws", "v1", cpus))
    for second in range(seconds + 1):
        now = begin + second * SECOND
        made["anchors"].add(now, now, now, REAL + second * SECOND, 1000)
    for source in ("cpu", "samples", "memcg", "kernel-log", "units", "throttling", "nic", "interrupts", "vmstat"):
        made.add_source(begin, source, SourceState("on"), 5_000_000)
    made.add_source(begin, "napi", SourceState.off(Failed("the kernel has no BTF")))
    _cores(made, begin, seconds, held, cpus, core)
    _samples(made, begin, seconds, held, core, sampled, names)
    for second in range(seconds):
        dying = 68_440 - (seconds - second) // 10
        made["memcg"].add(begin + second * SECOND, "/", 240, dying, 240 + dying, "proc-cgroups", "node", 1)
        _add(
            made,
            "units",
            time=begin + second * SECOND,
            unit=names.unit,
            active="activating",
            sub="auto-restart",
            restarts=6_844 + second // 10,
            result="exit-code",
            enabled="enabled",
            cgroup=f"/system.slice/{names.unit}",
        )
    _zombies(made, begin + 2 * SECOND, names)
    made.count(begin, "interrupts", 10**6, labels(irq=61, cpu=core, device=f"{names.device}-Tx-Rx-5"))
    for _, until in held:
        _reset(made, begin + round(until * SECOND), names)
    return made


def _add(made: Recording, table: str, **values: Value) -> None:
    """A row by the names of its columns; what is not said is 0 or empty."""
    empty: dict[str, Value] = {"time": 0, "int": 0, "text": "", "labels": (), "list": ()}
    columns = TABLES[table].columns
    assert values.keys() <= {column.name for column in columns}
    made[table].add(*(values.get(column.name, empty[column.kind]) for column in columns))


def _cores(
    made: Recording, begin: int, seconds: int, held: tuple[tuple[float, float], ...], cpus: int, core: int, step: float = 0.1
) -> None:
    moments = np.arange(round(seconds / step) + 1) * step
    taken = sum((np.clip(moments - since, 0, until - since) for since, until in held), np.zeros_like(moments))
    for number in range(cpus):
        user = moments * 0.14
        system = taken if number == core else moments * 0.01
        user = np.where(number == core, (moments - taken) * 0.14, user)
        spent = dict.fromkeys(CPU_STATES, np.zeros_like(moments)) | {"user": user, "system": system}
        spent["idle"] = moments - user - system
        columns = {state: np.round(1000 + spent[state] * 100).astype(np.int64) for state in CPU_STATES}
        made["cpu"].add_columns({
            "time": begin + (moments * SECOND).astype(np.int64), "core": np.full(len(moments), number), **columns,
        })  # fmt: skip


def _samples(
    made: Recording, begin: int, seconds: int, held: tuple[tuple[float, float], ...], core: int, sampled: int, names: Names
) -> None:
    frames = [(name, "[kernel]", "kernel") for name in (*WALK, *IDLE, *POLL)]
    frames += [("main.main", "/usr/bin/kubelet", "user"), (names.symbol, "/usr/bin/kubelet", "user")]
    ids = {name: number for number, (name, _, _) in enumerate(frames, 1)}
    for name, module, space in frames:
        made["frames"].add(ids[name], name, module, space, -1)
    made["stacks"].add(1, "system", [ids["main.main"], ids[names.symbol], *(ids[name] for name in reversed(WALK))])
    made["stacks"].add(2, "idle", [ids[name] for name in reversed(IDLE)])
    made["stacks"].add(3, "user", [ids["main.main"], ids[names.symbol]])
    made["stacks"].add(4, "softirq", [ids[name] for name in reversed(POLL)])
    made["threads"].add(1, 4242, 4250, 0, names.comm, names.comm, names.cgroup, names.cgroup.rsplit("/", 1)[-1], "", "")
    made["threads"].add(2, 0, 0, 0, "swapper", "swapper", "/", "", "", "")
    made["threads"].add(3, 77, 77, 0, "python3", "python3", "/kubepods/burstable/pod1/c1", "", "pod1", "c1")
    cores = [core, *(number for number in range(made.node.cpus) if number != core)][:sampled]
    ticks = np.arange(seconds * HZ)
    for number in cores:
        time = begin + ticks * SECOND // HZ
        stack = np.where(ticks % 7 == 0, 3, np.where(ticks % 31 == 0, 4, 2))
        thread = np.where(stack == 2, 2, 3)
        if number == core:
            for since, until in held:
                inside = (ticks / HZ >= since) & (ticks / HZ < until)
                stack, thread = np.where(inside, 1, stack), np.where(inside, 1, thread)
        made["samples"].add_columns({"time": time, "core": np.full(len(time), number), "thread": thread, "stack": stack})


def _zombies(made: Recording, time: int, names: Names) -> None:
    home = "/system.slice"
    _add(
        made,
        "memcg_walk",
        time=time,
        path=f"{home}/{names.unit}/*",
        example=f"{home}/{names.unit}/agent",
        home=home,
        zombies=68_000,
        siblings=3,
        file=4096 * 68_000,
        unit=names.unit,
        confidence=95,
        how="its path",
        method="bpf-walk",
    )
    made.count(time, "memcg_walk_zombies", 68_440)
    made.count(time, "memcg_walk_live", 240)


def _reset(made: Recording, time: int, names: Names) -> None:
    pci = {"device": names.device, "pci": "0000:20:03.0", "driver": "ena"}
    fields = labels(queue=5, napi_age_ms=6596, threshold_ms=5000, napi_scheduled=1, **pci)
    line = f"ena 0000:20:03.0 {names.device}: "
    made["events"].add(time, "nic-queue-paused", names.device, "critical", line + names.message, fields)
    made["events"].add(
        time + SECOND // 10, "nic-napi-late", names.device, "warning",
        f"{line}napi handler hasn't been called for a long time but is scheduled", labels(**pci),
    )  # fmt: skip
    made["events"].add(
        time + SECOND, "nic-reset-done", names.device, "warning",
        "ena 0000:20:03.0: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g",
        labels(**pci),
    )  # fmt: skip


def write(path: Path, made: Recording, segment_s: int = 60) -> str:
    """On disk, as the recorder would have written it."""
    writer = Writer(str(path), made.node, {"hz": HZ, "event": "cpu-clock", "kernel_only": False}, budget_bytes=1 << 30,
                    segment_ns=segment_s * SECOND)  # fmt: skip
    writer.append(made)
    writer.close()
    return str(path)
