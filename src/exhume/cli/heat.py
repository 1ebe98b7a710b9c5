"""exhume heat: when the cores of a node were busy, to the fiftieth of a second, as a map in the terminal."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from exhume.cli import filters, moments, opening
from exhume.cli.complaints import Complaint, chosen, complaints
from exhume.errors import ExhumeError, UsageError
from exhume.host.quantities import SECOND, compact, compared, duration

if TYPE_CHECKING:
    from exhume.recording.choice import Choice
    from exhume.recording.readable import Readable
    from exhume.recording.summary import Summary
    from exhume.render.heat import Saturated, Seen

DESCRIPTION = """\
Shows when the cores were busy: a subsecond-offset heat map. A column is a second, read upwards from its begin; a stripe
across is something that happens in every second, a full column a second with no rest.

--by core has a strip for each core instead, the oddest first, and shows hours at once. ^ marks seconds in which some core
was in the kernel (system and softirq) for at least 95 % of the whole second, while others wait for it; ! those in which the
kernel complained: driver resets, lockups, OOM kills."""
EPILOG = """\
examples:
  exhume heat /var/lib/exhume/recording              the last minute or two, all cores together
  exhume heat REC --by core                          all of it, a strip a core
  exhume heat REC --to 12:05 --cpu 39                the time before 12:05, of core 39
  exhume heat REC --comm kubelet --by core           when kubelet ran, and where
  exhume heat REC --from +10m --for 60s --json

times: 12:04:31.5 (local), RFC 3339, +90s from its begin, -30s from its end, 12345.678 as dmesg shows it.
With --comm, --pid or --cgroup a core that ran something else counts as idle.
A window longer than the screen is wide: --by core has several seconds a column, the other map the last that fit.

