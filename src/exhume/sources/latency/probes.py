"""Programs on raw tracepoints, several that belong together: those that the kernel refuses are left out, with the reason."""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Self

from exhume.errors import Unreadable
from exhume.kernel.bpf import Btf, Builder, Link, Program, ProgramKind


@dataclass(frozen=True, slots=True)
class Probe:
    """A program to be made, and the tracepoint that it hangs on: the first of several that the kernel has."""

    name: str
    tracepoints: tuple[str, ...]
    label: str
    """What the kernel calls it, behind `exhume_`: at most 8 letters."""
    build: Callable[[], Builder]


class Probes:
    """Loaded programs, attached and detached together. A context manager; what it holds is gone when it is closed.

    Whether a tracepoint is there and has the arguments that the program reads (bpf_probe_register looks at max_ctx_offset) is
    known when it is attached first. To try it before would be to patch the kernel's code once more.
    """

    def __init__(self, probes: Sequence[Probe]) -> None:
        self.off: dict[str, str] = {}
        """Name to the reason why it is not there."""
        self.on: dict[str, str] = {}
        """Name to the tracepoint that it hangs on."""
        self._links: dict[str, Link] = {}
        self._programs: dict[str, Program] = {}
        self._wanted: dict[str, tuple[str, ...]] = {}
        try:
            for probe in probes:
                self._load(probe)
        except BaseException:
            self.close()
            raise
        if not self._programs:
            raise Unreadable("; ".join(dict.fromkeys(self.off.values())) or "there is no program to load")

    @property
    def attached(self) -> bool:
        return bool(self._links)

    def program(self, name: str) -> Program:
        return self._programs[name]

    def attach(self) -> None:
        if self._links:
            raise ValueError("the probes are attached already")
        try:
            for name in list(self._programs):
                self._attach(name)
        except BaseException:
            self.detach()
            raise
        if not self._links:
            raise Unreadable("; ".join(dict.fromkeys(self.off.values())))

    def _attach(self, name: str) -> None:
        program = self._programs[name]
        first: Unreadable | None = None
        for tracepoint in [self.on[name]] if name in self.on else self._wanted[name]:
            try:
                self._links[name] = program.attach_raw(tracepoint)
                self.on[name] = tracepoint
                return
            except Unreadable as refused:
                first = first or refused
        self.off[name] = str(first or "there is no tracepoint to attach to")
        self._programs.pop(name).close()

    def detach(self, names: Collection[str] | None = None) -> None:
        """All of them, or some."""
        for name in [name for name in self._links if names is None or name in names]:
            self._links.pop(name).close()

    def close(self) -> None:
        self.detach()
        for program in self._programs.values():
            program.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _load(self, probe: Probe) -> None:
        with ExitStack() as undo:
            try:
                program = undo.enter_context(Program(ProgramKind.RAW_TRACEPOINT, probe.build(), f"exhume_{probe.label}"))
            except Unreadable as refused:
                self.off[probe.name] = str(refused)
                return
            undo.pop_all()
        self._programs[probe.name] = program
        self._wanted[probe.name] = probe.tracepoints


@cache
def kernel_types() -> Btf:
    """The running kernel's, read once; raises BtfError, which is Unreadable, each time where there are none."""
    return Btf.vmlinux()
