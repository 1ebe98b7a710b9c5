"""The recording that a diagnosis is of: the one that was named, the one that this node's recorder makes, or one made now."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from exhume.errors import ExhumeError, UsageError
from exhume.host.quantities import SECOND

if TYPE_CHECKING:
    from exhume.recording.folder import Folder

_RECENT_NS = 3600 * SECOND
_LIVE_NS = 10 * SECOND
_SHORTEST_NS, _LONGEST_NS = SECOND, 600 * SECOND
_HZ = 97


class Opened(NamedTuple):
    folder: "Folder"
    name: str
    """How commands that are told would name it; empty if it is gone when we are."""


def opened(args: argparse.Namespace) -> Opened:
    from exhume.recording import layout
    from exhume.recording.folder import Folder

    if args.recording is not None:
        from exhume.cli import opening

        path = opening.place(args.recording)
        if os.path.exists(os.path.join(path, layout.MARK)):  # what reads other tools' files need not be loaded
            return Opened(Folder(path, opening.boot(path, args.boot)), path)
        return Opened(opening.folder(args), "" if path == "-" else path)
    asked = args.at is not None or args.last or args.start is not None or args.end is not None
    if asked or args.span_ns is None:
        found = _running() if args.host == "/" else None
        if found is not None:
            return found
        if asked:
            from exhume.cli.record import DEFAULT

            raise UsageError(f"there is no recording of the last hour in {DEFAULT}: name the one that is meant")
    return Opened(_record(args), "")


def _running() -> Opened | None:
    """The recording that exhume record makes on this node, or made in the last hour."""
    import time

    from exhume.cli.record import DEFAULT
    from exhume.recording.folder import Folder

    try:
        folder = Folder(DEFAULT)
        young = time.time_ns() - folder.real_ns(folder.window[1]) < _RECENT_NS
    except ExhumeError:
        return None
    return Opened(folder, DEFAULT) if folder.written or young else None


def _record(args: argparse.Namespace) -> "Folder":
    """This node, from now on, into a directory that goes when we do."""
    from exhume.cli.scratch import until_exit
    from exhume.cli.stopping import Stopping
    from exhume.cli.terminal import Progress
    from exhume.host.root import Root
    from exhume.recorder.profiles import FLIGHT
    from exhume.recorder.recorder import Options, Recorder, Status
    from exhume.recorder.samples import Options as SampleOptions
    from exhume.recording.folder import Folder
    from exhume.recording.writer import Writer

    for_ns = args.span_ns or _LIVE_NS
    if not _SHORTEST_NS <= for_ns <= _LONGEST_NS:
        raise UsageError("--for must be between 1s and 10m for a node that is recorded now")
    if not os.path.exists(os.path.join(args.host, "proc/stat")):
        raise ExhumeError(f"{args.host} is not the root of a node: there is no {os.path.join(args.host, 'proc/stat')}")
    log = Root(args.log_root) if args.log_root else None
    place = until_exit("diagnose")
    recorder = Recorder(Root(args.host), FLIGHT, Options(SampleOptions(_HZ), log=log))
    progress = Progress("recording")

    def told(status: Status) -> None:
        progress(min(1.0, status.elapsed_ns / for_ns))

    try:
        writer = Writer(place, recorder.node, dict(recorder.about), budget_bytes=1 << 30)
        try:
            with Stopping() as stopping:
                recorder.run(writer, for_ns, stopping, told)
        finally:
            writer.leave()
    finally:
        recorder.close()
        progress.clear()
    if recorder.off:
        sys.stderr.write(f"exhume: no stack samples: {recorder.off}\n")
    return Folder(place)