exit code: 0 done, 3 could not (nothing there, not readable), 64 wrong usage"""

_LITTLE = SECOND // 2000
_NARROWEST, _WIDEST = 20, 2000
_STRIP_TAIL = 24  # `  100% busy  100% kernel`
_RUNS = 3
_COMPLAINTS = 6
_FEW, _MANY = 10, 25  # rows of the map: parts of a second
_STRIPS = 40


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    opening.arguments(parser)
    filters.arguments(parser, cpu="only these cores, and a map of each: 39 or 0-3,8")
    parser.add_argument("--by", choices=["offset", "core"], default="offset", help="parts of a second (offset), or cores")
    parser.add_argument("--width", type=int, metavar="N", help="columns of text (the terminal's)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON (schema exhume.heat/1)")


def run(args: argparse.Namespace) -> int:
    if args.width is not None and not _NARROWEST <= args.width <= _WIDEST:
        raise UsageError(f"--width must be between {_NARROWEST} and {_WIDEST}")
    from exhume.recording import chosen

    named = any(getattr(args, name) is not None for name in ("comm", "pid", "cgroup"))
    folder = opening.readable(args, whose=named)
    window = moments.of_samples(moments.window(args, folder), folder.sampled)
    choice = filters.choice(args)
    first, seconds = _whole_seconds(folder, window)
    last = first + seconds * SECOND
    if args.by == "offset" and not args.json:
        first += (seconds - _shown(args, seconds)) * SECOND  # what does not fit is not read either
    span = (window.start, window.end) if args.json else (first, last)
    summary = chosen.summary(folder, *span, choice)
    if args.cpu is not None:
        from exhume.render.heat import of_cores

        args.cpu = _there(args, set(summary.core.tolist()))
        summary = of_cores(summary, args.cpu)
    if not len(summary.time) or (choice.of_threads and _nobody(folder, window, choice, summary)):
        raise ExhumeError(filters.nothing(args, folder, window))
    if args.json:
        _print_json(args, folder, window, summary)
    elif args.by == "core":
        _print_cores(args, folder, window, summary)
    else:
        _print_offsets(args, folder, window, summary)
    return 0


def _there(args: argparse.Namespace, seen: set[int]) -> tuple[int, ...]:
    """Those of the cores that were asked for that have samples. The others are named; alone they are no map."""
    from exhume.cli.info import ranges

    there, missing = (tuple(core for core in args.cpu if (core in seen) == has) for has in (True, False))
    if missing:
        which = f"core{'s' * (len(missing) > 1)} {ranges(missing)}"
        why = f"there are no samples of {which} in this window{' but idle ones' * args.no_idle}"
        if not there:
            raise ExhumeError(why)
        sys.stderr.write(f"exhume: {why}\n")
    return there


def _nobody(folder: "Readable", window: moments.Window, choice: "Choice", summary: "Summary") -> bool:
    """Whether none of the samples was chosen: whoever else ran is in the summary as idle."""
    from exhume.recording import chosen

    if summary.offsets.any():
        return False
    return next(chosen.samples(folder, window.start, window.end, choice), None) is None


def _print_offsets(args: argparse.Namespace, folder: "Readable", window: moments.Window, summary: "Summary") -> None:
    import shutil

    from exhume.cli.info import ranges
    from exhume.cli.terminal import Style
    from exhume.recording.summary import between
    from exhume.render.heat import of_cores, offset_map, saturated
    from exhume.render.heat_text import offset_lines

    style = Style(sys.stdout)
    first, seconds = _whole_seconds(folder, window)
    shown = _shown(args, seconds)
    start = first + (seconds - shown) * SECOND
    tall = sys.stdout.isatty() and args.cpu is None and shutil.get_terminal_size((100, 30)).lines > _MANY + 8
    seen = _seen(folder)
    marks = saturated(between(summary, window.start, window.end), _hz(folder))
    events = complaints(folder, start, window.end)
    named = args.cpu or ()
    together = "all cores" if not named else f"cores {ranges(named)}"
    maps = [(together, summary, marks)] if len(named) != 1 else []
    maps += [(f"core {core}", of_cores(summary, [core]), [mark for mark in marks if mark.core == core]) for core in named]
    sys.stdout.write(style(_title(args, folder, max(start, window.start), window.end), "bold") + "\n")
    for name, part, its_marks in maps:
        heat = offset_map(part, start, shown, _MANY if tall else _FEW, _hz(folder), seen)
        lines = offset_lines(heat, _clock(folder), its_marks, style.colour, [one.time for one in events])
        sys.stdout.write(f"\n{style(name, 'bold')}\n" + "\n".join(lines) + "\n")
    _print_runs(args, folder, marks)
    _print_events(folder, events)
    if shown < seconds:
        earlier = moments.clock(_whole(folder.real_ns(start)))
        last, of = compared(duration, shown * SECOND, seconds * SECOND)
        hint = f"The last {last} of {of}. Before that: --to {earlier}; all at once: --by core"
        sys.stdout.write(f"\n{style(hint, 'dim')}\n")


def _print_cores(args: argparse.Namespace, folder: "Readable", window: moments.Window, summary: "Summary") -> None:
    import shutil

    from exhume.cli.terminal import Style
    from exhume.recording.summary import between
    from exhume.render.heat import aligned, core_map, saturated
    from exhume.render.heat_text import LEFT, core_lines

    style = Style(sys.stdout)
    first, seconds = _whole_seconds(folder, window)
    room = max(8, _columns(args) - LEFT - _STRIP_TAIL)
    seen = _seen(folder)
    heat = core_map(aligned(summary, first, seen), first, seconds, room, _hz(folder), seen)
    most = max(8, shutil.get_terminal_size((100, _STRIPS)).lines - 12) if sys.stdout.isatty() else _STRIPS
    marks = saturated(between(summary, window.start, window.end), _hz(folder))
    sys.stdout.write(style(_title(args, folder, window.start, window.end), "bold") + "\n")
    column = "a column is a second" if heat.seconds == 1 else f"a column is {duration(heat.seconds * SECOND)}"
    sys.stdout.write(style(f"{column}, the oddest core first", "dim") + "\n\n")
    events = complaints(folder, first, window.end)
    lines = core_lines(heat, _clock(folder), marks, style.colour, most, [one.time for one in events])
    sys.stdout.write("\n".join(lines) + "\n")
    if len(heat.cores) > most:
        hint = f"{len(heat.cores) - most} more cores, less odd than these: --cpu names those to show"
        sys.stdout.write(f"\n{style(hint, 'dim')}\n")
    _print_runs(args, folder, marks)
    _print_events(folder, events)


def _print_events(folder: "Readable", found: list[Complaint]) -> None:
    from exhume.text import printable

    if not found:
        return
    shown = chosen(found, _COMPLAINTS)
    lines = [f"  ! {moments.clock(folder.real_ns(one.time))}  {printable(one.message, 140)}" for one in shown]
    if len(found) > len(shown):
        lines.insert(0, f"    {len(found) - len(shown):,} others, and")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


def _print_runs(args: argparse.Namespace, folder: "Readable", marks: "list[Saturated]") -> None:
    from exhume.render.heat_text import runs

    found = runs(marks)
    if not found:
        return
    lines = []
    for core, begin, length, share in found[:_RUNS]:
        at = moments.clock(folder.real_ns(begin))
        lines.append(
            f"  ^ core {core} in the kernel for {duration(length * SECOND)} from {at}, at least {share:.0%} of each second"
        )
    if len(found) > _RUNS:
        lines.append(f"    and {len(found) - _RUNS:,} more times, none of them longer")
    core, begin, length, _ = found[0]
    at = moments.clock(folder.real_ns(begin))
    lines.append(f"    what it did: exhume flame {_name(args)} --at {at} --for {compact(length * SECOND)} --cpu {core}")
    sys.stdout.write("\n" + "\n".join(lines) + "\n")


def _name(args: argparse.Namespace) -> str:
    import shlex

    from exhume.text import printable

    return shlex.quote(printable(args.recording))


def _print_json(args: argparse.Namespace, folder: "Readable", window: moments.Window, summary: "Summary") -> None:
    import json

    from exhume.recording.summary import CLASSES
    from exhume.render.heat import of_cores, offsets_together, saturated

    first = window.start // SECOND * SECOND
    seconds = -(-(window.end - first) // SECOND)
    cores: list[dict[str, Any]] = []
    for core in sorted(set(summary.core.tolist())):
        part = of_cores(summary, [core])
        counts = {name: getattr(part, name).tolist() for name in CLASSES}
        second = ((part.time - first) // SECOND).tolist()
        cores.append({"core": core, "second": second, **counts, "offsets": part.offsets.tolist() if args.cpu else None})
    document = {
        "schema": "exhume.heat/1",
        "node": folder.node.hostname,
        "start": moments.rfc3339(folder.real_ns(first)),
        "start_ns": first,
        "seconds": seconds,
        "hz": _hz(folder),
        "event": folder.about.get("event"),
        "offsets": offsets_together(summary, first, seconds).tolist(),
        "cores": cores,
        "saturated": [
            {"second": (mark.time - first) // SECOND, "core": mark.core, "share": round(mark.share, 3)}
            for mark in saturated(summary, _hz(folder))
        ],
    }
    sys.stdout.write(json.dumps(document) + "\n")


def _whole_seconds(folder: "Readable", window: moments.Window) -> tuple[int, int]:
    """The seconds of the clock on the wall that a window touches: their first begin, and how many.

    Not those that it has less of than half a millisecond: anchors differ by so much.
    """
    first = window.start - (folder.real_ns(window.start) + _LITTLE) % SECOND + _LITTLE
    return first, max(1, -(-(window.end - first - _LITTLE) // SECOND))


def _seen(folder: "Readable") -> "Seen":
    """When samples were taken: a log beside them may reach farther."""
    begin, end = folder.sampled
    edges = [begin, *(edge for gap in folder.gaps(begin, end, sampled=True) for edge in gap), end]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _whole(real_ns: int) -> int:
    """The second that begins then: anchors differ, so that it may be a little less."""
    return (real_ns + SECOND // 2) // SECOND * SECOND


def _shown(args: argparse.Namespace, seconds: int) -> int:
    from exhume.render.heat_text import LEFT

    return min(seconds, _columns(args) - LEFT)


def _columns(args: argparse.Namespace) -> int:
    import shutil

    if args.width is not None:
        return int(args.width)
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()  # as terminal.width, with no upper limit
    return max(40, shutil.get_terminal_size((100, 30)).columns) if known else 100


def _hz(folder: "Readable") -> int:
    hz = folder.about.get("hz")
    return hz if isinstance(hz, int) else 0


def _clock(folder: "Readable") -> Any:
    return lambda time: moments.wall(_whole(folder.real_ns(time)), "%H:%M:%S")


def _title(args: argparse.Namespace, folder: "Readable", start: int, end: int) -> str:
    from exhume.text import printable

    begin = moments.wall(folder.real_ns(start), "%Y-%m-%d %H:%M:%S")
    until = moments.wall(folder.real_ns(end), "%H:%M:%S %Z").rstrip()
    return f"{printable(folder.node.hostname, 60)}  {begin} to {until} ({duration(end - start)}){filters.told(args)}"
