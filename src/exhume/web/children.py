"""Programs that the server runs beside itself for what takes long. Each is told its task in one line on stdin, which stays
open then: it ends when the server does (ending.py).
"""

import json
import os
import subprocess
import sys
from contextlib import suppress
from typing import Any

from exhume.host.children import end_with
from exhume.python import python
from exhume.text import from_json

_NICE = 10


def begin(module: str, task: dict[str, Any]) -> "subprocess.Popen[bytes]":
    """`python -m MODULE` with this task. In a session of its own, so that Ctrl-C is ours to pass on."""
    pipe = subprocess.PIPE
    child = subprocess.Popen(python("-m", module), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, start_new_session=True)
    assert child.stdin is not None
    with suppress(BrokenPipeError):  # it was ended already, as its exit code says
        child.stdin.write(json.dumps(task).encode() + b"\n")
        child.stdin.flush()
    return child


def finish(child: "subprocess.Popen[bytes]") -> int:
    """Its exit code, when it has written all that it had to."""
    assert child.stdin is not None
    assert child.stdout is not None
    code = child.wait()
    for end in (child.stdin, child.stdout):
        with suppress(BrokenPipeError):
            end.close()
    return code


def task() -> dict[str, Any]:
    """In such a program: what to do, at low priority."""
    os.nice(_NICE)
    given: dict[str, Any] = from_json(sys.stdin.buffer.readline())
    end_with(sys.stdin.fileno())
    return given
