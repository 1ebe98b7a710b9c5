"""exhume verify: the validation window after a fix, before against after."""

import argparse
import os
import re
import sys
from typing import TYPE_CHECKING

from exhume.cli.arguments import duration_ns
from exhume.errors import EXIT_CANNOT_JUDGE, EXIT_CRITICAL, EXIT_HEALTHY, ExhumeError, UsageError
from exhume.host.quantities import SECOND

if TYPE_CHECKING:
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.recording.recording import Recording
    from exhume.remedy.proof import Proof

DESCRIPTION = """\
Proves that a fix worked, or that it did not: looks at the node for a while and holds what it sees against the time before, each
criterion with a number, a limit and a test. The causes decide: the rate of the leak, the number of zombies, walks over memory
cgroups, bursts of kernel time, crash loops. Signs (throttling, reclaim, late polls) are told. Of rare effects (resets, lockups,
dead jobs) it says how long a silence would have to be; they fail it only if they happen.

A leak that goes on fails it at once, by a test that may be looked at all the time. Too little data is never a pass.

Without --before it is the last incident that the flight recorder has, if there is one; else the limits of the thresholds.
The last proof of a live node is kept in /var/lib/exhume, if that is there, for exhume checklist, and with what exhume fix did
last, for exhume history."""
EPILOG = """\
examples:
  sudo exhume verify                                  ten minutes from now on
  sudo exhume verify --for 3m --before 12:00..12:10   against a time that the flight recorder has
  sudo exhume verify --before /data/sick --markdown -o proof.md
  exhume verify --before /data/sick --after /data/cured        of two recordings; no node is looked at
  exhume verify --dir /data/rec --before 12:00..12:10 --after 12:30..12:40 --json

exit code: 0 passed, 2 failed, 3 could not judge, 64 wrong usage"""

SHORTEST_NS, LONGEST_NS = 15 * SECOND, 3600 * SECOND
CODES = {True: EXIT_HEALTHY, False: EXIT_CRITICAL, None: EXIT_CANNOT_JUDGE}
# What argparse takes for a value although it begins with a dash: `--before -20m..-10m`.
_FROM_END = re.compile(r"-\d")


def arguments(parser: argparse.ArgumentParser) -> None:
    from exhume.cli.record import DEFAULT

    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser._negative_number_matcher = _FROM_END
    parser.add_argument("--for", dest="for_ns", type=duration_ns, default="10m", metavar="TIME", help="how long to look (10m)")
    parser.add_argument("--before", metavar="REC|T..T", help="a recording, or a window of that in --dir, of the time before")
    parser.add_argument("--after", metavar="REC|T..T", help="the same of the time after, instead of looking at this node")
    parser.add_argument("--dir", metavar="DIR", help=f"the flight recorder's recording ({DEFAULT}, of --host)")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the proof as JSON (schema exhume.proof/2)")
    form.add_argument("--markdown", action="store_true", help="the proof as Markdown")
    parser.add_argument("-o", dest="output", metavar="FILE", help="write it there instead of printing it")
    parser.add_argument("--host", default="/", metavar="DIR", help="the node whose / is mounted at DIR")
    parser.add_argument("--log-root", metavar="DIR", help="take the kernel's log from DIR/dev/kmsg (as exhume lab makes it)")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")


def run(args: argparse.Namespace) -> int:
    checked(args)
    proof = proven(args)
    _write(args, proof)
    if args.after is None:
        keep_with_fix(args.host, proof)
    return CODES[proof.passed]


def checked(args: argparse.Namespace, option: str = "--for") -> None:
    """UsageError for what cannot be meant."""
    if not SHORTEST_NS <= args.for_ns <= LONGEST_NS:
        raise UsageError(f"{option} must be between 15s and 1h")


def proven(args: argparse.Namespace) -> "Proof":
    """The proof that is asked for, kept for the checklist where it is of this node as it is now."""
    from exhume.cli.verify_before import before, recorded
    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.remedy.proof import prove

    thresholds = section(load(args.config), "thresholds", Thresholds)
    if args.dir is None:
        args.dir = recorder_dir(args.host)
    held = before(args, thresholds)
    if args.after is not None:
        after = recorded(args, args.after, "--after", thresholds)
        _tell_other(held, after.node.hostname, "--after")
        return prove(held, after, thresholds)
    proof = _live(args, held, thresholds)
    if args.host == "/":
        from exhume.remedy.proof_gathered import keep

        keep(proof)
    return proof


