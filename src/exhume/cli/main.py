"""Finds the command and runs it; turns errors meant for people into one sentence and an exit code."""

import argparse
import errno
import importlib
import io
import os
import sys
from typing import Protocol

from exhume import __version__, budget
from exhume.errors import EXIT_BUG, EXIT_CANNOT_JUDGE, EXIT_USAGE, ExhumeError

# Name and one line. The module of the same name in this package is only imported when the command is used, so that
# `exhume --help` costs little more than Python itself.
COMMANDS = {
    "check": "a node's health in seconds: what starves it, with the evidence",
    "diagnose": "why a node starved, from a recording: the causal chain, the culprit, what to do",
    "zombies": "name every zombie memory cgroup: where it lived, whose it was, what pins it",
    "latency": "how late polls, softirqs and threads are, and who holds the core meanwhile",
    "fix": "the plan that puts the node right, printed; --apply carries it out, and it can be undone",
    "undo": "bring back what was before a fix, byte for byte",
    "history": "what was done to this node, by whom, why, and the proof",
    "verify": "prove that a fix worked: before against after, each with a number, a limit and a test",
    "checklist": "an incident step by step, from the first count to the policy: what is done, what is next",
    "record": "a flight recorder: stacks and everything else on one clock, made to be left on",
    "agent": "leave it on: the flight recorder as a service, with metrics for Prometheus",
    "info": "what is in a recording",
    "flame": "a flame graph of any moment of a recording",
    "view": "a recording in the browser: every core, heat map, flame graphs of any selection, live",
    "heat": "the subsecond-offset heat map of a recording, in the terminal",
    "import": "a recording of what you have: perf.data, perf script, folded stacks, logs",
    "export": "a recording for other tools: pprof, speedscope, Perfetto, Firefox Profiler, CSV, Parquet",
    "bundle": "one file for a colleague or a vendor: report, window, sources, versions",
    "audit": "what an image or a node starts by itself: what is needed, unused, harmful, and whose it is",
    "gate": "for image pipelines: whether an image may go out, and what a soak of it can promise",
    "fleet": "many nodes: which are sick, what they have in common, which jobs it killed",
    "node": "take a Kubernetes node out of service and put it back: drain, quarantine, release",
    "lab": "incidents made for real, on a machine that nobody needs",
    "uninstall": "remove what exhume left on a node: recordings, settings, the unit, its journal",
    "completion": "print a completion script for bash, zsh or fish",
}

DESCRIPTION = "Digs out why a Linux node starves, and puts it right."
EPILOG = """\
examples:
  sudo exhume check                   look at this node for three seconds
  sudo exhume check --json            the same for scripts; the exit code says 0 healthy, 1 warning, 2 critical
  exhume check --host /host           judge the host from inside a container
  sudo exhume diagnose --last         why it starved: the last incident that the flight recorder has
  sudo exhume zombies                 name every zombie memory cgroup
  sudo exhume zombies purge --dry-run what can be freed without a reboot
  sudo exhume fix ecs.service         the plan that puts it right; --apply carries it out, exhume undo takes it back
  sudo exhume verify --for 10m        the proof that it worked
  exhume audit --root /mnt/image      what an image starts by itself; exhume gate for pipelines
  exhume fleet cohorts fleet          many nodes: what the sick ones share
  sudo exhume record --for 12h /data  leave it on; then exhume heat /data, exhume flame /data --at 12:04:31 --for 300ms
  exhume flame perf.data              of files that you have; exhume import puts several on one time axis
  exhume help check                   everything about a command

exit codes of commands that judge: 0 healthy, 1 warning, 2 critical, 3 could not judge;
of the others: 0 done, 2 failed or refused, 3 could not; everywhere: 64 wrong usage, 70 a bug in exhume.
Settings: --config FILE, EXHUME_CONFIG, or /etc/exhume/exhume.toml. Colours: only on a terminal, never with NO_COLOR."""


# Commands that only read files: they are held to the budget of what they read. The others hold the part that reads.
_READERS = ("audit", "bundle", "checklist", "diagnose", "export", "flame", "heat", "history", "import", "info")

