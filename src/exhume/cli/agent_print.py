"""exhume agent --print-rules, --print-dashboard: what Prometheus and Grafana need of the agent, made for one installation."""

import argparse

from exhume.agent.dashboards import DASHBOARDS
from exhume.agent.dashboards import printed as dashboard
from exhume.agent.rules import EDITIONS, Edition, Making
from exhume.agent.rules import printed as rules
from exhume.errors import UsageError


def arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("for Prometheus and Grafana")
    group.add_argument("--print-rules", action="store_true", help="print alerts and recording rules for Prometheus, and end")
    group.add_argument(
        "--edition",
        choices=EDITIONS,
        help="rules for nodes with the agent (the default), or for those that have only node_exporter and the kubelet",
    )
    group.add_argument("--print-dashboard", choices=DASHBOARDS, help="print a dashboard for Grafana, and end")
    group.add_argument(
        "--node-label", metavar="NAME", help="the label that tells nodes apart (instance; node for node_exporter)"
    )
    group.add_argument("--job", metavar="NAME", help="the scrape job of the agent (exhume), or of node_exporter (node)")
    group.add_argument("--docs-url", metavar="URL", help="where this documentation is: runbook_url begins with it (docs)")


def printed(args: argparse.Namespace) -> str:
    """What was asked for; empty if none of it was."""
    if args.print_rules and args.print_dashboard:
        raise UsageError("--print-rules and --print-dashboard are printed one at a time")
    if not args.print_rules and not args.print_dashboard:
        for name in ("edition", "node_label", "job", "docs_url"):
            if getattr(args, name):
                raise UsageError(f"--{name.replace('_', '-')} goes with --print-rules or --print-dashboard")
        return ""
    if args.edition and not args.print_rules:
        raise UsageError("--edition goes with --print-rules")
    edition: Edition = args.edition or "agent"
    # Exporter and kubelet are two targets: what a node's have in common is a label that both are given.
    node = args.node_label or (None if edition == "agent" else "node")
    given = {"node": node, "docs": args.docs_url, "job" if edition == "agent" else "exporters": args.job}
    making = Making(**{name: value for name, value in given.items() if value})
    return rules(edition, making) if args.print_rules else dashboard(args.print_dashboard, making)
