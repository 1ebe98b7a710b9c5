"""Opens a fleet, whatever it is kept in, by the form of what was typed; several at once become one."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import UsageError
from exhume.fleet.model import Fleet
from exhume.fleet.sources_join import join
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.fleet.engine import Engine

FORMS = """\
http://HOST:9090 or https://...   Prometheus, or anything that speaks like it
k8s: or k8s:CONTEXT               a Kubernetes cluster, as kubectl would reach it
DIR                               recordings, one of each node; or nodes.* and minutes as docs/fleet.md has them
FILE.csv .jsonl .parquet          an inventory: a node a row, a fact a column
s3://... gs://... abfs://...      recordings in object storage"""

Progress = Callable[[float], None]


def open(  # noqa: A001
    text: str,
    *more: str,
    window_s: float | None = None,
    progress: Progress | None = None,
    engine: "Engine | None" = None,
    thresholds: Thresholds | None = None,
) -> Fleet:
    """`window_s` is how far back Prometheus is asked; `engine` makes the pass over a directory's minutes; `thresholds` are
    what figures are judged by."""
    texts = (text, *more)
    fleets = []
    for index, each in enumerate(texts):
        fleets.append(_one(each, window_s, _part(progress, index, len(texts)), engine, thresholds))
    return join(fleets)


def _part(progress: Progress | None, index: int, count: int) -> Progress | None:
    if progress is None:
        return None
    return lambda part: progress((index + part) / count)


def _one(
    text: str,
    window_s: float | None,
    progress: Progress | None,
    engine: "Engine | None",
    thresholds: Thresholds | None,
) -> Fleet:
    scheme = text.partition("://")[0].lower() if "://" in text else ""
    if scheme in ("http", "https"):
        from exhume.fleet import prometheus

        return prometheus.load(text, window_s or prometheus.WINDOW_S, progress=progress, thresholds=thresholds)
    from exhume.fleet import kubernetes, recordings_fetched

    if text.startswith(kubernetes.SCHEME):
        return kubernetes.load(text)
    if scheme in recordings_fetched.SCHEMES:
        return recordings_fetched.load(text, progress, thresholds)
    if scheme:
        raise UsageError(f"{printable(text)} is no source of a fleet that is known here; these are:\n{FORMS}")
    if os.path.isdir(text):
        return _directory(text, progress, engine, thresholds)
    if os.path.exists(text):
        from exhume.fleet import inventory

        return inventory.load(text, thresholds)
    raise UsageError(f"there is no {printable(text)}; a fleet is one of:\n{FORMS}")


def _directory(text: str, progress: Progress | None, engine: "Engine | None", thresholds: Thresholds | None) -> Fleet:
    from exhume.fleet import directory, recordings

    root = Path(text)
    if directory.files(root, "nodes") or directory.files(root, "minutes"):
        return directory.load(text, thresholds, engine, progress)
    return recordings.load(text, progress, thresholds)
