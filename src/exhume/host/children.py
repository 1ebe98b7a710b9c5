"""Children that end with us, whatever ends us: SIGKILL and the OOM killer, too.

The kernel sends the child SIGKILL when the thread that started it is gone (PR_SET_PDEATHSIG, prctl(2)), so that thread must
wait for it. The child asks for it itself, before it becomes the command: nothing of ours runs between fork and exec, which in
a process with threads may hang for ever.
"""

import os
from collections.abc import Sequence

from exhume.python import python

_BECOME = """\
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != int(sys.argv[1]): sys.exit("whoever asked has gone")
try: os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error: sys.exit(f"{sys.argv[2]} cannot be run: {error.strerror}")
"""


def leashed(command: Sequence[str]) -> list[str]:
    """The same command, as a child that does not outlive the thread that starts it. Its process id stays the same."""
    return python("-I", "-S", "-c", _BECOME, str(os.getpid()), *command)
