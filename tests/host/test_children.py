"""Children: run to their end, in time, with a bound on what they print, and gone when we are."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from exhume.host.children import ChildFailed, Run, leashed
from tests.waiting import wait_for

FOREVER = "import time\nprint('up', flush=True)\ntime.sleep(600)"


def code(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_command_is_run_to_its_end() -> None:
    text = "import os, sys\nprint(os.getpriority(os.PRIO_PROCESS, 0))\nsys.stderr.write('one\\ntwo\\x1b\\n')\nsys.exit(3)"
    result = Run(code(text), timeout_s=60, nice=7).wait()
    assert result.output == b"7\n"
    assert result.complaint == "two\\x1b"
    assert result.code == 3


def test_a_command_that_a_signal_ends_has_its_number() -> None:
    assert Run(code("import os\nos.kill(os.getpid(), 9)"), timeout_s=60).wait().code == -signal.SIGKILL


def test_a_command_that_is_not_there_says_so() -> None:
    result = Run(["/no/such/program"], timeout_s=60).wait()
    assert result.code == 1
    assert "/no/such/program cannot be run" in result.complaint


def test_a_command_that_takes_too_long_is_ended() -> None:
    with pytest.raises(ChildFailed, match=r"it took more than 200 ms"):
        Run(code(FOREVER), timeout_s=0.2).wait()


def test_a_command_that_closed_its_output_and_stays_is_ended() -> None:
    with pytest.raises(ChildFailed, match="it took more than"):
        Run(code("import os, time\nos.close(1)\nos.close(2)\ntime.sleep(600)"), timeout_s=1).wait()


def test_a_command_that_prints_without_end_is_ended() -> None:
    with pytest.raises(ChildFailed, match=r"it printed more than 97\.7 KiB"):
        Run(code("import sys\nwhile True: sys.stdout.write('x' * 4096)"), timeout_s=60, largest=100_000).wait()


def test_of_endless_complaints_the_last_line_is_kept() -> None:
    text = "import sys\nfor number in range(50000): sys.stderr.write(f'line {number}\\n')"
    assert Run(code(text), timeout_s=60).wait().complaint == "line 49999"


def test_another_thread_ends_it() -> None:
    run = Run(code(FOREVER), timeout_s=600)
    failed: list[str] = []

    def wait() -> None:
        try:
            run.wait()
        except ChildFailed as error:
            failed.append(str(error))

    thread = threading.Thread(target=wait)
    thread.start()
    wait_for(lambda: run._child is not None)
    run.end()
    thread.join()
    assert failed == ["it was ended"]
    with pytest.raises(ChildFailed, match="it was ended"):
        run.wait()


@pytest.mark.parametrize("how", ["leashed", "die_with_parent", "end_with"])
def test_a_child_does_not_outlive_its_parent(how: str) -> None:
    """The parent is killed with SIGKILL; the child printed its PID to our pipe, which closes with the last of both."""
    forever = "import os, time\\nprint(os.getpid(), flush=True)\\ntime.sleep(600)"
    starts = {
        "leashed": f"subprocess.Popen(children.leashed([sys.executable, '-c', '{forever}']))",
        "die_with_parent": f"""
parent = os.getpid()
if os.fork() == 0:
    children.die_with_parent(parent)
    exec('{forever}')
""",
        "end_with": f"""
reading, writing = os.pipe()
if os.fork() == 0:
    os.close(writing)
    children.end_with(reading)
    exec('{forever}')
""",
    }
    text = f"import os, subprocess, sys, time\nfrom exhume.host import children\n{starts[how]}\ntime.sleep(600)"
    with subprocess.Popen(code(text), stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        os.kill(child, 0)
        parent.kill()
        assert parent.stdout.read() == b""


def test_a_command_without_a_parent_does_not_begin() -> None:
    command = leashed(code("print('begun')"))
    command[command.index(str(os.getpid()))] = "1"
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stdout == b""
