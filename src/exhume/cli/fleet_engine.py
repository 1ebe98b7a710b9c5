"""--engine and --ray-address, the same for every sub-command of exhume fleet that passes over minutes."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exhume.fleet.engine import Engine


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine",
        choices=["duckdb", "ray"],
        default="",
        help="what reads the minutes: DuckDB in this process, or the workers of a Ray cluster (EXHUME_FLEET_ENGINE, or duckdb)",
    )
    parser.add_argument(
        "--ray-address",
        default="",
        metavar="ADDRESS",
        help="of the cluster for --engine ray (RAY_ADDRESS, or one on this machine for the time being)",
    )


def of(args: argparse.Namespace) -> "Engine | None":
    from exhume.fleet.engine import chosen

    return chosen(args.engine, args.ray_address)
