"""A node over a minute, as its sources would have shown it: cores, stacks, log, counters, with the noise of a real one.

The cores and the samples come of one plan, so that they agree: who held which core when, and with which stack. Everything
else of a core's time is idle, or one of the programs that every node has.
"""

from dataclasses import dataclass, field

import numpy as np

from exhume.recording.recording import Recording
from exhume.recording.schema import CPU_STATES
from tests.incidents.recorded import BASE, POD, SECOND, Recorded

HZ = 100
CORE_SHARE = 0.14
_IDLE = ("cpuidle_enter_state", "cpuidle_enter", "do_idle", "cpu_startup_entry")
_READ = ("vfs_read", "ksys_read", "do_syscall_64", "entry_SYSCALL_64_after_hwframe")


@dataclass(slots=True)
class _Held:
    core: int
    start: float
    end: float
    state: str
    share: float
    thread: int
    stack: int


@dataclass
class Scene(Recorded):
    seed: int = 7
    busy: float = CORE_SHARE
    """Share of the cores' time that ordinary programs use."""
    hz: int = 49
    step: float = 0.1
    _held: list[_Held] = field(default_factory=list)
    _noise: list[tuple[int, int]] = field(default_factory=list)
    _frames: dict[tuple[str, str], int] = field(default_factory=dict)
    _stacks: dict[tuple[str, tuple[str, ...], tuple[str, ...]], int] = field(default_factory=dict)
    _threads: dict[int, tuple[int, str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        user = ("PyEval_EvalFrameDefault", "PyObject_Call", "main", "__libc_start_main")
        self._noise = [
            (self.thread("python3", 41_001, POD, pod="3c6a1f8e-52aa-4b7e-9d0c-8a4f1f6f2b11"), self.stack(user=user)),
            (self.thread("raylet", 41_055, POD), self.stack("ep_poll", "do_epoll_wait", "do_syscall_64")),
            (self.thread("kubelet", 3021, "/system.slice/kubelet.service"), self.stack("pick_link", "walk_component", *_READ)),
            (self.thread("containerd", 2088, "/system.slice/containerd.service"), self.stack("futex_wait", "do_futex")),
            (self.thread("node_exporter", 2333, "/system.slice/node_exporter.service"), self.stack("seq_read", *_READ)),
            (
                self.thread("amazon-ssm-agen", 1711, "/system.slice/amazon-ssm-agent.service"),
                self.stack(user=("runtime.mcall",)),
            ),
        ]

    def thread(self, comm: str, pid: int, cgroup: str = "/", pod: str = "") -> int:
        if pid not in self._threads:
            unit = next((part for part in cgroup.split("/") if part.endswith(".service")), "")
            self._threads[pid] = (len(self._threads) + 1, comm, cgroup)
            number = self._threads[pid][0]
            self.recording["threads"].add(number, pid, pid, BASE - 3600 * SECOND, comm, comm, cgroup, unit, pod, "")
        return self._threads[pid][0]

    def stack(self, *kernel: str, user: tuple[str, ...] = (), kind: str = "") -> int:
        """Innermost function first. Without one of the kernel it is user space."""
        kind = kind or ("system" if kernel else "user")
        key = (kind, kernel, user)
        if key not in self._stacks:
            frames = [self._frame(name, "user") for name in reversed(user)]
            frames += [self._frame(name, "kernel") for name in reversed(kernel)]
            self._stacks[key] = len(self._stacks) + 1
            self.recording["stacks"].add(self._stacks[key], kind, frames)
        return self._stacks[key]

    def _frame(self, name: str, space: str) -> int:
        if (name, space) not in self._frames:
            self._frames[name, space] = len(self._frames) + 1
            module = "[kernel]" if space == "kernel" else "/usr/bin/program"
            self.recording["frames"].add(self._frames[name, space], name, module, space, -1)
        return self._frames[name, space]

    def hold(
        self,
        core: int,
        start: float,
        end: float,
        comm: str,
        pid: int,
        stack: tuple[str, ...],
        cgroup: str = "/",
        state: str = "system",
        share: float = 1.0,
        pod: str = "",
    ) -> None:
        """Somebody is on a core, with one kernel stack (none: user space), for all or a share of some time."""
        thread = self.thread(comm, pid, cgroup, pod)
        kind = {"user": "user", "softirq": "softirq", "irq": "irq"}.get(state, "system")
        self._held.append(_Held(core, start, end, state, share, thread, self.stack(*stack, kind=kind)))

    def whole(self) -> Recording:
        """The recording, with cores, samples and processes."""
        generator = np.random.default_rng(self.seed)
        if "cpu" not in self.off:
            self._cores(generator)
        if "samples" not in self.off:
            self._samples(generator)
        if "processes" not in self.off:
            self._processes()
        self.said()
        return self.recording

    def _cores(self, generator: np.random.Generator) -> None:
        steps = round(self.seconds / self.step)
        times = np.arange(steps + 1) * self.step
        spent = {state: np.zeros((steps, self.cpus)) for state in CPU_STATES}
        taken = np.zeros((steps, self.cpus))
        for held in self._held:
            inside = np.clip(np.minimum(times[1:], held.end) - np.maximum(times[:-1], held.start), 0, None) * held.share
            spent[held.state][:, held.core] += inside
            taken[:, held.core] += inside
        free = np.clip(self.step - taken, 0, None)
        ordinary = free * np.clip(generator.normal(self.busy, 0.05, free.shape), 0.0, 1.0)
        spent["user"] += ordinary * 0.85
        spent["system"] += ordinary * 0.14
        spent["softirq"] += ordinary * 0.01
        spent["idle"] += free - ordinary
        ticks = {
            state: 10_000 + np.vstack([np.zeros((1, self.cpus)), np.cumsum(part, axis=0) * HZ]).astype(np.int64)
            for state, part in spent.items()
        }
        columns = {state: part.ravel() for state, part in ticks.items()}
        moments = BASE + np.round(times * SECOND).astype(np.int64)
        self.recording["cpu"].add_columns(
            {"time": np.repeat(moments, self.cpus), "core": np.tile(np.arange(self.cpus), steps + 1), **columns}
        )

    def _samples(self, generator: np.random.Generator) -> None:
        count = round(self.seconds * self.hz)
        times = (np.arange(count) + 0.5) / self.hz
        idle = self.stack(*_IDLE, kind="idle")
        swapper = self.thread("swapper", 0)
        threads = np.full((count, self.cpus), swapper)
        stacks = np.full((count, self.cpus), idle)
        busy = generator.random((count, self.cpus)) < self.busy
        chosen = generator.choice(len(self._noise), (count, self.cpus), p=[0.72, 0.1, 0.06, 0.05, 0.04, 0.03])
        for i, (thread, stack) in enumerate(self._noise):
            here = busy & (chosen == i)
            threads[here], stacks[here] = thread, stack
        for held in self._held:
            if held.state in ("steal", "iowait", "idle"):
                continue
            here = (times >= held.start) & (times < held.end) & (generator.random(count) < held.share)
            threads[here, held.core], stacks[here, held.core] = held.thread, held.stack
        moments = BASE + np.round(times * SECOND).astype(np.int64)
        self.recording["samples"].add_columns(
            {
                "time": np.repeat(moments, self.cpus),
                "core": np.tile(np.arange(self.cpus), count),
                "thread": threads.ravel(),
                "stack": stacks.ravel(),
            }
        )

    def _processes(self) -> None:
        """The busiest, every two seconds, with the core that each was on last."""
        for pid, (thread, comm, cgroup) in self._threads.items():
            if pid == 0:
                continue
            mine = [held for held in self._held if held.thread == thread]
            for i in range(int(self.seconds / 2) + 1):
                now = 2.0 * i
                system, user = 500.0, 2000.0 + (now * HZ * 0.2 if not mine else 0.0)
                core = pid % self.cpus
                for held in mine:
                    used = max(0.0, min(now, held.end) - held.start) * held.share * HZ
                    system, user = (system, user + used) if held.state == "user" else (system + used, user)
                    core = held.core if held.start <= now else core
                self.row(
                    "processes", time=self.at(now), pid=pid, start=60_000, ppid=1, comm=comm, state="S", core=core,
                    user=int(user), system=int(system), cgroup=cgroup,
                )  # fmt: skip
