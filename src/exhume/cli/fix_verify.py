"""The proof after a fix: what exhume verify says, printed, and kept with what was done."""

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING

from exhume.errors import EXIT_CANNOT_JUDGE, UsageError
from exhume.host.quantities import compact
from exhume.text import from_path, printable

if TYPE_CHECKING:
    from exhume.remedy.node import Node


def asked(args: argparse.Namespace) -> argparse.Namespace:
    """What exhume verify is asked for. Wrong usage is said before anything is changed."""
    from exhume.cli.main import command_parser
    from exhume.cli.verify import checked

    if not os.path.exists(os.path.join(args.host, "proc/stat")):
        raise UsageError(f"--verify needs a node that runs: there is no {printable(from_path(args.host))}/proc/stat")
    words = ["--host", args.host]
    if args.config:
        words += ["--config", args.config]
    if args.report is not None and os.path.isdir(args.report):
        words += ["--before", args.report]
    parsed = command_parser("verify").parse_args(words)
    parsed.for_ns = args.verify_ns
    checked(parsed, "--verify-for")
    return parsed


def verify(args: argparse.Namespace, node: "Node", identity: str = "") -> int:
    """Its exit code. The proof goes to the journal of what was done now or, where nothing had to be, last."""
    from exhume.cli import verify as verifying
    from exhume.cli.terminal import Style, width
    from exhume.cli.verify_text import render

    if identity and _goes_down(node, identity):
        sys.stdout.write(f"The node goes down now, so that nothing is verified. Once it is up again: {_later(args)}\n")
        return EXIT_CANNOT_JUDGE
    proof = verifying.proven(asked(args))
    sys.stdout.write(render(proof, Style(sys.stdout), width(sys.stdout)))
    sys.stdout.flush()
    verifying.keep_with_fix(args.host, proof, identity)
    return verifying.CODES[proof.passed]


def _goes_down(node: "Node", identity: str) -> bool:
    """Whether a reboot was asked for in this boot. One that has happened, as when a fix is resumed, is over."""
    from exhume.remedy import carry_out

    found = carry_out.find(node, identity)
    both = zip(found.plan.steps, found.steps, strict=True)
    asked_in = [record.before for step, record in both if step.kind == "reboot" and record.became == "done" and record.before]
    if not asked_in:
        return False
    boot = node.root.read("proc/sys/kernel/random/boot_id", 64).decode("ascii", "replace").strip()
    return any(before.get("boot_id") == boot for before in asked_in)


def _later(args: argparse.Namespace) -> str:
    words = ["sudo", "exhume", "verify", "--for", compact(args.verify_ns)]
    words += ["--host", args.host] if args.host != "/" else []
    words += ["--before", args.report] if args.report is not None and os.path.isdir(args.report) else []
    return printable(shlex.join(words), 400)
