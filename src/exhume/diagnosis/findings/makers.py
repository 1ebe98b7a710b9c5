"""Who makes the cgroups of a place, by the events that the kernel told of, and in which unit that program runs."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from exhume.diagnosis.findings.model import Shown
from exhume.diagnosis.findings.subjects import Process
from exhume.host.owners import foreign, owner
from exhume.host.programs import commands
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.text import printable

# So much of the groups of a place must be one program's for it to be their maker.
MOSTLY = 0.8
SOURCE = "cgroup_mkdir tracepoint"
_CGROUP = "/proc/PID/cgroup"


@record(frozen=True, slots=True, kw_only=True)
class Maker:
    """The program that makes most of the cgroups of a place."""

    process: Annotated[Process, Shown("made by", source=SOURCE)]
    """Without a PID if several processes of that name did it. The name is printable."""
    cgroup: Annotated[str, Shown("made by cgroup", source=_CGROUP)] = ""
    hand: Annotated[bool, Shown("hand", source=".hand_reason", true="yes")] = False
    """Whether it makes cgroups on behalf of others: an init system, a container runtime."""
    unit: Annotated[str, Shown("made by unit", source=_CGROUP)] = ""
    """Empty for a hand: its unit does not own the cgroups."""

    def __str__(self) -> str:
        return str(self.process)

    @property
    def hand_reason(self) -> str:
        return f"{self.process.comm} makes cgroups for those who ask it to"


def is_hand(comm: str, pid: int = 0) -> bool:
    """Whether it makes groups because others ask for it: to name it as the owner would be to blame the messenger.

    containerd-shim-runc-v2 is cut to 15 characters by the kernel (TASK_COMM_LEN); runc's own stages are runc:[1:CHILD].
    """
    return pid == 1 or comm in commands("runtime", "kubelet") or comm.startswith(("runc:", "containerd-shim", "crun:"))


def maker(recording: Recording, made: Iterable[tuple[str, int]]) -> Maker | None:
    """Of groups that were made by these (name, PID); None if that is not known or not one program."""
    every = list(made)
    counts = Counter(comm for comm, _ in every)
    comm, number = max(counts.items(), key=lambda item: (item[1], item[0]), default=("", 0))
    if not comm or number < MOSTLY * len(every):
        return None
    pids = Counter(pid for name, pid in every if name == comm and pid > 0)
    pid, often = max(pids.items(), key=lambda item: (item[1], item[0]), default=(0, 0))
    hand = is_hand(comm, pid)
    if often < MOSTLY * number:
        return Maker(process=Process(printable(comm)), hand=hand)
    cgroup = _cgroup(recording, pid, comm)
    process = Process(printable(comm), pid)
    if hand:
        return Maker(process=process, cgroup=cgroup, hand=True)
    return Maker(process=process, cgroup=cgroup, unit=unit_of(recording, pid, cgroup))


def unit_of(recording: Recording, pid: int, cgroup: str) -> str:
    """The node's unit a process runs in: by its cgroup, else because it is the unit's main process.

    A container's and a user's unit may bear the name of one of the node's, which is not to blame.
    """
    if foreign(cgroup) is not None:
        return ""
    return owner(cgroup).unit or recording.derived("units", _main_processes).get(pid, "")


def _cgroup(recording: Recording, pid: int, comm: str) -> str:
    """By PID and name where both are known: a PID may have been another's before."""
    for table, known in (("threads", _of_threads), ("processes", _of_processes)):
        by_name = recording.derived(table, known)
        if found := by_name.get((pid, comm)) or by_name.get((pid, "")):
            return found
    return ""


def _of_threads(recording: Recording) -> dict[tuple[int, str], str]:
    table = recording["threads"]
    return _known(zip(table.ints("pid").tolist(), table.texts("process"), table.texts("cgroup"), strict=True))


def _of_processes(recording: Recording) -> dict[tuple[int, str], str]:
    table = recording["processes"]
    return _known(zip(table.ints("pid").tolist(), table.texts("comm"), table.texts("cgroup"), strict=True))


def _known(rows: Iterable[tuple[int, str, str]]) -> dict[tuple[int, str], str]:
    """(PID, name) to cgroup, and (PID, "") where all rows of that PID agree. Of several, one whatever the order of rows."""
    found: dict[tuple[int, str], str] = {}
    every: dict[int, set[str]] = {}
    for pid, comm, cgroup in set(rows):
        if pid > 0 and cgroup not in ("", "/"):
            found[pid, comm] = max(cgroup, found.get((pid, comm), ""))
            every.setdefault(pid, set()).add(cgroup)
    return found | {(pid, ""): next(iter(cgroups)) for pid, cgroups in every.items() if len(cgroups) == 1}


def _main_processes(recording: Recording) -> dict[int, str]:
    table = recording["units"]
    return {pid: unit for pid, unit in sorted(zip(table.ints("main_pid").tolist(), table.texts("unit"), strict=True)) if pid}
