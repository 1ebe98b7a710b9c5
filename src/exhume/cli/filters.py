"""Which part of a recording: a window, and whose samples in it. The same options for every command that reads one."""

import argparse
import re
from typing import TYPE_CHECKING

from exhume.cli import moments
from exhume.errors import UsageError

if TYPE_CHECKING:
    from exhume.recording.choice import Choice
    from exhume.recording.readable import Readable

NAMES = ("cpu", "comm", "pid", "cgroup")


def arguments(parser: argparse.ArgumentParser, cpu: str = "only of these cores: 39 or 0-3,8") -> None:
    """The window, --cpu, --comm, --pid, --cgroup, --no-idle. `cpu` says what a list of cores does there."""
    moments.arguments(parser)
    which = parser.add_argument_group("whose samples")
    which.add_argument("--cpu", type=cpus, metavar="LIST", help=cpu)
    which.add_argument("--comm", type=pattern, metavar="REGEX", help="only of threads or processes with such a name")
    which.add_argument("--pid", type=pids, metavar="N,...", help="only of these processes")
    which.add_argument("--cgroup", type=pattern, metavar="REGEX", help="only of processes in such a cgroup")
    which.add_argument("--no-idle", action="store_true", help="leave out the samples of idle cores")


def refuse(parser: argparse.ArgumentParser, why: str) -> None:
    """No choice of samples here, since it would do harm: that is said where somebody asks for it."""

    class Refused(argparse.Action):
        def __call__(self, parser: object, namespace: object, values: object, option_string: str | None = None) -> None:
            raise UsageError(f"{option_string} chooses samples: {why}")

    for name in (*NAMES, "no-idle"):
        parser.add_argument(f"--{name}", action=Refused, nargs="?" if name in NAMES else 0, help=argparse.SUPPRESS)


def cpus(text: str) -> tuple[int, ...]:
    from exhume.host.cpu_list import cpu_list

    found = cpu_list(text.encode("utf-8", "replace"))
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of CPUs; say 39 or 0-3,8, in rising order")
    return found


def pids(text: str) -> tuple[int, ...]:
    if re.fullmatch(r"[0-9]{1,10}(,[0-9]{1,10})*", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of PIDs; say 4242 or 4242,4250")
    return tuple(int(part) for part in text.split(","))


def pattern(text: str) -> "re.Pattern[str]":
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None


def choice(args: argparse.Namespace) -> "Choice":
    from exhume.recording.choice import Choice

    return Choice(args.cpu, args.comm, args.pid, args.cgroup, not args.no_idle)


def asked(args: argparse.Namespace) -> list[str]:
    """The filters that were given, as they are typed."""
    return [f"--{name}" for name in NAMES if getattr(args, name) is not None] + ["--no-idle"] * args.no_idle


def told(args: argparse.Namespace) -> str:
    """Whose samples were asked for, for the end of a title; empty if all are."""
    from exhume.text import printable

    given = [f"{name} {getattr(args, name).pattern}" for name in ("comm", "cgroup") if getattr(args, name) is not None]
    given += [f"pid {','.join(map(str, args.pid))}"] if args.pid else []
    return f" · {printable(', '.join(given), 60)}" if given else ""


def nothing(args: argparse.Namespace, folder: "Readable", window: moments.Window) -> str:
    """Why no sample is left, for people."""
    if not folder.count("samples"):
        return f"{args.recording} has no stack samples; exhume info {args.recording} says why"
    given = asked(args)
    spoken = f" that {', '.join(given)} would let through" if given else ""
    begin, end = (moments.clock(folder.real_ns(time), dated=True) for time in (window.start, window.end))
    return f"there are no samples{spoken} between {begin} and {end}"


ALL_IDLE = "all samples of the window are idle ones: without --no-idle they are shown"
