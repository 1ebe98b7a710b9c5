"""Programs on raw tracepoints, several that belong together: those that the kernel refuses are left out, with the reason."""

from collections.abc import Callable, Sequence
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

    Each is attached once when it is made, for a moment: only then is it known whether the tracepoint is there and has the
    arguments that the program reads (bpf_probe_register looks at max_ctx_offset).
    """

    def __init__(self, probes: Sequence[Probe]) -> None:
        self.off: dict[str, str] = {}
        """Name to the reason why it is not there."""
        self.on: dict[str, str] = {}
        """Name to the tracepoint that it hangs on."""
        self._links: list[Link] = []
        self._programs: dict[str, Program] = {}
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
            for name, program in self._programs.items():
                self._links.append(program.attach_raw(self.on[name]))
        except BaseException:
            self.detach()
            raise

    def detach(self) -> None:
        while self._links:
            self._links.pop().close()

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
                tracepoint = _tried(program, probe.tracepoints)
            except Unreadable as refused:
                self.off[probe.name] = str(refused)
                return
            undo.pop_all()
        self._programs[probe.name] = program
        self.on[probe.name] = tracepoint


def _tried(program: Program, tracepoints: tuple[str, ...]) -> str:
    """The first that takes the program; raises what the first one said if none does."""
    first: Unreadable | None = None
    for tracepoint in tracepoints:
        try:
            program.attach_raw(tracepoint).close()
        except Unreadable as refused:
            first = first or refused
        else:
            return tracepoint
    raise first or Unreadable("there is no tracepoint to attach to")


@cache
def kernel_types() -> Btf:
    """The running kernel's, read once; raises BtfError, which is Unreadable, each time where there are none."""
    return Btf.vmlinux()
