"""Throttling and reclaim of every node on one grid of time, out of Prometheus, minutes in Parquet, or recordings."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from exhume.errors import ExhumeError, UsageError
from exhume.fleet import recordings
from exhume.fleet.correlate import Floats, Track
from exhume.fleet.directory import connect, reader
from exhume.fleet.directory import files as minutes_of
from exhume.fleet.prometheus import last_known
from exhume.fleet.prometheus_names import BY, Names
from exhume.fleet.prometheus_query import Client
from exhume.fleet.prometheus_reply import Series
from exhume.fleet.sources import FORMS, Progress
from exhume.host.quantities import SECOND, compact, counted
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording
from exhume.text import printable

_STEP_S = 60.0
# Nodes of a directory of minutes that are looked at: those that were throttled most.
MOST_NODES = 2000
# Bins of a recording, at least; of a long one a bin is a minute.
_BINS = 240
_SKEWED_S = 30.0


@dataclass(frozen=True, slots=True)
class Tracks:
    source: str
    step_s: float
    tracks: tuple[Track, ...]
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    window_s: float
    step_s: float
    end_s: float | None = None
    namespace: str = ""
    """A regular expression, as PromQL has them; empty is all."""


def open_tracks(text: str, asked: Asked, progress: Progress | None = None) -> Tracks:
    if text.startswith(("http://", "https://")):
        return from_prometheus(Client(text), asked, progress)
    if asked.namespace:
        raise UsageError("--namespace is known to Prometheus alone: recordings and minutes have throttling by node")
    if not os.path.isdir(text):
        raise UsageError(
            f"{printable(text)} has no past to look at: name a Prometheus, recordings, or a directory with minutes"
        )
    if files := minutes_of(Path(text), "minutes"):
        return from_minutes(text, files, asked)
    return from_recordings(text, progress)


def from_prometheus(client: Client, asked: Asked, progress: Progress | None = None) -> Tracks:
    end_s = min(client.now_s(), asked.end_s) if asked.end_s is not None else client.now_s()
    step = asked.step_s
    grid = np.asarray(end_s - asked.window_s + np.arange(int(asked.window_s / step) + 1) * step, dtype=np.float64)
    some = f',namespace=~"{_quoted(asked.namespace)}"' if asked.namespace else ""
    # Over two steps, so that there are two samples in it if one is scraped in each.
    over = f"[{compact(2 * step * SECOND)}]"
    questions = {
        # The kubelet has a pod's cgroup besides its containers': with both, all would be counted twice.
        "throttled": f'sum by ({BY}) (rate(container_cpu_cfs_throttled_seconds_total{{container!=""{some}}}{over}))',
        "agent throttled": f"sum by ({BY}) (rate(exhume_cpu_throttled_seconds_total{over}))",
        "agent reclaim": f'sum by ({BY}) (rate(exhume_reclaim_pages_total{{by="direct",action="scanned"}}{over}))',
        "reclaim": f"sum by ({BY}) (rate(node_vmstat_pgscan_direct{over}))",
        "skew": f"max by ({BY}) (node_time_seconds - timestamp(node_time_seconds))",
    }
    if asked.namespace:
        del questions["agent throttled"]
    names = Names(*(last_known(client, metric, float(grid[0]), end_s) for metric in ("node_uname_info", "kube_node_info")))
    found: dict[str, dict[str, Series]] = {}
    for index, (what, expression) in enumerate(questions.items()):
        for series in client.over(expression, float(grid[0]), float(grid[-1]), step):
            found.setdefault(names.of(series.labels), {}).setdefault(what, series)
        if progress is not None:
            progress((index + 1) / len(questions))
    tracks, moved = [], 0
    for name, seen in sorted(found.items()):
        kubelet, reclaim = seen.get("throttled"), seen.get("agent reclaim") or seen.get("reclaim")
        throttled = kubelet or seen.get("agent throttled")
        if not name or throttled is None or reclaim is None:
            continue
        skew = float(np.median(seen["skew"].values)) if kubelet is not None and "skew" in seen else 0.0
        moved += abs(skew) > _SKEWED_S
        late = skew if abs(skew) > _SKEWED_S else 0.0
        tracks.append(Track(name, _on(grid, throttled, step, late) * step, _on(grid, reclaim, step)))
    troubles = list(client.troubles)
    if moved:
        troubles.append(
            f"the clocks of {counted(moved, 'node')} are off, and the kubelet stamps its samples by them: "
            f"throttling was moved by as much"
        )
    if not tracks:
        raise ExhumeError(_missing(client.described, found, asked))
    return Tracks(client.described, step, tuple(tracks), tuple(troubles))


def _missing(source: str, found: dict[str, dict[str, Series]], asked: Asked) -> str:
    kinds = {what for seen in found.values() for what in seen}
    if not kinds & {"throttled", "agent throttled"}:
        where = f" in namespaces like {printable(asked.namespace)}" if asked.namespace else ""
        return (
            f"{source} knows of no throttling{where}: the kubelet has container_cpu_cfs_throttled_seconds_total, or the agent"
        )
    if not kinds & {"reclaim", "agent reclaim"}:
        return f"{source} knows of no reclaim: node_exporter needs a wider --collector.vmstat.fields, or exhume agent has it"
    return (
        f"{source} knows of throttling and of reclaim, and of no node both: they have no node in common "
        f"({printable(', '.join(sorted(found)[:4]), 120)}); relabel both jobs with the node's name"
    )


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _on(grid: Floats, series: Series, step: float, late_s: float = 0.0) -> Floats:
    """Values at the moments of the grid; NaN where none is near."""
    index = np.round((series.times - late_s - grid[0]) / step).astype(np.int64)
    inside = (index >= 0) & (index < len(grid))
    values = np.full(len(grid), np.nan)
    values[index[inside]] = series.values[inside]
    return values


def from_minutes(directory: str, files: Sequence[Path], asked: Asked) -> Tracks:
    import duckdb

    source, parameter = reader(files), [str(file) for file in files]
    try:
        with connect() as database:
            bounds = database.execute(f"SELECT epoch(max(time)) FROM {source}", [parameter]).fetchone()
            if bounds is None or bounds[0] is None:
                raise ExhumeError(f"{printable(directory)} has no minutes")
            end = float(bounds[0]) if asked.end_s is None else min(float(bounds[0]), asked.end_s)
            rows = database.execute(
                f"""WITH inside AS (SELECT node, epoch(time) AS moment, throttled_ms, reclaimed FROM {source}
                    WHERE epoch(time) BETWEEN $2 AND $3),
                most AS (SELECT node FROM inside GROUP BY node HAVING sum(throttled_ms) > 0
                    ORDER BY sum(throttled_ms) DESC, node LIMIT {MOST_NODES})
                SELECT node, moment, throttled_ms, reclaimed FROM inside SEMI JOIN most USING (node) ORDER BY node, moment""",
                [parameter, end - asked.window_s, end],
            ).fetchnumpy()
    except duckdb.Error as error:
        raise ExhumeError(f"{printable(directory)} cannot be read: {printable(str(error), 160)}") from None
    start = end - int(asked.window_s / _STEP_S) * _STEP_S
    return Tracks(printable(directory), _STEP_S, _grouped(rows, start, end), ())


def _grouped(rows: dict[str, Any], start: float, end: float) -> tuple[Track, ...]:
    nodes = np.asarray(rows["node"]).astype(str)
    if not len(nodes):
        return ()
    first = np.flatnonzero(np.concatenate(([True], nodes[1:] != nodes[:-1])))
    at, throttled, reclaimed = (_plain(rows[name]) for name in ("moment", "throttled_ms", "reclaimed"))
    begin = max(start, float(at.min()))
    size = round((end - begin) / _STEP_S) + 1
    tracks = []
    for low, high in zip(first.tolist(), [*first[1:].tolist(), len(nodes)], strict=True):
        index = np.round((at[low:high] - begin) / _STEP_S).astype(np.int64)
        inside = (index >= 0) & (index < size)
        values = np.full((2, size), np.nan)
        values[0, index[inside]] = throttled[low:high][inside] / 1000
        values[1, index[inside]] = reclaimed[low:high][inside] / _STEP_S
        tracks.append(Track(str(nodes[low]), values[0], values[1]))
    return tuple(tracks)


def _plain(column: Any) -> Floats:
    """NULL is NaN."""
    plain = np.array(np.ma.getdata(column), dtype=np.float64)
    plain[np.ma.getmaskarray(column)] = np.nan
    return plain


def from_recordings(directory: str, progress: Progress | None = None) -> Tracks:
    paths = list(recordings.find(directory))
    if not paths:
        raise UsageError(f"{printable(directory)} has neither minutes nor recordings; a fleet is one of:\n{FORMS}")
    folders, troubles = [], []
    for path in paths:
        try:
            folders.append(Folder(path))
        except ExhumeError as error:
            troubles.append(f"{printable(path)} was passed over: {error}")
    if not folders:
        raise ExhumeError(f"none of the recordings in {printable(directory)} can be read: {troubles[0]}")
    longest_s = max((folder.window[1] - folder.window[0]) / 1e9 for folder in folders)
    step = float(max(1, min(_STEP_S, longest_s // _BINS)))
    tracks = []
    for index, folder in enumerate(folders):
        tracks.append(track_of(folder.node.hostname, folder.load(None, None, ("counters",)), folder.window, step))
        if progress is not None:
            progress((index + 1) / len(folders))
    return Tracks(printable(directory), step, tuple(tracks), tuple(troubles))


def track_of(name: str, recording: Recording, window: tuple[int, int], step_s: float) -> Track:
    """Counters have a row only when they change: what grew is put where it was read."""
    size = max(1, int((window[1] - window[0]) / 1e9 / step_s))
    sums = {"cpu_throttled_ns": np.zeros(size), "vmstat_pgscan_direct": np.zeros(size)}
    seen = dict.fromkeys(sums, False)
    before: dict[tuple[str, object], int] = {}
    for row in recording["counters"].rows():
        what = row["name"]
        if what not in sums:
            continue
        seen[what] = True
        key = what, row["labels"]
        grown = row["value"] - before.get(key, row["value"])
        before[key] = row["value"]
        at = int((row["time"] - window[0]) / 1e9 / step_s)
        if grown > 0 and 0 <= at < size:
            sums[what][at] += grown
    unknown: Callable[[str], Floats] = lambda what: sums[what] if seen[what] else np.full(size, np.nan)  # noqa: E731
    return Track(name, unknown("cpu_throttled_ns") / 1e9, unknown("vmstat_pgscan_direct") / step_s)
