"""A fleet as recordings, one of each node, in a folder or from object storage: each is judged as `exhume diagnose` does."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from exhume.diagnosis.diagnose import diagnose_folder
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import ExhumeError
from exhume.fleet.model import Boot, Fact, Fleet, Node
from exhume.fleet.sick import Figures, sick
from exhume.fleet.statistics import slope
from exhume.host.quantities import DAY_S
from exhume.recording import layout
from exhume.recording.events import nic_resets
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording
from exhume.text import printable

# Directories below the one that was named in which recordings are looked for: DIR/ZONE/NODE/recording.
DEPTH = 4
# Below a leak's shortest rate nothing is foretold: what came in less time says nothing about days.
_SHORTEST_S = 300.0
_POINTS = 48
_MOST_UNITS = 400


def find(directory: str, depth: int = DEPTH) -> Iterator[str]:
    """Every recording in a directory, not looking into recordings themselves; links are not followed."""
    if os.path.isfile(os.path.join(directory, layout.MARK)):
        yield directory
        return
    if depth == 0:
        return
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from find(entry.path, depth - 1)


def load(directory: str, progress: Callable[[float], None] | None = None, thresholds: Thresholds | None = None) -> Fleet:
    paths = list(find(directory))
    if not paths:
        raise ExhumeError(f"there is no recording in {printable(directory)}: exhume record and exhume agent write them")
    return gathered(
        printable(directory), len(paths), ((each, os.path.relpath(each, directory)) for each in paths), progress, thresholds
    )


def gathered(
    source: str,
    count: int,
    places: Iterator[tuple[str, str]],
    progress: Callable[[float], None] | None = None,
    thresholds: Thresholds | None = None,
) -> Fleet:
    """Of recordings one after the other: where each is, and what it is called where it comes from."""
    seen: list[tuple[int, Node, str]] = []
    lived: dict[int, list[Boot]] = {}
    troubles = []
    for index, (path, called) in enumerate(places):
        try:
            folder = Folder(path)
            node, boots = _judged(folder, thresholds or Thresholds())
            seen.append((folder.real_ns(folder.window[1]), node, called))
            lived[id(node)] = boots
            troubles += [f"{printable(called)}: {note}" for note in folder.notes[:2]]
        except ExhumeError as error:
            troubles.append(f"{printable(called)} was passed over: {error}")
        if progress is not None:
            progress((index + 1) / max(1, count))
    if not seen:
        raise ExhumeError(f"none of the {count:,} recordings in {source} can be read: {troubles[0]}")
    named, said = _distinct(seen)
    every = tuple(replace(boot, node=name) for node, name in named for boot in lived[id(node)])
    return Fleet(source, tuple(replace(node, name=name) for node, name in named), (*troubles, *said), boots=every)


def _distinct(seen: list[tuple[int, Node, str]]) -> tuple[list[tuple[Node, str]], list[str]]:
    """One node for each machine: of several recordings of one boot or name the latest; two machines of one name stay two."""
    said, kept = [], []
    boots: dict[str, tuple[int, Node, str]] = {}
    for each in sorted(seen, key=lambda one: one[0]):
        boot = str(each[1].facts.get("boot-id") or each[2])
        before = boots.get(boot)
        if before is not None and before[1].name != each[1].name:
            said.append(f"{printable(before[1].name)} is {printable(each[1].name)} now: it is the same boot, and one node")
        elif before is not None:
            said.append(f"{printable(before[2])} and {printable(each[2])} are of one boot of one node: the later one counts")
        boots[boot] = each
    by_name: dict[str, list[tuple[int, Node, str]]] = {}
    for each in boots.values():
        by_name.setdefault(each[1].name, []).append(each)
    for name, group in by_name.items():
        if len(group) == 1:
            kept.append((group[0][1], name))
            continue
        # Two boots of a machine cannot both be going on: what ended before the other was booted may be the same one.
        latest = max(group, key=lambda one: one[0])
        booted = latest[0] - int((latest[1].uptime_s or 0.0) * 1e9)
        at_once = [one for one in group if one is not latest and one[0] > booted]
        if at_once:
            said.append(f"{len(at_once) + 1} nodes are called {printable(name)} at the same time: told apart by their folders")
        if len(group) > len(at_once) + 1:
            said.append(f"{printable(name)}: earlier recordings of it were passed over, the last one counts")
        kept.append((latest[1], name))
        kept += [(one[1], f"{name} ({one[2]})") for one in at_once]
    return kept, said


def _judged(folder: Folder, thresholds: Thresholds) -> tuple[Node, list[Boot]]:
    report = diagnose_folder(folder, thresholds)
    recording = folder.load(None, None, ("memcg", "events", "anchors", "units"))
    times, live, dying = counts(recording)
    uptime_s = float(recording["anchors"].ints("boot").max()) / 1e9 if len(recording["anchors"]) else None
    seconds = float(times[-1] - times[0]) / 1e9 if len(times) else 0.0
    leak = None
    if seconds >= _SHORTEST_S:
        chosen = np.unique(np.linspace(0, len(times) - 1, _POINTS).astype(np.int64))
        line = slope((times[chosen] - times[0]) / 1e9 / DAY_S, dying[chosen].astype(np.float64))
        leak = line.value if line is not None else None
    verdict = report.verdict
    figures = Figures(
        health=report.health if report.health != "unknown" else "",
        cause=verdict.cause or "",
        subject=verdict.subject,
        live=float(live[-1]) if len(live) and live[-1] >= 0 else None,
        zombies=float(dying[-1]) if len(dying) else None,
        leak_per_day=leak,
        resets=float(resets(recording, folder.window)),
    )
    judged = sick(figures, thresholds)
    node = Node(
        folder.node.hostname or os.path.basename(folder.path),
        _facts(folder, recording),
        judged.sick,
        judged.badness,
        judged.why,
        uptime_s,
        None,
        figures.zombies,
        leak,
        figures.resets or 0.0,
    )
    earlier = [_boot(node.name, Folder(folder.path, back)) for back in range(1 - len(folder.boots), 0)]
    return node, [boot for boot in (*earlier, _boot(node.name, folder)) if boot is not None]


def _boot(name: str, folder: Folder) -> Boot | None:
    recording = folder.load(None, None, ("memcg", "anchors"))
    times, _, dying = counts(recording)
    if not len(times) or not len(recording["anchors"]):
        return None
    uptime_s = float(recording["anchors"].ints("boot").max()) / 1e9
    since_s = float(times[-1] - times[0]) / 1e9
    return Boot(name, max(0.0, uptime_s - since_s), uptime_s, float(dying[0]), float(dying[-1]))


def _facts(folder: Folder, recording: Recording) -> dict[str, Fact]:
    node = folder.node
    facts: dict[str, Fact] = {"kernel": node.kernel, "cgroups": node.cgroups, "cpus": float(node.cpus), "boot-id": node.boot_id}
    latest = {row["unit"]: row for row in recording["units"].rows()}
    for unit in sorted(latest)[:_MOST_UNITS]:
        facts[f"unit:{unit}"] = latest[unit]["active"]
    return {name: value for name, value in facts.items() if value != ""}


def counts(recording: Recording) -> tuple["np.ndarray[tuple[int], np.dtype[np.int64]]", ...]:
    """Times, live and dying of the whole node, where dying is known."""
    rows = [row for row in recording["memcg"].rows() if row["path"] == "/" and row["scope"] == "node" and row["dying"] >= 0]
    rows.sort(key=lambda row: int(row["time"]))
    return tuple(np.array([int(row[name]) for row in rows], dtype=np.int64) for name in ("time", "live", "dying"))


def resets(recording: Recording, window: tuple[int, int]) -> int:
    """Of network devices, while the node was recorded: what the kernel log still had from before is not counted."""
    start, end = window
    return sum(start <= reset.time <= end for reset in nic_resets(recording))