def recorder_dir(host: str) -> str:
    """Where the flight recorder of a node writes to by itself."""
    from exhume.cli.record import DEFAULT

    return os.path.join(host, DEFAULT.lstrip("/"))


def keep_with_fix(host: str, proof: "Proof", identity: str = "") -> None:
    """With the application that is named, or with the last one of the node."""
    from exhume.host.root import Root
    from exhume.remedy.node import Node
    from exhume.remedy.operations import Operations
    from exhume.remedy.proof_gathered import keep_with

    try:
        kept = keep_with(proof, Node(Root(host), None, Operations()), identity)
    except (ExhumeError, OSError) as why:
        sys.stderr.write(f"exhume: the proof is not kept with {identity or 'what was done'}: {why}\n")
        return
    if kept and not identity:
        sys.stderr.write(f"exhume: the proof is kept with {kept} (exhume history)\n")


def _tell_other(before: "Recording | None", hostname: str, what: str) -> None:
    from exhume.text import printable

    if before is not None and before.node.hostname and hostname and before.node.hostname != hostname:
        other, here = printable(before.node.hostname, 80), printable(hostname, 80)
        sys.stderr.write(f"exhume: --before is of {other}, and {what} is {here}: two nodes are compared\n")


def _live(args: argparse.Namespace, before: "Recording | None", thresholds: "Thresholds") -> "Proof":
    from exhume.cli.stopping import Stopping
    from exhume.host.cgroups import Tree
    from exhume.host.root import Root
    from exhume.remedy.proof import prove
    from exhume.remedy.proof_live import watch
    from exhume.sources.facts import facts

    if not os.path.exists(os.path.join(args.host, "proc/stat")):
        raise ExhumeError(f"{args.host} is not the root of a node: there is no {os.path.join(args.host, 'proc/stat')}")
    root = Root(args.host)
    _tell_other(before, facts(root, Tree(root).layout).hostname, "this")
    log = Root(args.log_root) if args.log_root else None
    board = _Board(before, thresholds)
    try:
        with Stopping() as stopping:
            watched = watch(root, args.for_ns, before, thresholds, stopping, board, log)
    finally:
        board.clear()
    if watched.stopped:
        sys.stderr.write("exhume: it was stopped before its time; what there is, is judged\n")
    return prove(before, watched.recording, thresholds, watched.early)


class _Board:
    """One line for each cause, drawn again ten times in all; nothing where stderr is no terminal."""

    def __init__(self, before: "Recording | None", thresholds: "Thresholds") -> None:
        self._before, self._thresholds = before, thresholds
        self._shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._step = -1
        self._lines = 0

    def __call__(self, part: float, so_far: "Recording") -> None:
        step = int(part * 20)
        if not self._shown or step == self._step or part >= 1.0:
            return
        from exhume.cli.terminal import width
        from exhume.cli.verify_text import progress_lines
        from exhume.remedy.criteria_cores import bursts
        from exhume.remedy.criteria_count import zombie_count
        from exhume.remedy.criteria_leak import leak_rate

        self._step = step
        criteria = [judge(self._before, so_far, self._thresholds) for judge in (leak_rate, zombie_count, bursts)]
        lines = progress_lines(criteria, part, width(sys.stderr))
        self.clear()
        sys.stderr.write("\n".join(lines) + "\n")
        sys.stderr.flush()
        self._lines = len(lines)

    def clear(self) -> None:
        if self._lines:
            sys.stderr.write(f"\x1b[{self._lines}F\x1b[J")
            sys.stderr.flush()
            self._lines = 0


def _write(args: argparse.Namespace, proof: "Proof") -> None:
    import json

    from exhume.cli.output import output
    from exhume.cli.terminal import Style, width
    from exhume.cli.verify_text import markdown, render
    from exhume.remedy.proof import as_json

    if args.json:
        text = json.dumps(as_json(proof), indent=1) + "\n"
    elif args.markdown:
        text = markdown(proof)
    else:
        plain = args.output is not None
        text = render(proof, Style(sys.stdout, False if plain else None), 100 if plain else width(sys.stdout))
    if args.output is None:
        sys.stdout.write(text)
        return
    with output(args.output) as out:
        out(text.encode("utf-8", "replace"))
