"""A recording to read: one of ours, or files of other tools that become one for as long as we run."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume.errors import ExhumeError
from exhume.host.quantities import counted
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.imports.first_look import FirstLook
    from exhume.imports.foreign import Brought
    from exhume.recording.folder import Folder
    from exhume.recording.readable import Readable

_GZIP = b"\x1f\x8b"
_ID = 32
# Formats whose files are lines of a log.
_LOGS = ("kernel log", "journalctl -o json")


def arguments(parser: argparse.ArgumentParser) -> None:
    """RECORDING, and how files of other tools are to be read."""
    from exhume.cli import importing

    parser.add_argument(
        "recording", metavar="RECORDING", help="the recording's directory, or a perf.data, perf script text, log ..."
    )
    boot_argument(parser)
    importing.choices(parser)


def boot_argument(parser: argparse.ArgumentParser) -> None:
    from exhume.cli import importing

    several = "of a recording or a journal over several: 0 the last (default), -1 the one before, or its id"
    parser.add_argument("--boot", type=importing.boot, metavar="N|ID", help=several)


def boot(path: str, wanted: str | int | None) -> int:
    """The number of a boot of a recording of ours, as Folder counts them, by number or id."""
    text = str(wanted or 0)
    if len(text) < _ID:
        return int(text)
    from exhume.recording.folder import Folder

    boots = Folder(path).boots
    for before, known in enumerate(reversed(boots)):
        if known.replace("-", "").lower() == text.replace("-", "").lower():
            return -before
    raise ExhumeError(f"{printable(path)} has no boot {text}: its last are {printable(', '.join(boots[-3:]), 200)}")


def readable(args: argparse.Namespace, whose: bool) -> "Readable":
    """What was named, opened. Without `whose` only what the cores did is needed of it, and of most perf.data that is known
    without an import."""
    seen = None if whose else _at_a_glance(args, place(args.recording))
    return folder(args, whose) if seen is None else seen


def folder(args: argparse.Namespace, whose: bool = True) -> "Folder":
    """What was named, opened. A file is imported into a directory that goes when we do; without `whose` its threads are not
    needed."""
    path = place(args.recording)
    from exhume.imports.importing import importable
    from exhume.recording.folder import Folder

    if not importable(path) or (path != "-" and _nothing_in(path)):
        return Folder(path, boot(path, args.boot))  # which also says that there is none, or that it is root's
    from exhume.cli.importing import bring_in
    from exhume.cli.scratch import until_exit

    made = until_exit("import")
    brought = bring_in(args, [path], made, whose, kept=False)
    if not brought.samples and not brought.events:
        raise ExhumeError(_nothing_known(path, brought))
    for note in brought.notes:
        sys.stderr.write(f"exhume: {note}\n")
    return Folder(made)


def _at_a_glance(args: argparse.Namespace, path: str) -> "FirstLook | None":
    if args.boot or not os.path.isfile(path):
        return None
    from exhume.imports.glance import glance
    from exhume.imports.incoming import Wanted

    found = glance(path, Wanted(args.event, not args.no_symbols, whose=False), args.anchor)
    looked = found.look() if found is not None else None
    if looked is None:
        return None
    from exhume.imports.first_look import FirstLook

    for note in looked.notes:
        sys.stderr.write(f"exhume: {note}\n")
    return FirstLook(looked)


def place(path: str) -> str:
    """Where the recording is that was named: of a bundle that was unpacked, inside of it. What is nearly one is told."""
    from exhume.recording import layout

    if path == "-" or os.path.exists(os.path.join(path, layout.MARK)):
        return path
    if os.path.exists(os.path.join(path, "recording", layout.MARK)):
        return os.path.join(path, "recording")
    whole = os.path.realpath(path)
    for above in (os.path.dirname(whole), os.path.dirname(os.path.dirname(whole))):
        inside = os.path.relpath(whole, above).split(os.sep)[0]
        if layout.is_chapter(inside) and os.path.exists(os.path.join(above, layout.MARK)):
            raise ExhumeError(f"{printable(path)} is a part of the recording {printable(above)}: name that")
    if (top := _bundle(path)) is not None:
        shown = printable(path)
        raise ExhumeError(f"{shown} is a bundle: unpack it (tar xzf {shown}) and name {top}/recording")
    return path


def _bundle(path: str) -> str | None:
    """The directory that a bundle unpacks to; None if the file is something else. Only its beginning is read."""
    if not _packed(path):
        return None
    import gzip
    import zlib

    try:
        with gzip.open(path) as packed:
            head = packed.read(512)
    except (OSError, EOFError, zlib.error):
        return None
    top = head[:100].split(b"\0")[0].split(b"/")[0]
    if head[257:262] != b"ustar" or not top.startswith(b"exhume-bundle"):
        return None
    return printable(top.decode("utf-8", "backslashreplace"))


def _packed(path: str) -> bool | None:
    """Whether a file is gzip; None where it is none that can be read twice (a FIFO would be read empty)."""
    try:
        if not os.path.isfile(path):
            return None
        with open(path, "rb") as file:
            return file.read(2) == _GZIP
    except OSError:
        return None


def _nothing_known(path: str, brought: "Brought") -> str:
    """One sentence: what was read, and that there is nothing in it."""
    shown = "the input" if path == "-" else printable(path)
    if len(brought.files) != 1 or brought.files[0][1] not in _LOGS:
        return f"{shown}: no stack sample in it, and no line of the kernel that exhume knows: nothing to judge"
    lines = _lines(path)
    many = "nothing" if lines is None else f"{counted(lines, 'line')} read, none"
    return f"{shown}: {many} that exhume knows: nothing to judge"


def _lines(path: str) -> int | None:
    """How many lines a file has; None where it cannot be read again. A line may be longer than memory."""
    from exhume.imports.incoming import Input

    if not os.path.isfile(path):
        return None
    try:
        source = Input(path)
        lines, last = 0, b"\n"
        while part := source.read():
            lines += part.count(b"\n")
            last = part
        source.close()
        return lines + (not last.endswith(b"\n"))
    except ExhumeError:
        return None


def _nothing_in(path: str) -> bool:
    """Neither a file nor a directory with something in it that we may read."""
    try:
        return not os.path.exists(path) or (os.path.isdir(path) and not os.listdir(path))
    except OSError:
        return True
