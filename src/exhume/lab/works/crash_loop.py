"""A supervisor whose agent dies at once, each time in a cgroup of its own that it leaves behind: as ecs-init and Docker do.

Each agent writes one page of a file that nobody wrote before. The page is charged to the agent's cgroup and outlives it.
"""

import errno
import os
import secrets
import time

from exhume.host.children import die_with_parent
from exhume.lab.work import call, say

PAGE = b"x" * 4096


def main(groups: str, tasks: str, home: str, file: str, first: str, pause_s: str, name: str) -> None:
    """`first` of them are made as fast as can be, as if it had gone on for days; then one each `pause_s`. With no `file`
    nothing is written, so nothing is left; several, apart by ":", are written to by turns. With no `groups` the agent has no
    cgroup of its own. `tasks` is what the file is called that one writes to in order to enter a cgroup."""
    call(name)
    files = [os.open(path, os.O_RDWR | os.O_CREAT, 0o600) for path in file.split(":") if path]
    count = 0
    while count < int(first):
        _enter_and_leave(groups, tasks, home, files, count)
        count += 1
    say(leaked=count)
    restarts = 0
    told = time.monotonic()
    while float(pause_s) > 0:
        _crash(groups, tasks, files, count, name)
        count += 1
        restarts += 1
        if time.monotonic() - told > 0.5:
            told = time.monotonic()
            say(restarts=restarts, leaked=count)
        time.sleep(float(pause_s))
    while True:
        time.sleep(3600)


def _group(groups: str) -> str:
    """Named as Docker names a container's."""
    return f"{groups}/{secrets.token_hex(32)}"


def _enter(group: str, tasks: str) -> None:
    fd = os.open(f"{group}/{tasks}", os.O_WRONLY)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


def _write(files: list[int], count: int) -> None:
    if files:
        turn, which = divmod(count, len(files))
        os.pwrite(files[which], PAGE, turn * len(PAGE))


def _remove(group: str) -> None:
    """Who was in it may be on the way out for a moment longer than it takes to wait for him."""
    for _ in range(100):
        try:
            os.rmdir(group)
            return
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
        time.sleep(0.01)


def _enter_and_leave(groups: str, tasks: str, home: str, files: list[int], count: int) -> None:
    group = _group(groups)
    os.mkdir(group)
    _enter(group, tasks)
    _write(files, count)
    _enter(home, tasks)
    _remove(group)


def _crash(groups: str, tasks: str, files: list[int], count: int, name: str) -> None:
    """One start of the agent: a process that enters its cgroup, does its page, and exits with an error."""
    group = _group(groups) if groups else ""
    if group:
        os.mkdir(group)
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        try:
            die_with_parent(parent)
            call(f"{name.removesuffix('-init')}-agent"[:15])
            if group:
                _enter(group, tasks)
            _write(files, count)
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    if group:
        _remove(group)
