"""A recording to read: one of ours, or files of other tools that become one for as long as we run."""

import argparse
import atexit
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exhume.recording.folder import Folder


def arguments(parser: argparse.ArgumentParser) -> None:
    """RECORDING, and how files of other tools are to be read."""
    from exhume.cli import importing

    parser.add_argument(
        "recording", metavar="RECORDING", help="the recording's directory, or a perf.data, perf script text, log ..."
    )
    parser.add_argument(
        "--boot", type=int, default=0, metavar="N", help="of a recording over several: 0 the last (default), -1 the one before"
    )
    importing.choices(parser)


def folder(args: argparse.Namespace, whose: bool = True) -> "Folder":
    """What was named, opened. A file is imported into a directory that goes when we do; without `whose` only what the cores
    did is needed of it."""
    from exhume.recorder.importing import importable
    from exhume.recording.folder import Folder

    if not importable(args.recording) or (args.recording != "-" and _nothing_in(args.recording)):
        return Folder(args.recording, args.boot)  # which also says that there is none, or that it is root's
    import tempfile

    from exhume.cli.importing import bring_in
    from exhume.recorder.importing import remove

    place = tempfile.mkdtemp(prefix="exhume-import-")
    atexit.register(remove, place)
    brought = bring_in(args, [args.recording], place, whose, kept=False)
    for note in brought.notes:
        sys.stderr.write(f"exhume: {note}\n")
    return Folder(place)


def _nothing_in(path: str) -> bool:
    """Neither a file nor a directory with something in it that we may read."""
    try:
        return not os.path.exists(path) or (os.path.isdir(path) and not os.listdir(path))
    except OSError:
        return True
