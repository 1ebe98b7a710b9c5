"""exhume fleet: questions to many nodes at once. Each sub-command is a module of its own, cli/fleet_NAME.py."""

import argparse
import importlib

from exhume import budget
from exhume.cli.main import Command

# Name and one line. The module cli/fleet_NAME.py has arguments(parser) and run(args), as a command has.
SUBCOMMANDS = {
    "status": "nodes ranked by how bad, with verdict, leak rate, days to pain, resets",
    "cohorts": "what the sick nodes share that the healthy ones do not",
    "jobs": "job outcomes joined with what happened on their nodes at that minute",
    "correlate": "which share of throttling kernel reclaim explains",
    "profile": "one flame graph over many nodes, and the difference sick minus healthy",
    "fix": "the remedy rolled out in waves, each node proven before the next",
}

DESCRIPTION = """\
Many nodes at once: which are sick, what they have in common that the healthy ones do not have, which jobs it killed.

A fleet is read from Prometheus, Kubernetes, recordings, an inventory, or a directory of Parquet as docs/fleet.md has it;
exhume lab fleet makes one to try it on."""
EPILOG = """\
examples:
  exhume lab fleet --nodes 500 -o fleet     a fleet with a known cause
  exhume fleet cohorts fleet                what do the sick ones share?
  exhume fleet cohorts --help               everything about a sub-command"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    for name, line in SUBCOMMANDS.items():
        inner = actions.add_parser(
            name, help=line, description=line, formatter_class=argparse.RawDescriptionHelpFormatter, prog=f"exhume fleet {name}"
        )
        _module(name).arguments(inner)


def run(args: argparse.Namespace) -> int:
    if args.action == "fix":  # holds the part that reads
        return _module(args.action).run(args)
    with budget.enforced():
        return _module(args.action).run(args)


def _module(name: str) -> Command:
    module: Command = importlib.import_module(f"exhume.cli.fleet_{name}")
    return module
