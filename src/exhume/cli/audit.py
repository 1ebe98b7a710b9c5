"""exhume audit: what an image or a node starts by itself, which of it is needed, unused or harmful, and who answers for it."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume import budget
from exhume.errors import ExhumeError, Refused, UsageError
from exhume.host.quantities import size
from exhume.text import from_path, printable

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from exhume.host.tree import Tree
    from exhume.image.audit import Audit, Live
    from exhume.image.policy import Policy

DESCRIPTION = """\
Lists everything that an image or a node starts by itself, and judges each: needed, unused, harmful or unknown, with reasons.

Unit files are read as systemd reads them, with drop-ins, presets, timers, sockets and the dependency graph; also cron, SysV
scripts, rc.local, static pods and containers with a restart policy. Nothing of an image is ever executed. On a live node,
systemd and the kernel are asked as well: restarts, last exits, CPU time, who is connected to what."""
EPILOG = """\
examples:
  sudo exhume audit                            this node
  exhume audit --root /mnt/image               a mounted image, or any directory that holds a root
  exhume audit --image image.tar               a container image, a tar of a root, a disk image
  exhume audit ecs.service                     everything about one: who needs it, how it restarts, why it is judged so
  exhume audit --root /mnt/image --write-policy policy.toml
  exhume audit --root /mnt/image --policy policy.toml --sarif > audit.sarif

The policy is a TOML file with a section [agents."NAME"] for each thing that may start: owner, purpose, review (a date),
images (globs of the images that may have it), keep = true (needed, whatever an audit finds). What differs is drift.

