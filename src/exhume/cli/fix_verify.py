"""The proof after a fix: what exhume verify says, printed, and kept with what was done."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume.errors import ExhumeError, UsageError
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
    """Its exit code. The proof goes to the journal of what was done; where nothing had to be, it is only printed."""
    from exhume.cli import verify as verifying
    from exhume.cli.terminal import Style, width
    from exhume.cli.verify_text import render
    from exhume.remedy import carry_out
    from exhume.remedy.proof import as_json

    proof = verifying.proven(asked(args))
    sys.stdout.write(render(proof, Style(sys.stdout), width(sys.stdout)))
    sys.stdout.flush()
    if identity:
        try:
            carry_out.add_note(node, identity, "proof", as_json(proof))
        except ExhumeError as why:
            sys.stderr.write(f"exhume: the proof is not kept with {identity}: {why}\n")
    return verifying.CODES[proof.passed]
