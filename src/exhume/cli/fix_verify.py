"""The proof after a fix: what exhume verify says, printed, and kept with what was done."""

import argparse
import json
import os
import sys
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exhume.remedy.node import Node


def verify(args: argparse.Namespace, node: "Node", identity: str) -> int:
    """Its exit code."""
    from exhume.cli.main import command, command_parser
    from exhume.cli.terminal import Style, width
    from exhume.cli.verify_text import render
    from exhume.remedy import carry_out
    from exhume.remedy.proof import from_json

    with tempfile.TemporaryDirectory(prefix="exhume-proof-") as made:
        path = os.path.join(made, "proof.json")
        asked = ["--for", args.verify_for, "--json", "-o", path, "--host", args.host]
        if args.config:
            asked += ["--config", args.config]
        if args.report is not None and os.path.isdir(args.report):
            asked += ["--before", args.report]
        code = command("verify").run(command_parser("verify").parse_args(asked))
        with open(path, "rb") as file:
            document = json.load(file)
    sys.stdout.write(render(from_json(document), Style(sys.stdout), width(sys.stdout)))
    carry_out.add_note(node, identity, "proof", document)
    return code
