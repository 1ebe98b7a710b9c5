"""What an iterator gives, worked out by another process ahead of who takes its items.

A thread would not do: what is made of the items holds the interpreter most of the time.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Final, NamedTuple, ParamSpec, TypeVar

import exhume
from exhume import budget
from exhume.errors import ExhumeError
from exhume.python import python

Item = TypeVar("Item")
Given = ParamSpec("Given")
_PIPE: Final = 1 << 20


class _Raised(NamedTuple):
    """What ended it early."""

    error: ExhumeError | budget.Exhausted | None
    """None for what should not have come; then there is how it came."""
    told: str = ""


def worth_it() -> bool:
    """Whether there is a core for it, and to begin takes no longer than it saves: the one file would be unpacked again."""
    return len(os.sched_getaffinity(0)) > 1 and not getattr(sys, "frozen", False)


@contextmanager
def ahead(make: Callable[Given, Iterator[Item]], *given: Given.args, **named: Given.kwargs) -> Iterator[Iterator[Item]]:
    """The items of `make(*given)`, and what it raises in its place. `make` is a function of a module.

    The other process begins at once, and is as far ahead as a pipe is long. It ends with this, however that ends.
    """
    child = _start()
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        with suppress(BrokenPipeError):  # it ended already, as is found out by who takes an item
            pickle.dump((make, given, named), child.stdin)
            child.stdin.close()
        yield _items(child, child.stdout)
    finally:
        child.stdout.close()
        child.kill()
        child.wait()


def _items(child: "subprocess.Popen[bytes]", pipe: IO[bytes]) -> Iterator[Any]:
    while True:
        try:
            item = pickle.load(pipe)
        except (EOFError, pickle.UnpicklingError):
            ended = child.wait()
            how = f"by signal {-ended}" if ended < 0 else f"with {ended}"
            raise ExhumeError(f"the process that reads ahead ended {how} before it was done") from None
        if item is None:
            return
        if isinstance(item, _Raised):
            raise item.error or RuntimeError(item.told)
        yield item[0]


def _start() -> "subprocess.Popen[bytes]":
    """Our own Python and our own package, and nothing from the directory we happen to be in. Ctrl-C is for us alone."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(exhume.__file__)))
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    if os.path.basename(package) not in ("site-packages", "dist-packages"):  # Python finds those by itself, after its own
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH", ""))))
    pipe = subprocess.PIPE
    command = python("-c", f"from {__name__} import work; work()")
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, process_group=0, pipesize=_PIPE)


def work() -> None:
    """The other process."""
    make, given, named = pickle.load(sys.stdin.buffer)
    budget.begin()
    out = sys.stdout.buffer
    last: _Raised | None = None
    try:
        for item in make(*given, **named):
            pickle.dump((item,), out, protocol=5)
            out.flush()
    except BrokenPipeError:  # nobody takes any more
        os._exit(0)
    except (ExhumeError, budget.Exhausted) as error:
        last = _Raised(error)
    except MemoryError:
        last = _Raised(budget.Exhausted(budget.current().out_of_memory()))
    except Exception:  # a fault of ours: whoever takes the items is to hear of it
        import traceback

        last = _Raised(None, traceback.format_exc())
    pickle.dump(last, out)
    out.flush()
