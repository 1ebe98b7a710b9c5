"""Processes of the server end when it does, whatever ends it: SIGKILL and the OOM killer, too.

Each holds one end of a pipe whose other end only the server has. (PR_SET_PDEATHSIG would be about the thread that made the
process, which may end before: prctl(2).)
"""

import os
import threading


def end_with(pipe: int) -> None:
    """In such a process: it ends when whoever holds the other end of the pipe does."""

    def wait() -> None:
        while os.read(pipe, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="exhume-server-ends", daemon=True).start()
