"""Passes over many files by the workers of a Ray cluster: an existing one, or one on this machine for the time being.

A worker needs Ray and DuckDB and has to see the files under the same paths (a shared file system); exhume itself need not be
there, because what is to be done is sent to it by value.
"""

import importlib
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from secrets import token_hex
from typing import Any, Final

from exhume import budget
from exhume.errors import ExhumeError
from exhume.fleet.directory import connect
from exhume.fleet.engine import Part, Progress, Result, grouped
from exhume.scratch import scratch
from exhume.text import printable

ADDRESS: Final = "RAY_ADDRESS"
# Groups for each core: few enough that DuckDB's start does not count, many enough that no core waits long for the last one.
_GROUPS: Final = 4
_RETRIES: Final = 2
# For one task: a Ray node has many at once, and what is more is spilled.
_MEMORY: Final = "1GB"
_OBJECTS: Final = 200 << 20
_PATIENCE_S: Final = 10.0
# The types of files by their contents, which are the same whichever files are read together. Others are guessed from all.
_TYPED: Final = "read_parquet("
# Ray 2.60 asks for a token and writes one to the home directory if there is none; a cluster of a moment has one of its own.
_TOKEN: Final = token_hex(32)
_TOKENS: Final = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


class Ray:
    def __init__(self, address: str = "") -> None:
        self._address = address or os.environ.get(ADDRESS, "")

    def run(self, part: Part[Result], source: str, files: Sequence[str], progress: Progress | None = None) -> list[Result]:
        if not files:
            return []
        budget.current().lift()  # before Ray is imported: that alone takes more than small files may
        ray = _imported()
        with _cluster(ray, self._address), _by_value(ray):
            try:
                return self._run(ray, part, source, files, progress)
            except ray.exceptions.RayError as error:
                raise ExhumeError(f"Ray could not do it: {_told(error)}") from None

    def _run(self, ray: Any, part: Part[Result], source: str, files: Sequence[str], progress: Progress | None) -> list[Result]:
        most = _GROUPS * int(ray.cluster_resources().get("CPU", 1)) if source.startswith(_TYPED) else 1
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_work)
        files = [os.path.abspath(file) for file in files]
        groups = grouped(files, [_size(file) for file in files], most)
        asked = [task.remote(part, source, group, _MEMORY) for group in groups]
        waiting = list(asked)
        while waiting:
            _, waiting = ray.wait(waiting, num_returns=1)
            if progress is not None:
                progress(1 - len(waiting) / len(asked))
        found = []
        for result, failed in ray.get(asked):
            if failed:
                raise ExhumeError(f"the minutes cannot be read on a node of the Ray cluster: {printable(failed, 300)}")
            found.append(result)
        return found


def _work(part: Part[Result], source: str, files: Sequence[str], memory: str) -> tuple[Result | None, str]:
    """On a worker: the result, or why there is none."""
    import duckdb

    try:
        with connect(memory) as connection:
            connection.execute("SET threads = 1")
            return part(connection, source, files), ""
    except (duckdb.Error, ExhumeError) as error:
        return None, str(error).partition("\n")[0] or "DuckDB failed"


def _imported() -> Any:
    # Ray reports its use to its makers unless it is told not to (ray/_common/usage/usage_constants.py).
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray = importlib.import_module("ray")
        for name in ("cloudpickle", "exceptions"):
            importlib.import_module(f"ray.{name}")
    except ImportError:
        raise ExhumeError("--engine ray needs Ray in the same Python environment: pip install ray") from None
    return ray


@contextmanager
def _cluster(ray: Any, address: str) -> Iterator[None]:
    """Connected; what was started for us is ended afterwards, what was there before stays."""
    if ray.is_initialized():
        yield
        return
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    if address:
        _reached(address)
        try:
            with chdir("/"):  # Ray puts the directory of its driver first in the module path of all workers
                ray.init(address=address, **quiet)
        except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
            raise ExhumeError(f"there is no Ray cluster at {printable(address)}: {_told(error)}") from None
        try:
            yield
        finally:
            ray.shutdown()
        return
    lent = not any(name in os.environ for name in _TOKENS)
    if lent:
        os.environ["RAY_AUTH_TOKEN"] = _TOKEN
    with scratch("ray") as place:
        try:
            with chdir("/"):
                ray.init(
                    address="local",
                    num_cpus=len(os.sched_getaffinity(0)),
                    include_dashboard=False,
                    object_store_memory=_OBJECTS,
                    _temp_dir=place,
                    **quiet,
                )
            yield
        except (OSError, RuntimeError) as error:
            if ray.is_initialized():
                raise
            raise ExhumeError(f"Ray cannot be started on this machine: {_told(error)}") from None
        finally:
            ray.shutdown()
            for name in _TOKENS if lent else ():  # Ray sets the mode by itself
                os.environ.pop(name, None)


def _reached(address: str) -> None:
    """Ray ends the whole process if nobody answers there (src/ray/gcs_rpc_client/rpc_client.h), so that is tried before."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # `auto`, or a service that Ray knows how to find
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S).close()
    except (OSError, OverflowError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
        raise ExhumeError(f"there is no Ray cluster at {printable(address)}: {printable(why)}") from None


@contextmanager
def _by_value(ray: Any) -> Iterator[None]:
    import exhume

    ray.cloudpickle.register_pickle_by_value(exhume)
    try:
        yield
    finally:
        ray.cloudpickle.unregister_pickle_by_value(exhume)


def _size(file: str) -> int:
    try:
        return os.path.getsize(file)
    except OSError:
        return 0


def _told(error: Exception) -> str:
    """The last line is what a traceback from a worker comes to."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return printable(lines[-1].strip() if lines else type(error).__name__, 300)
