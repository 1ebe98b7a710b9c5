"""exhume view: a recording in the browser, served from this machine alone."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from exhume.cli import moments, opening
from exhume.errors import ExhumeError, UsageError
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.imports.glance import Glance
    from exhume.recording.folder import Folder
    from exhume.recording.readable import Readable
    from exhume.web.bringing import Bringing
    from exhume.web.listening import Listening
    from exhume.web.view import View

DESCRIPTION = """\
Shows a recording in the browser: all of it, every core, a subsecond-offset heat map and flame graphs of any selection, on one
time axis, with the verdict beside them. A recording that is still being written grows on the screen.

Serves on 127.0.0.1 until Ctrl-C, for whoever has the token in the address that is printed. Nothing comes from elsewhere."""
EPILOG = """\
examples:
  sudo exhume view                              what exhume record writes on this node
  exhume view REC --at 12:04:31 --for 10s       a recording, and where to begin
  exhume view perf.data dmesg.txt               files of other tools, on one time axis
  exhume view REC --port 8080 --no-open         on a node without a browser; then, on yours:
                                                ssh -L 8080:127.0.0.1:8080 node, and open the address that was printed

times: 12:04:31.5 (local), RFC 3339, +90s from its begin, -30s from its end, 12345.678 as dmesg shows it.

