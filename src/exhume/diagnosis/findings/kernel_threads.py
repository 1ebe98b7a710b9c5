"""Which threads are the kernel's own: what they do was asked for by somebody else, so none of them is anybody's program.

Their names say nothing: drivers give them any, and programs may take any.
"""

from collections.abc import Sequence
from typing import Final

from exhume.diagnosis.findings.held import Who
from exhume.diagnosis.findings.kernel_work import bare
from exhume.recording.recording import Recording

_ROOT: Final = ("", "/")
_KTHREADD: Final = 2
# kernel/kthread.c, and arch/*/kernel/entry*, process.c: every kernel thread begins in the first, called by one of the others
_BEGIN: Final = "kthread"
_FORKED: Final = "ret_from_fork"
_OUTERMOST: Final = 3
# kernel/vhost_task.c, io_uring/io-wq.c, io_uring/sqpoll.c: threads of a process that never leave the kernel
_OF_A_PROCESS: Final = frozenset("vhost_task_fn io_wq_worker io_sq_thread".split())
# kernel/sched/core.c, kernel/entry/common.c: a new process on its way to user space
_NEW: Final = frozenset("schedule_tail syscall_exit_to_user_mode syscall_return_slowpath".split())
# drivers/vhost/vhost.c: before 6e890c5d5021 (6.4) its workers were children of kthreadd, put into the cgroups of their process
_VHOST: Final = "vhost-"


def is_kernel_thread(recording: Recording, who: Who, stack: Sequence[str] = ()) -> bool:
    """By its parent, or by where it is and what the outermost functions of its stack are, which is innermost first."""
    if who.pid <= 0:
        return False
    outside = who.cgroup in _ROOT
    known = recording.derived("processes", _children).get(who.pid, ())
    if any(name.startswith(who.comm) for name in known) and (outside or not who.comm.startswith(_VHOST)):
        return True
    names = bare(stack)
    if not outside or not names or not _OF_A_PROCESS.isdisjoint(names):
        return False
    return _BEGIN in names[-_OUTERMOST:] or (names[-1].startswith(_FORKED) and _NEW.isdisjoint(names))


def _children(recording: Recording) -> dict[int, set[str]]:
    """Children of kthreadd, each with its names: a worker's goes on with what it does (proc_task_name in fs/proc/array.c). In a
    container the second process is any."""
    table = recording["processes"]
    pids, tids, parents = (table.ints(name).tolist() for name in ("pid", "tid", "ppid"))
    names = table.texts("comm")
    if any(pid == _KTHREADD and not tid and name != "kthreadd" for pid, tid, name in zip(pids, tids, names, strict=True)):
        return {}
    found: dict[int, set[str]] = {}
    for pid, parent, name in zip(pids, parents, names, strict=True):
        if parent == _KTHREADD:
            found.setdefault(pid, set()).add(name)
    return found
