"""A recording to read: one of ours, or files of other tools that become one for as long as we run."""

import argparse
import atexit
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
    importing.choices(parser)


def folder(args: argparse.Namespace) -> "Folder":
    """What was named, opened. A file is imported into a directory that goes when we do."""
    from exhume.recorder.importing import importable
    from exhume.recording.folder import Folder

    if not importable(args.recording):
        return Folder(args.recording)
    import os
    import tempfile

    from exhume.cli.importing import bring_in
    from exhume.recorder.importing import remove

    if os.path.isdir(args.recording) and not os.listdir(args.recording):
        return Folder(args.recording)  # which says that there is no recording
    place = tempfile.mkdtemp(prefix="exhume-import-")
    atexit.register(remove, place)
    brought = bring_in(args, [args.recording], place)
    for note in brought.notes:
        sys.stderr.write(f"exhume: {note}\n")
    return Folder(place)
