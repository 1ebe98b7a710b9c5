"""The report that a plan goes by: a look at the node, a file of check or diagnose --json, or a recording."""

import argparse
import os
from typing import TYPE_CHECKING

from exhume import budget
from exhume.errors import UsageError
from exhume.text import from_json, from_path, printable

if TYPE_CHECKING:
    from exhume.diagnosis.report import Report

LARGEST = 64 << 20


def from_node(args: argparse.Namespace) -> "Report":
    from exhume.cli.check import LONGEST_NS, SHORTEST_NS, look
    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds

    if not SHORTEST_NS <= args.window_ns <= LONGEST_NS:
        raise UsageError("--for must be between 200ms and 10m")
    asked = argparse.Namespace(host=args.host, window_ns=args.window_ns, log_root=None)
    return look(asked, section(load(args.config), "thresholds", Thresholds))


def from_file(args: argparse.Namespace) -> "Report":
    """Nothing was done to the node yet: reading may end here, by its budget."""
    with budget.enforced():
        return _diagnosed(args) if os.path.isdir(args.report) else _read(args)


def _read(args: argparse.Namespace) -> "Report":
    from exhume.diagnosis.report import from_json as report_of

    try:
        raw = budget.read(args.report, LARGEST)
        if len(raw) > LARGEST:
            raise UsageError(f"{printable(from_path(args.report))} is larger than any report")
        document = from_json(raw)
    except OSError as error:
        raise UsageError(f"{printable(from_path(args.report))} cannot be read: {error.strerror}") from None
    except ValueError:
        raise UsageError(f"{printable(from_path(args.report))} is no JSON: check --json and diagnose --json make it") from None
    return report_of(document)


def _diagnosed(args: argparse.Namespace) -> "Report":
    from exhume.cli.opening import place
    from exhume.cli.terminal import Progress
    from exhume.config import load, section
    from exhume.diagnosis.diagnose import diagnose_folder
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.recording.folder import Folder

    thresholds = section(load(args.config), "thresholds", Thresholds)
    progress = Progress("reading the recording")
    try:
        return diagnose_folder(Folder(place(args.report)), thresholds, progress=progress)
    finally:
        progress.clear()