exit code: 0 ended by Ctrl-C, 3 could not (nothing there, not readable, port taken), 64 wrong usage"""

_MARK, _CHAPTER = "recording.json", "chapter.json"  # as recording/layout.py has them
_NEEDED = ("starlette", "uvicorn", "anyio", "h11", "pyarrow")


def arguments(parser: argparse.ArgumentParser) -> None:
    from exhume.cli import importing

    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "recording",
        nargs="*",
        metavar="RECORDING",
        help="the recording's directory, or files of other tools: perf.data, perf script text, log ...",
    )
    parser.add_argument("--port", type=port, default=0, metavar="N", help="serve on this port (any that is free)")
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="ADDRESS", help="serve on this address (127.0.0.1); others can see it, too"
    )
    parser.add_argument("--no-open", action="store_true", help="do not open a browser, print the address only")
    moments.arguments(parser)
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    opening.boot_argument(parser)
    importing.choices(parser)


def port(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 <= int(text) < 65_536:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; say a number from 1 to 65535, or 0 for any that is free")
    return int(text)


def run(args: argparse.Namespace) -> int:
    _look_for_modules()
    # Before anything else is loaded: who looks at the file has the longest way to the first picture.
    coming = _coming(args) if _can_be_looked_at(args) else None
    try:
        from exhume.config import load, section
        from exhume.diagnosis.findings.thresholds import Thresholds
        from exhume.web.listening import Listening

        thresholds = section(load(args.config), "thresholds", Thresholds)
        # What is wrong with what was asked for is told before there is an address, as far as that is known without reading it.
        shown, part = None, any(one is not None for one in (args.at, args.start, args.end, args.span_ns))
        if part or args.event or (coming is None and not _is_recording(args)):
            shown = _looked(args, coming) if coming is not None else _Shown(*_folder(args))
            moments.window(args, shown.folder)
        listening = Listening(args.host, args.port)
        with _told(args, listening):
            _serve(args, listening, thresholds, shown, coming)
    finally:
        if coming is not None:
            coming.stop()
    return 0


class _Shown(NamedTuple):
    folder: "Readable"
    name: str
    coming: "Bringing | None" = None
    """What brings the rest of it."""


def _look_for_modules() -> None:
    """What is not installed is said at once: to find it takes less time than to load it."""
    from importlib.util import find_spec

    missing = next((name for name in _NEEDED if find_spec(name) is None), None)
    if missing is not None:
        raise ExhumeError(f"this needs {missing}, which is not installed: pip install '.[all]' in a clone of exhume")


def _can_be_looked_at(args: argparse.Namespace) -> bool:
    """A single perf.data, of which a first look can be shown while it is imported."""
    from exhume.imports.glance import begins_as_one

    return len(args.recording) == 1 and not args.boot and begins_as_one(args.recording[0])


def _is_recording(args: argparse.Namespace) -> bool:
    """What looks like one that has begun, and is ours to read: it is opened while the page is loaded."""
    given = _named(args)
    if len(given) != 1 or args.boot or not os.access(os.path.join(given[0], _MARK), os.R_OK):
        return False
    return any(os.access(os.path.join(given[0], name, _CHAPTER), os.R_OK) for name in os.listdir(given[0]))


def _named(args: argparse.Namespace) -> list[str]:
    if args.recording:
        return list(args.recording)
    from exhume.cli.record import DEFAULT

    return [DEFAULT]


def _coming(args: argparse.Namespace) -> "Bringing":
    """What looks at the file beside us, and imports it then. Nothing of what that takes is loaded here before."""
    from exhume.cli.scratch import until_exit
    from exhume.web.bringing import Bringing

    def look() -> "Glance | None":
        from exhume.imports.glance import glance
        from exhume.imports.incoming import Wanted

        return glance(args.recording[0], Wanted(args.event, not args.no_symbols), args.anchor)

    return Bringing(look, until_exit("import"), _say)


def _looked(args: argparse.Namespace, coming: "Bringing") -> _Shown:
    """Waits for the look at a file."""
    looked = coming.first()
    if looked is None:
        sys.stderr.write(f"exhume: {printable(args.recording[0])} is imported before anything of it can be shown\n")
        return _Shown(*_folder(args))
    from exhume.imports.first_look import FirstLook

    return _Shown(FirstLook(looked), os.path.basename(os.path.abspath(looked.path)), coming)


def _say(notes: list[str]) -> None:
    for note in notes:
        sys.stderr.write(f"exhume: {note}\n")


def _folder(args: argparse.Namespace) -> "tuple[Folder, str]":
    """What was named, opened, and what to call it. Several files become one recording that goes when we do."""
    given = _named(args)
    if len(given) == 1:
        args.recording = given[0]
        return opening.folder(args), os.path.basename(os.path.abspath(given[0])) if given[0] != "-" else "stdin"
    return _together(args, given), f"{len(given)} files"


def _together(args: argparse.Namespace, files: list[str]) -> "Folder":
    from exhume.cli.importing import bring_in
    from exhume.cli.scratch import until_exit
    from exhume.imports.importing import importable
    from exhume.recording.folder import Folder

    ours = [file for file in files if not importable(file)]
    if ours:
        raise UsageError(f"{ours[0]} is a recording of its own: it is shown alone, only files of other tools go together")
    place = until_exit("import")
    for note in bring_in(args, files, place, kept=False).notes:
        sys.stderr.write(f"exhume: {note}\n")
    return Folder(place)


@contextmanager
def _told(args: argparse.Namespace, listening: "Listening") -> Iterator[None]:
    """The address is known: a browser may come while the server is getting ready."""
    import signal

    # SIGTERM ends it as Ctrl-C does, so that what was imported is removed.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.stdout.write(listening.url + "\n")
        sys.stdout.flush()
        if args.host not in ("127.0.0.1", "localhost", "::1"):
            sys.stderr.write("exhume: this is not encrypted: whoever can listen on the way can read it, and the token\n")
        with _browser(args, listening.url):
            sys.stderr.write("exhume: Ctrl-C ends it\n")
            yield
    except KeyboardInterrupt:
        sys.stderr.write("\n")
    finally:
        listening.socket.close()
        signal.signal(signal.SIGTERM, before)


def _serve(
    args: argparse.Namespace,
    listening: "Listening",
    thresholds: "Thresholds",
    shown: _Shown | None,
    coming: "Bringing | None",
) -> None:
    from exhume.web.server import serve

    def view() -> "View":
        from exhume.web.store import Store
        from exhume.web.view import View

        found = shown or (_looked(args, coming) if coming is not None else _Shown(*_folder(args)))
        window = moments.window(args, found.folder)
        store = Store(found.folder, found.name, thresholds, found.coming)
        return View(store, None if window.whole else (window.start, window.end))

    serve(view, listening, coming.early if shown is None and coming is not None else None)


def _has_display() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _browser(args: argparse.Namespace, url: str) -> AbstractContextManager[None]:
    """Where there is a display. Not as root: a browser is nothing to give a machine to."""
    if args.no_open or not _has_display():
        return nullcontext()
    if os.geteuid() == 0:
        sys.stderr.write("exhume: no browser is opened as root: open the address yourself\n")
        return nullcontext()
    from exhume.web.showing import shown

    return shown(url)
