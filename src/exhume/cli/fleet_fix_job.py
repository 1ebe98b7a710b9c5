"""exhume fleet fix --image: its options, and the Job as a way to fix a node."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exhume.cli.arguments import duration_ns
from exhume.errors import UsageError

if TYPE_CHECKING:
    from exhume.fleet.waves import Result

_VERIFY_FOR = "10m"
_SPARE_NS = 60 * 10**9
# What goes with --image alone: the attribute, and the option.
_ONLY = {
    "print_manifest": "--print-manifest",
    "namespace": "--namespace",
    "context": "--context",
    "pull_secret": "--pull-secret",
    "verify_for": "--verify-for",
    "irreversible": "--yes-irreversible",
}


def _nothing() -> None:
    pass


def _no_manifests(nodes: Sequence[str]) -> str:
    raise UsageError("--print-manifest goes with --image")


@dataclass(frozen=True, slots=True)
class Way:
    """How nodes are fixed."""

    how: str
    fix: "Callable[[str], Result]"
    check: Callable[[], None] = _nothing
    """Raises before anything is done, if it cannot be."""
    manifests: Callable[[Sequence[str]], str] = _no_manifests


def arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("with --image")
    group.add_argument("--print-manifest", action="store_true", help="print the Jobs as YAML, and do nothing")
    group.add_argument("--namespace", metavar="NAME", help="where the Jobs are made; it must allow privileged pods (default)")
    group.add_argument("--context", metavar="NAME", help="of the kubeconfig (that of a k8s: SOURCE, or the current one)")
    group.add_argument("--pull-secret", metavar="NAME", help="a secret of that namespace to pull the image with")
    group.add_argument("--verify-for", metavar="TIME", help=f"how long a node is watched for the proof ({_VERIFY_FOR})")
    group.add_argument(
        "--yes-irreversible",
        dest="irreversible",
        action="store_true",
        help="also what cannot be undone: zombies are let go, which takes page cache from their siblings",
    )


def refuse_without_image(args: argparse.Namespace) -> None:
    if given := [option for name, option in _ONLY.items() if getattr(args, name)]:
        raise UsageError(f"{given[0]} goes with --image; a command of --exec says all of that itself")


def of(args: argparse.Namespace) -> Way:
    from exhume.cluster.client import Client, connect
    from exhume.fleet import kubernetes, waves_job, waves_job_run

    verify_for = args.verify_for or _VERIFY_FOR
    if duration_ns(verify_for) + _SPARE_NS >= args.timeout_ns:
        raise UsageError("--timeout must be longer than --verify-for by more than a minute: the proof alone takes that long")
    asked = waves_job.Asked(
        args.image,
        args.target,
        args.namespace or "default",
        args.timeout_ns / 1e9,
        verify_for,
        args.irreversible,
        args.pull_secret or "",
    )
    context = args.context or (kubernetes.context_of(args.source) if args.source.startswith(kubernetes.SCHEME) else "")

    def client() -> Client:
        return connect(context)

    def check() -> None:
        with client() as one:
            waves_job_run.refuse_without_rights(one, asked)

    def manifests(nodes: Sequence[str]) -> str:
        import yaml

        return yaml.safe_dump_all([waves_job.manifest(asked, node) for node in nodes], sort_keys=False, width=128)

    return Way(asked.described, lambda node: waves_job_run.fix(client, asked, node), check, manifests)
