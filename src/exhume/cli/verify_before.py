"""The recordings that exhume verify goes by: one that is named, a window of the flight recorder's, or its last incident."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume import budget
from exhume.cli import moments
from exhume.errors import ExhumeError, UsageError
from exhume.host.quantities import SECOND, duration

if TYPE_CHECKING:
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.recording.folder import Folder
    from exhume.recording.recording import Recording

# A recording up to this long is taken as it is; of a longer one it is the last incident, or so much of its end for --after.
_AS_IT_IS_NS = 20 * 60 * SECOND
# What is looked at around an incident: its loop may have a period of a minute.
_AROUND_NS = 180 * SECOND


def before(args: argparse.Namespace, thresholds: "Thresholds") -> "Recording | None":
    with budget.enforced():
        return _before(args, thresholds)


def _before(args: argparse.Namespace, thresholds: "Thresholds") -> "Recording | None":
    if args.before is not None:
        return recorded(args, args.before, "--before", thresholds)
    if args.after is not None:
        return None
    found = _incident(args, thresholds)
    if found is None:
        sys.stderr.write(f"exhume: no incident is recorded in {args.dir}: the limits alone decide, name one with --before\n")
    return found


def recorded(args: argparse.Namespace, said: str, option: str, thresholds: "Thresholds") -> "Recording":
    """A recording that was named, or a window of the flight recorder's."""
    with budget.enforced():
        return _recorded(args, said, option, thresholds)


def _recorded(args: argparse.Namespace, said: str, option: str, thresholds: "Thresholds") -> "Recording":
    from exhume.cli.opening import place
    from exhume.recording.folder import Folder

    window = _window(said) if not os.path.exists(said) else None
    if window is not None:
        return _whole(_of_window(args.dir, window, f"{option} {said}"), option, said)
    folder = Folder(place(said))
    first, last = folder.window
    boots = min(2, len(folder.boots)) if option == "--before" else 1
    if last - first <= _AS_IT_IS_NS and boots == 1:
        return _whole(folder.load(), option, said)
    if option == "--after":
        start = last - _AS_IT_IS_NS
        sys.stderr.write(
            f"exhume: of {said} the last {duration(_AS_IT_IS_NS)} are taken, {moments.spanning(folder, start, last)}\n"
        )
        return _whole(folder.load(start), option, said)
    found = _last_of_boots(place(said), thresholds, boots)
    if found is None:
        raise ExhumeError(f"{said} has {duration(last - first)} and no incident in it: say which part with --dir and T..T")
    folder, times = found
    sys.stderr.write(f"exhume: of {said} the last incident is taken, {moments.spanning(folder, *times)}\n")
    return _whole(folder.load(*times), option, said)


def _of_window(path: str, window: "tuple[moments.Moment, moments.Moment]", said: str) -> "Recording":
    """Of the boot that has most of it, the last one first: a fix may have rebooted the node since. Moments that are not told by
    the clock on the wall are of the last boot."""
    from exhume.recording.folder import Folder

    last = Folder(path)
    by_wall = all(one.form in ("real", "day") for one in window)
    folder, most, (start, end) = last, 0, _resolved(last, window)
    for boot in range(0, -len(last.boots) if by_wall else -1, -1):
        tried = Folder(path, boot) if boot else last
        first, until = _resolved(tried, window)
        shared = min(until, tried.window[1] + 1) - max(first, tried.window[0])
        if shared > most:
            folder, start, end, most = tried, first, until, shared
        if most and most >= until - first:
            break
    if folder.boot_id != last.boot_id:
        sys.stderr.write(f"exhume: {said} is of an earlier boot, {moments.spanning(folder, *folder.window)}\n")
    asked = argparse.Namespace(
        at=None, start=moments.Moment("uptime", start, ""), end=moments.Moment("uptime", end, ""), span_ns=None
    )
    chosen = moments.window(asked, folder)
    return folder.load(chosen.start, chosen.end)


def _resolved(folder: "Folder", window: "tuple[moments.Moment, moments.Moment]") -> tuple[int, int]:
    return moments.resolve(window[0], folder), moments.resolve(window[1], folder)


def _whole(recording: "Recording", option: str, said: str) -> "Recording":
    if not any(len(recording[table]) for table in ("cpu", "memcg", "samples", "cgroup_events")):
        raise ExhumeError(f"{option} {said}: nothing was recorded then that a proof can be made of")
    return recording


def _window(text: str) -> "tuple[moments.Moment, moments.Moment] | None":
    first, between, last = text.partition("..")
    if not between or "/" in text:
        return None
    try:
        return moments.moment(first), moments.moment(last)
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error)) from None


def _incident(args: argparse.Namespace, thresholds: "Thresholds") -> "Recording | None":
    """The last one of the flight recorder's folder."""
    try:
        from exhume.recording.folder import Folder

        found = _last_of_boots(args.dir, thresholds, min(2, len(Folder(args.dir).boots)))
    except ExhumeError:  # nothing is recorded, or what reads recordings is not installed
        return None
    if found is None:
        return None
    folder, times = found
    sys.stderr.write(f"exhume: before is the incident of {moments.spanning(folder, *times)}\n")
    return folder.load(*times)


def _last_of_boots(path: str, thresholds: "Thresholds", boots: int) -> "tuple[Folder, tuple[int, int]] | None":
    """The last incident of the last boot or, after a reboot, of the one before."""
    from exhume.recording.folder import Folder

    for boot in range(0, -boots, -1):
        folder = Folder(path, boot)
        times = _last_incident(folder, thresholds)
        if times is not None:
            return folder, times
    return None


def _last_incident(folder: "Folder", thresholds: "Thresholds") -> tuple[int, int] | None:
    from exhume.cli.terminal import Progress
    from exhume.diagnosis.diagnose import AFTER, BEFORE, diagnose_folder

    progress = Progress("looking for the incident")
    try:
        report = diagnose_folder(folder, thresholds, progress=progress)
    finally:
        progress.clear()
    if not report.incidents:
        return None
    last = max(report.incidents, key=lambda one: one.end)
    end = min(folder.window[1], last.end + AFTER)
    return max(folder.window[0], min(last.start - BEFORE, end - _AROUND_NS)), end