_NEEDED = ("numpy", "pyarrow", "jeepney", "pycxxfilt", "duckdb")


class Command(Protocol):
    def arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, args: argparse.Namespace) -> int: ...


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage(sys.stderr)
        sys.stderr.write(f"exhume: {message}\n")
        raise SystemExit(EXIT_USAGE)


def command(name: str) -> Command:
    name = {"import": "importing"}.get(name, name)  # the one that Python keeps for itself
    module: Command = importlib.import_module(f"exhume.cli.{name}")
    return module


def command_parser(name: str) -> argparse.ArgumentParser:
    """The full parser of one command."""
    parser = _Parser(prog=f"exhume {name}", description=COMMANDS[name], formatter_class=argparse.RawDescriptionHelpFormatter)
    command(name).arguments(parser)
    return parser


def overview() -> argparse.ArgumentParser:
    listing = "\n".join(f"  {name:<12}{line}" for name, line in COMMANDS.items())
    parser = _Parser(
        prog="exhume",
        usage="exhume COMMAND [OPTION ...]",
        description=f"{DESCRIPTION}\n\ncommands:\n{listing}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"exhume {__version__}")
    return parser


def main(argv: list[str]) -> int:
    if sys.stdout is None:
        return EXIT_USAGE  # closed by whoever started us: nobody is there to tell
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no arrows loses the arrows, not the verdict
    try:
        code = _dispatch(argv)
        sys.stdout.flush()
        return code
    except (ExhumeError, budget.Exhausted) as error:
        sys.stderr.write(f"exhume: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output left (`| head`). Python would complain again while it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return _too_many_files()
        if error.errno not in (errno.ENOSPC, errno.EIO, errno.EDQUOT):
            return _bug(error)
        sys.stderr.write(f"exhume: the output could not be written: {error.strerror}\n")
        return EXIT_CANNOT_JUDGE
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _NEEDED:
            return _bug(error)
        sys.stderr.write(
            f"exhume: this needs {error.name}, which is not installed: pip install '.[all]' in a clone of exhume\n"
        )
        return EXIT_CANNOT_JUDGE
    except ImportError as error:
        if os.strerror(errno.EMFILE) in str(error):  # of the loader of shared libraries
            return _too_many_files()
        return _bug(error)
    except Exception as error:
        return _bug(error)


def _too_many_files() -> int:
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    sys.stderr.write(f"exhume: this needs more than {most} open files: raise the limit first (ulimit -n 1024)\n")
    return EXIT_CANNOT_JUDGE


def _dispatch(argv: list[str]) -> int:
    if not argv:
        overview().print_help()
        return EXIT_USAGE
    name, rest = argv[0], argv[1:]
    if name == "help":
        name, rest = (rest[0], ["--help"]) if rest else ("--help", [])
    if name.startswith("-"):
        overview().parse_args([name, *rest])
        return EXIT_USAGE
    if name not in COMMANDS:
        from difflib import get_close_matches

        near = get_close_matches(name, COMMANDS, 1)
        hint = f", did you mean {near[0]}?" if near else "; `exhume --help` lists them"
        sys.stderr.write(f"exhume: there is no command {name!r}{hint}\n")
        return EXIT_USAGE
    args = command_parser(name).parse_args(rest)
    budget.begin()
    if name not in _READERS:
        return command(name).run(args)
    from exhume.cli.scratch import remove_all

    with budget.enforced(remove_all):
        return command(name).run(args)


def _bug(error: Exception) -> int:
    import traceback

    from exhume.text import printable

    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}" for frame in reversed(frames))
    sys.stderr.write(
        f"exhume: a bug in exhume {__version__}: {type(error).__name__}: {printable(str(error))}\n"
        f"        at {where}; EXHUME_TRACEBACK=1 shows it whole. Please report it.\n"
    )
    if os.environ.get("EXHUME_TRACEBACK"):
        traceback.print_exception(error)
    return EXIT_BUG
