"""Where outcomes of jobs are read from, by the form of what was typed: a table, a Ray cluster, a dump of Kubernetes, a log."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from exhume import budget
from exhume.errors import ExhumeError
from exhume.fleet.model import Job
from exhume.host.quantities import size
from exhume.text import from_path, printable

RAY: Final = "ray:"
FORMS: Final = """\
FILE.parquet .csv .jsonl    a table with the columns job, node, started, ended, outcome, gpus, error
FILE.json                   such a table, or what `kubectl get pods,jobs,rayjobs -A -o json` printed
ray:http://HOST:8265        the dashboard of a Ray cluster
FILE.log .out .txt          the log of a Ray job: what it died of, on which addresses"""
_LOGS: Final = (".log", ".out", ".err", ".txt")
_LARGEST: Final = 2 << 30


def read(text: str, progress: Callable[[float], None] | None = None) -> tuple[list[Job], list[str]] | None:
    """Rows and what could not be told; None for a table, which DuckDB reads as it is."""
    if text.startswith(RAY):
        from exhume.fleet import ray_jobs

        return ray_jobs.load(text.removeprefix(RAY), progress)
    path = Path(text)
    if path.suffix == ".json":
        from exhume.fleet import kubernetes_jobs

        raw = _content(path)
        # A table begins with [ or is one object a line; a dump is one object that has items.
        return kubernetes_jobs.read(raw, text) if b'"items"' in raw and b'"apiVersion"' in raw else None
    if path.suffix in _LOGS:
        from exhume.fleet.ray_jobs_log import from_log

        rows = from_log(path.stem, _content(path).decode("utf-8", "backslashreplace"))
        return rows, [] if rows else [f"{_shown(path)} names no address of a node: nothing can be joined with it"]
    return None


def placed(rows: Sequence[Job], pods: str) -> list[Job]:
    """The nodes of Ray in Kubernetes are pods: the machines that they are on, by a dump of the pods."""
    from exhume.fleet.kubernetes_jobs import hosts, objects_in

    known = hosts(objects_in(_content(Path(pods)), pods))
    return [replace(row, node=known.get(row.node, row.node)) for row in rows]


def _content(path: Path) -> bytes:
    try:
        raw = budget.read(str(path), _LARGEST)
    except OSError as error:
        raise ExhumeError(f"{_shown(path)} cannot be read: {error.strerror}") from None
    if len(raw) > _LARGEST:
        raise ExhumeError(f"{_shown(path)} is larger than {size(_LARGEST)}: name fewer objects")
    return raw


def _shown(path: Path) -> str:
    return printable(from_path(str(path)))
