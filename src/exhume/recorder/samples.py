"""Stack samples for the recorder: taken out of the kernel's rings, held for the batch, named and made into rows."""

import time
from dataclasses import dataclass

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.recording.recording import Recording
from exhume.recording.source_state import Limit, SourceState
from exhume.sources.facts import online_cpus
from exhume.sources.sampling.kernel_symbols import KernelSymbols
from exhume.sources.sampling.patience import PatientRoot
from exhume.sources.sampling.profiler import Profiler
from exhume.sources.sampling.sampler import Sampler, Taken
from exhume.sources.sampling.user_symbols import UserSymbols

# How often CPUs are looked for that came or went; at once where a descriptor says that its CPU is gone.
CPUS_NS = 2_500_000_000
# Bytes that are held for the batch; of more, the side band goes.
MOST_HELD = 32 << 20


@dataclass(frozen=True, slots=True)
class Options:
    hz: int = 97
    kernel_only: bool = False
    hide_tenants: bool = False
    """Of what runs in containers and pods only the kernel's frames are kept."""


class Samples:
    def __init__(self, root: Root, unified: bool, options: Options) -> None:
        """Raises Unreadable where stacks cannot be sampled. `unified`: cgroup v2 alone."""
        if not root.same_kernel():
            raise Unreadable("stack samples are of the running kernel, and this root is not")
        self._sampler = Sampler(online_cpus(Root()), options.hz, options.kernel_only)
        self.event = self._sampler.event
        self._symbols = None if options.kernel_only else UserSymbols(root)
        self._patient = PatientRoot(root)
        kernel = KernelSymbols(root)
        self.profiler = Profiler(
            self._patient, self._sampler.cgroups, unified, self._symbols, kernel, hide_tenants=options.hide_tenants
        )
        self._held: list[Taken] = []
        self._held_bytes = 0
        self._cpus_at = 0
        self.cpu_gone = False
        """Whether a descriptor says that its CPU is gone."""
        self.cost_ns = 0

    def close(self) -> None:
        self._sampler.close()
        self.profiler.close()
        self._patient.close()

    def descriptors(self) -> list[int]:
        """To be waited for: readable when a ring is half full."""
        return list(self._sampler.descriptors())

    def take(self) -> None:
        """Out of the rings, into memory."""
        self._take()
        if self._held_bytes > MOST_HELD:
            self._shed()

    def _take(self) -> None:
        for taken in self._sampler.take():
            self._held.append(taken)
            self._held_bytes += len(taken.samples) + len(taken.tasks)

    def _shed(self) -> None:
        """A storm of short processes: their side band is dropped, so that their samples are kept in bounded memory."""
        shed = sum(len(taken.tasks) for taken in self._held)
        self._held = [Taken(taken.samples, b"") for taken in self._held]
        self._held_bytes = sum(len(taken.samples) for taken in self._held)
        self.profiler.tasks.lost += shed // 128  # about that many records

    def collect(self, rows: Recording, now: int, boot_offset_ns: int) -> bool:
        """All that was taken, as rows of a batch. Whether the descriptors changed."""
        start = time.thread_time_ns()
        changed = False
        if self.cpu_gone or now - self._cpus_at > CPUS_NS:
            self._cpus_at = now
            changed = self._follow(rows, now)
        self._take()
        held, self._held, self._held_bytes = self._held, [], 0
        self.profiler.tasks.boot_offset_ns = boot_offset_ns
        self.profiler.add(held, rows)
        self.cost_ns += time.thread_time_ns() - start
        return changed

    def _follow(self, rows: Recording, now: int) -> bool:
        """CPUs that came or went."""
        self.cpu_gone = False
        self._take()
        changed = self._sampler.follow(online_cpus(Root()))
        for what in changed:
            rows["events"].add(now, "cpu-hotplug", "cpu", "info", what, ())
        return bool(changed)

    def state(self) -> SourceState:
        names = self._symbols.reasons if self._symbols is not None else ()
        limits = (Limit(reason) for reason in (self.profiler.kernel.reason, self._sampler.reason) if reason)
        return SourceState.read((*names, *limits))

    def children_cost_ns(self) -> int:
        return self._symbols.cpu_ns() if self._symbols is not None else 0

    def children_memory_bytes(self) -> int:
        return self._symbols.memory_bytes() if self._symbols is not None else 0

    def count(self, rows: Recording, now: int) -> None:
        rows.count(now, "samples_taken", self.profiler.taken)
        rows.count(now, "samples_lost", self.profiler.lost)
        rows.count(now, "samples_throttled", self.profiler.throttled)
        rows.count(now, "side_band_lost", self.profiler.side_band_lost)
