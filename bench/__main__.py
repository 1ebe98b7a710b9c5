"""bench/run [NAME ...] [--json] [--list]"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator

from bench import agent, audit, check, fleet, imports, latency, latency_ping_pong, record, store, verdict, verify, view, zombies
from bench.measure import Row

BENCHMARKS: dict[str, Callable[[], Iterator[Row]]] = {
    "start-up": check.start_up,
    "check-cost": check.check_cost,
    "check-zombies": check.check_zombies,
    "check-directories": check.check_directories,
    "zombies-named": zombies.zombies_named,
    "zombies-groups": zombies.zombies_groups,
    "walk-churn": zombies.walk_churn,
    "walk-bystander": zombies.walk_bystander,
    "purge": zombies.purge,
    "purge-promise": zombies.purge_promise,
    "record-cost": record.record_cost,
    "record-idle": record.record_idle,
    "record-size": record.record_size,
    "record-slowdown": record.record_slowdown,
    "record-replay": record.record_replay,
    "record-hour": record.record_hour,
    "store-replay": store.replay_store,
    "store-quiet": store.quiet_store,
    "store-window": store.store_window,
    "store-growth": store.store_growth,
    "import-cost": imports.import_cost,
    "latency-stalls": latency.latency_stalls,
    "latency-announce": latency.latency_announce,
    "latency-healthy": latency.latency_healthy,
    "latency-overhead": latency.latency_overhead,
    "latency-ping-pong": latency_ping_pong.latency_ping_pong,
    "verdict-time": verdict.verdict_time,
    "diagnose-cost": verdict.diagnose_cost,
    "verify-lab": verify.verify_lab,
    "view-first": view.view_first,
    "view-selection": view.view_selection,
    "view-frames": view.view_frames,
    "view-long": view.view_long,
    "audit-units": audit.audit_units,
    "fleet-truth": fleet.fleet_truth,
    "fleet-null": fleet.fleet_null,
    "fleet-cohorts": fleet.fleet_cohorts,
    "agent-idle": agent.agent_idle,
    "agent-zombies": agent.agent_zombies,
    "agent-replay": agent.agent_replay,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench/run", description="Benchmarks, side by side with what a user would run instead."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which (all): {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    if args.list:
        for name, run in BENCHMARKS.items():
            print(f"{name:<20}{(run.__doc__ or '').strip()}")
        return 0
    unknown = [name for name in args.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}")
    results = []
    for name in args.names or BENCHMARKS:
        print(f"{name} ...", file=sys.stderr)
        try:
            rows = list(BENCHMARKS[name]())
        except RuntimeError as error:
            print(f"{name}: skipped, {error}", file=sys.stderr)
            continue
        results += [(name, row) for row in rows]
    if args.json:
        print(json.dumps([_as_json(name, row) for name, row in results], indent=1))
    else:
        _table(results)
    return 0


def _as_json(name: str, row: Row) -> dict[str, object]:
    return {
        "benchmark": name,
        "what": row.what,
        "ours": row.ours,
        "theirs": row.theirs,
        "unit": row.unit,
        "ratio": row.ours / row.theirs if row.theirs else None,
        "bar": row.bar,
        "holds": row.holds,
    }


def _table(results: list[tuple[str, Row]]) -> None:
    print(f"{platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    if note := check.quiet():
        print(note)
    print(f"{'what':<66}{'ours':>10}{'theirs':>10}  {'unit':<5}{'ratio':>7}{'bar':>7}")
    for _, row in results:
        theirs = f"{row.theirs:10.3f}" if row.theirs is not None else " " * 10
        ratio = f"{row.measured:6.2f}x" if row.theirs else " " * 7
        bar = f"{row.bar:7g}" if row.bar is not None else " " * 7
        verdict = {None: "", True: "  holds", False: "  FALLS SHORT"}[row.holds]
        print(f"{row.what:<66}{row.ours:10.3f}{theirs}  {row.unit:<5}{ratio}{bar}{verdict}")


if __name__ == "__main__":
    sys.exit(main())
