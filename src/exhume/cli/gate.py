"""exhume gate: whether an image may go out."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume import budget
from exhume.cli.arguments import duration_ns
from exhume.errors import UsageError
from exhume.host.quantities import SECOND
from exhume.text import from_path, printable

if TYPE_CHECKING:
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.host.root import Root
    from exhume.image.gate_model import Check, Gate, Options
    from exhume.recording.recording import Recording

DESCRIPTION = """\
For image pipelines: watches a test instance of a new image and says whether it may go out.

On the running instance it asserts the number of memory cgroups and their growth over the soak, no crash loops, no zombies with
a known source and, with --policy, nothing that starts and is not listed. A soak excludes leaks only down to some rate: the
report says which, and judges it against the node's life. With --root or --image nothing runs: what the image will start is
held against the policy and against what is known to harm.

What was not shown is never called a pass: "not proven" has an exit code of its own."""
EPILOG = """\
examples:
  sudo exhume gate                                    ten minutes on this test instance
  sudo exhume gate --for 80m --node-life 14d          long enough to promise fourteen days
  sudo exhume gate --policy agents.toml --junit gate.xml --sarif gate.sarif --github
  sudo exhume gate --for 10m --allow-warnings --json  a short soak: fails on what is wrong, passes what is not proven
  exhume gate --root /mnt/image --policy agents.toml  an image that does not run