exit code: 0 nothing to do; 1 something is unused, is known for a lesser harm, may restart for ever although it is needed, or
differs from the policy; 2 something harms the node or can; 3 it could not be judged, or parts of it not be read"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("unit", nargs="*", metavar="UNIT", help="only these, and everything about them")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--root", metavar="DIR", help="a root that is not running: a mounted image, a directory")
    where.add_argument("--image", metavar="FILE", help="an image: OCI or docker archive, tar of a root, raw or qcow2 disk")
    where.add_argument("--host", default="/", metavar="DIR", help="the node whose / is mounted at DIR (default: this one)")
    parser.add_argument("--recording", metavar="DIR", help="of this node, for the crash loops that it shows")
    parser.add_argument("--policy", metavar="FILE", help="the lifecycle policy to compare with")
    parser.add_argument(
        "--write-policy", nargs="?", const="-", metavar="FILE.toml", help="write a first policy of what starts here, then stop"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print as JSON (schema exhume.audit/1)")
    form.add_argument("--sarif", action="store_true", help="print as SARIF 2.1.0, for code scanning")
    form.add_argument("--markdown", action="store_true", help="print as Markdown, for a merge request")
    parser.add_argument("--all", action="store_true", help="also what is needed or unknown, with the reasons")


def run(args: argparse.Namespace) -> int:
    if args.write_policy is not None and args.write_policy != "-" and not args.write_policy.endswith(".toml"):
        raise UsageError(f"--write-policy {printable(args.write_policy)}: a policy's name ends in .toml")
    if args.recording and (args.root or args.image):
        raise UsageError("--recording is of a live node; an image has none")
    policy = read_policy(args.policy) if args.policy else None
    path = args.root or args.image or args.host
    if not args.image and not os.path.isdir(path):
        raise UsageError(f"{printable(from_path(path))} is not a directory; for a file there is --image")
    with opened(path, bool(args.image)) as tree:
        report = look(args, tree, policy)
        if args.write_policy is not None:
            return write_policy(args.write_policy, report, policy)
        names = chosen(report, args.unit)
        show(args, report, tree.name, names)
    return report.exit_code if not names else verdict_of(report, names)


def opened(path: str, image: bool) -> "AbstractContextManager[Tree]":
    """A directory by itself: what reads images need not be loaded for it."""
    if image:
        from exhume.image.opening import open_image

        return open_image(path)
    from exhume.host.directory import Directory

    return Directory(path)


def look(args: argparse.Namespace, tree: "Tree", policy: "Policy | None") -> "Audit":
    from exhume.cli.terminal import Progress
    from exhume.image.audit_tree import audit_tree

    live, troubles = (None, ()) if args.root or args.image else look_live(args)
    if live is not None and tree.entry("/proc/1") is not None:
        tree.live = True  # a host that is mounted somewhere has its /proc and /sys with it
    progress = Progress("reading")
    try:
        report = audit_tree(tree, policy, live, troubles, progress)
    finally:
        progress.clear()
    if not report.units:
        raise ExhumeError(
            f"nothing that starts by itself was found in {printable(from_path(tree.name))}: it does not look like a root"
        )
    return report


def look_live(args: argparse.Namespace) -> "tuple[Live, tuple[str, ...]]":
    """What the running node says; what it does not say is told, and judged less."""
    from exhume.host.root import Root
    from exhume.image.audit import Live
    from exhume.sources.unit_life import try_life
    from exhume.sources.unit_sockets import read_sockets

    root = Root(args.host)
    lives, quiet = try_life(root)
    sockets, unseen = read_sockets(root)
    loops: dict[str, str] = {}
    if args.recording:
        from exhume.cli.audit_recording import crash_loops

        loops = crash_loops(args.recording)
    said = [f"systemd: {quiet}"] if quiet else []
    said += [f"sockets: {unseen}"] if unseen else []
    return Live(lives, sockets, bool(unseen), loops), tuple(said)


def read_policy(path: str) -> "Policy":
    from exhume.image.policy import LARGEST, parse

    try:
        raw = budget.read(path, LARGEST)
    except OSError as error:
        raise UsageError(f"the policy {printable(from_path(path))} cannot be read: {error.strerror}") from None
    if len(raw) > LARGEST:
        raise UsageError(f"the policy {printable(from_path(path))} is larger than {size(LARGEST)}")
    return parse(raw, printable(from_path(path)))


def write_policy(path: str, report: "Audit", known: "Policy | None") -> int:
    """A first policy, or the one that is known with what is new added to it. Never over a file that is there."""
    from exhume.image.policy import first_policy, write

    policy = first_policy((unit.service for unit in report.units), known)
    text = write(policy, report.inventory.system)
    if path == "-":
        sys.stdout.write(text)
        return 0
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Refused(
            f"{printable(path)} is there already and stays as it is; "
            f"--policy {printable(path)} compares with it, and with --write-policy NEW.toml adds what is new"
        ) from None
    except OSError as error:
        raise ExhumeError(f"{printable(path)} cannot be written: {error.strerror}") from None
    sys.stderr.write(f"exhume: {len(policy.agents):,} agents written to {printable(path)}; fill in who owns them\n")
    return 0


def chosen(report: "Audit", asked: list[str]) -> tuple[str, ...]:
    """The names that were asked for, aliases followed, with .service added where it was left out."""
    from difflib import get_close_matches

    there = {alias: unit.service.name for unit in report.units for alias in unit.service.aliases}
    there |= {unit.service.name: unit.service.name for unit in report.units}
    names = []
    for name in asked:
        found = next((there[one] for one in (name, f"{name}.service") if one in there), None)
        if found is None:
            near = get_close_matches(name, there, 1, 0.8)  # all share their type
            hint = f", did you mean {printable(near[0])}?" if near else ""
            raise UsageError(f"nothing here is called {printable(name)}{hint}")
        names.append(found)
    return tuple(names)


def verdict_of(report: "Audit", names: tuple[str, ...]) -> int:
    """The exit code, as far as the named ones are concerned."""
    from dataclasses import replace

    findings = tuple(one for one in report.findings if one.subject in names)
    return replace(report, findings=findings, drift=tuple(one for one in report.drift if one.name in names)).exit_code


def show(args: argparse.Namespace, report: "Audit", name: str, names: tuple[str, ...]) -> None:
    if args.json:
        import json

        from exhume.image.audit_json import as_json

        document = as_json(report, name, names)
        # Indenting is Python's own slow encoder: of thousands of units nobody reads it by eye.
        print(json.dumps(document, indent=1 if len(document["units"]) <= 1000 else None))
    elif args.sarif:
        import json

        from exhume import __version__
        from exhume.cli.audit_results import results
        from exhume.image.sarif import sarif

        print(json.dumps(sarif(results(report, names), __version__), indent=1))
    elif args.markdown:
        from exhume.cli.audit_markdown import page

        sys.stdout.write(page(report, name, names, args.all))
    else:
        from exhume.cli.audit_text import render
        from exhume.cli.terminal import Style, width

        sys.stdout.write(render(report, name, names, args.all, Style(sys.stdout), width(sys.stdout)))
