"""exhume lab score: every incident, recorded and diagnosed, and a table of how right the verdicts were."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exhume.cli.output import output
from exhume.errors import EXIT_HEALTHY, ExhumeError, Refused, UsageError
from exhume.scratch import scratch

if TYPE_CHECKING:
    from exhume.lab.scenario import Scenario
    from exhume.lab.score import Run

FAILED = 2
MOST_RUNS = 100
_COLUMNS = f"{'scenario':<20} {'runs':>4}  {'cause':<6} {'culprit':<8} {'health':<7} {'accused':>7}  {'seconds':>7}  verdict"


def score(args: argparse.Namespace) -> int:
    from exhume.lab.score import SCHEMA, all_right
    from exhume.lab.workshop import allow

    runs = 1 if args.runs is None else args.runs
    if not 1 <= runs <= MOST_RUNS:
        raise UsageError(f"--runs must be between 1 and {MOST_RUNS}")
    chosen = _chosen(args.only)
    allow()
    rows, missing = [], []
    with scratch("score", "/var/tmp") as place:
        keep = _kept(args.keep) or Path(place)
        for scenario in chosen:
            if reason := scenario.missing():
                missing.append({"name": scenario.name, "missing": reason})
                continue
            row = _score(args, scenario, runs, keep)
            if row is None:
                raise Refused("stopped before the end")
            rows.append(row)
            if not args.json:
                if len(rows) == 1:
                    print(_COLUMNS)
                _line(row)
    if args.json:
        print(json.dumps({"schema": SCHEMA, "scenarios": rows, "not_here": missing}, indent=1))
    else:
        for each in missing:
            print(f"{each['name']:<20} cannot be made here: {each['missing']}")
    return EXIT_HEALTHY if rows and all_right(rows) else FAILED


def _chosen(only: str | None) -> "list[Scenario]":
    from exhume.lab.catalogue import scenario, scenarios

    if only is None:
        return scenarios()
    names = list(dict.fromkeys(name.strip() for name in only.split(",") if name.strip()))
    if not names:
        raise UsageError("--only needs names of scenarios; exhume lab list has them")
    return [scenario(name) for name in names]


def _kept(keep: str | None) -> Path | None:
    if keep is None:
        return None
    try:
        Path(keep).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExhumeError(f"{keep} cannot be made: {error.strerror}") from None
    return Path(keep)


def _score(args: argparse.Namespace, scenario: "Scenario", times: int, keep: Path) -> dict[str, Any] | None:
    import shutil

    from exhume.cli.stopping import Stopping
    from exhume.cli.terminal import Progress
    from exhume.diagnosis.report import as_json
    from exhume.lab.scenario import Settings
    from exhume.lab.score import place, score_run, scored

    settings = Settings(args.window_ns / 1e9, args.scale)
    runs: list[Run] = []
    for number in range(times):
        progress = Progress(f"{scenario.name} {number + 1}/{times}")
        progress(0.0)
        path = place(keep, scenario.name, number)
        try:
            with Stopping() as stop:
                run = score_run(scenario, settings, path, progress, stop)
        finally:
            progress.clear()
            if not args.keep:
                shutil.rmtree(path, ignore_errors=True)
        if run is None:
            return None
        if args.keep:
            whole = {**run.ground, "score": run.as_json(), "report": as_json(run.report)}
            with output(f"{path}.json") as out:
                out(json.dumps(whole, indent=1).encode())
        runs.append(run)
    return scored(scenario.name, runs)


def _line(row: dict[str, Any]) -> None:
    from exhume.cli.terminal import Style
    from exhume.text import printable

    style = Style(sys.stdout)

    def mark(right: bool, wide: int) -> str:
        return style(f"{'right' if right else 'WRONG':<{wide}}", "green" if right else "red")

    seconds = "-" if row["seconds_to_verdict"] is None else f"{row['seconds_to_verdict']:.1f}"
    last = row["verdicts"][-1]
    said = f"{last['cause'] or 'no cause'}, {last['confidence']:.0%}: {printable(last['summary'], 120)}"
    cells = (mark(row["cause_right"], 6), mark(row["culprit_right"], 8), mark(row["health_right"], 7))
    print(
        f"{row['name']:<20} {row['runs']:>4}  {' '.join(cells)} {row['false_accusations']:>7}  {seconds:>7}  {said}", flush=True
    )
    for verdict in row["verdicts"]:
        if verdict["not_as_promised"]:
            print(f"{'':<20} the incident was not as promised: {', '.join(verdict['not_as_promised'])}")
        for key, words in (("accused_falsely", "accused falsely"), ("accused_meanwhile", "accused falsely while it went on")):
            if verdict[key]:
                print(f"{'':<20} {words}: {', '.join(printable(name, 80) for name in verdict[key])}")