exit code: 0 passed; 1 nothing wrong was seen, but the soak cannot promise it, or something should be looked at; 2 failed;
3 a check could not be made. --strict makes 1 a 2, --allow-warnings makes it a 0."""

SHORTEST_NS, LONGEST_NS = 2 * SECOND, 7 * 86_400 * SECOND
SETTLE_SHARE, SETTLE_MOST_NS = 5, 120 * SECOND


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--host", default="/", metavar="DIR", help="judge the node whose / is mounted at DIR")
    where.add_argument("--root", metavar="DIR", help="an image that does not run: its root file system, mounted or unpacked")
    where.add_argument("--image", metavar="FILE", help="an image that does not run: an archive or a disk image")
    soak = parser.add_argument_group("the soak")
    soak.add_argument("--for", dest="soak_ns", type=duration_ns, default="10m", metavar="TIME", help="how long to watch (10m)")
    soak.add_argument(
        "--settle",
        dest="settle_ns",
        type=duration_ns,
        metavar="TIME",
        help="of it, what is not counted: a boot leaves groups behind (a fifth of it, at most 2m)",
    )
    soak.add_argument("--node-life", dest="life_ns", type=duration_ns, default="14d", metavar="TIME", help="of a node (14d)")
    soak.add_argument("--limit", type=int, default=1_000, metavar="N", help="memory cgroups a node may come to (1000)")
    soak.add_argument("--confidence", type=float, default=95.0, metavar="PERCENT", help="of what is said of leaks (95)")
    soak.add_argument("--under", default="/", metavar="PATH", help="judge only what is below this memory cgroup")
    parser.add_argument("--policy", metavar="FILE", help="what may start: exhume audit --write-policy makes the first one")
    out = parser.add_argument_group("output, several at once")
    out.add_argument("--json", action="store_true", help="print as JSON (schema exhume.gate/1)")
    out.add_argument("--junit", metavar="FILE", help="write JUnit XML, too")
    out.add_argument("--sarif", metavar="FILE", help="write SARIF 2.1.0, too")
    out.add_argument("--github", action="store_true", help="print GitHub annotations, too")
    out.add_argument("--source", default="", metavar="FILE", help="the image's recipe: where SARIF and annotations point to")
    judging = parser.add_mutually_exclusive_group()
    judging.add_argument("--strict", action="store_true", help="what is not proven fails (exit code 2)")
    judging.add_argument("--allow-warnings", action="store_true", help="what is not proven passes (exit code 0)")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")


def run(args: argparse.Namespace) -> int:
    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds

    options = _options(args)
    for path in filter(None, (args.junit, args.sarif)):
        _write(path, "")  # what cannot be written is said now, not after the soak
    if args.root is not None or args.image is not None:
        gate = _image(args, options)
    else:
        gate = _node(args, options, section(load(args.config), "thresholds", Thresholds))
    _show(args, gate)
    return gate.exit_code(args.strict, args.allow_warnings)


def _options(args: argparse.Namespace) -> "Options":
    from exhume.image.gate_model import Options

    if not SHORTEST_NS <= args.soak_ns <= LONGEST_NS:
        raise UsageError("--for must be between 2s and 7d")
    settle_ns = min(args.soak_ns // SETTLE_SHARE, SETTLE_MOST_NS) if args.settle_ns is None else args.settle_ns
    if settle_ns >= args.soak_ns:
        raise UsageError("--settle must be shorter than the soak (--for)")
    if args.life_ns < args.soak_ns:
        raise UsageError("--node-life must not be shorter than the soak (--for)")
    if not 1 <= args.limit <= 1_000_000_000:
        raise UsageError("--limit must be at least 1")
    if not 50 <= args.confidence < 100:
        raise UsageError("--confidence is in percent, from 50 to below 100")
    if not args.under.startswith("/"):
        raise UsageError(f"--under {printable(args.under)}: a path from the root of the memory hierarchy begins with /")
    if not os.path.isdir(args.host):
        raise UsageError(f"--host {printable(from_path(args.host))} is not a directory; mount the host's / there")
    under = args.under.rstrip("/") or "/"
    return Options(args.limit, args.life_ns / 1e9, settle_ns / 1e9, under, round(1 - args.confidence / 100, 12))


def _node(args: argparse.Namespace, options: "Options", thresholds: "Thresholds") -> "Gate":
    from exhume.cli.terminal import Progress
    from exhume.host.root import Root
    from exhume.image.gate import judge_node
    from exhume.image.gate_growth import certain
    from exhume.recorder.soak import soak

    _there(Root(args.host), options.under)
    more = _by_files(args, args.host) if args.policy else ()
    ended = []

    def enough(recording: "Recording") -> bool:
        if certain(recording, options, args.soak_ns / 1e9):
            ended.append(True)
        return bool(ended)

    progress = Progress("soaking")
    try:
        recording = soak(Root(args.host), args.soak_ns, progress, enough)
    finally:
        progress.clear()
    return judge_node(recording, thresholds, options, more, bool(ended))


def _there(root: "Root", under: str) -> None:
    """A place that does not exist is quiet for ever: nothing may pass for having been misspelt."""
    from exhume.host.cgroups import Tree

    hierarchy = Tree(root).layout.of("memory") if under != "/" else None
    if hierarchy is not None and not root.exists(hierarchy.path + under):
        raise UsageError(f"--under {printable(under)}: there is no such memory cgroup below {hierarchy.path}")


def _image(args: argparse.Namespace, options: "Options") -> "Gate":
    from exhume.image.gate_model import Gate

    path = args.root if args.root is not None else args.image
    if args.root is not None and not os.path.isdir(path):
        raise UsageError(f"{printable(from_path(path))} is not a directory; for a file there is --image")
    return Gate(path, _by_files(args, path), options)


def _by_files(args: argparse.Namespace, path: str) -> "tuple[Check, ...]":
    """What will start, by the files of a root or an image."""
    from exhume.cli.audit import opened, read_policy
    from exhume.cli.terminal import Progress
    from exhume.image.audit_tree import audit_tree
    from exhume.image.gate_image import image_checks

    policy = read_policy(args.policy) if args.policy else None
    progress = Progress("reading")
    try:
        with budget.enforced(), opened(path, args.image is not None) as tree:
            return image_checks(audit_tree(tree, policy, progress=progress), policy)
    finally:
        progress.clear()


def _show(args: argparse.Namespace, gate: "Gate") -> None:
    import json

    from exhume import __version__
    from exhume.cli.gate_text import render, results
    from exhume.cli.terminal import Style, width
    from exhume.image.gate_model import as_json

    told = results(gate)
    if args.junit:
        from exhume.image.junit import junit

        _write(args.junit, junit(told, "gate", gate.soak_s))
    if args.sarif:
        from exhume.image.sarif import sarif

        _write(args.sarif, json.dumps(sarif(told, __version__, args.source), indent=1) + "\n")
    text = json.dumps(as_json(gate), indent=1) + "\n" if args.json else render(gate, Style(sys.stdout), width(sys.stdout))
    if args.github:
        from exhume.image.annotations import annotations, harmless

        # The runner looks for commands on both streams, and what is on stdout with --json is for a program.
        (sys.stderr if args.json else sys.stdout).write(annotations(told, args.source))
        text = text if args.json else harmless(text)
    sys.stdout.write(text)
    sys.stdout.flush()


def _write(path: str, text: str) -> None:
    from exhume.cli.output import output

    with output(path, shared=True) as out:  # Packer and other pipelines fetch it as another user
        out(text.encode("utf-8", "backslashreplace"))
