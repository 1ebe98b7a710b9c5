"""exhume lab: incidents made for real, to see the tool being right."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from exhume.cli.arguments import duration_ns
from exhume.errors import EXIT_HEALTHY, UsageError
from exhume.host.quantities import SECOND, duration

if TYPE_CHECKING:
    from exhume.lab.scenario import Scenario, Settings

DESCRIPTION = """\
Makes incidents for real on this kernel, so that everybody can see a verdict being right, and see it decline when the cause is
another. Each is bounded in time and size, lives in cgroups, network namespaces and files of its own, keeps to one core where
it uses real-time priority, and is gone afterwards; what a killed run leaves is removed by the next one, or by `clean`.

It refuses to run without EXHUME_LAB=1: use a machine that nobody needs."""
EPILOG = """\
examples:
  exhume lab list
  EXHUME_LAB=1 sudo -E exhume lab run zombie-starvation --for 60s
  EXHUME_LAB=1 sudo -E exhume lab run zombies-harmless --scale 5000 --json
  EXHUME_LAB=1 sudo -E exhume lab score                        all of them, recorded and diagnosed: is the verdict right?
  EXHUME_LAB=1 sudo -E exhume lab score --only cpu-full,healthy --runs 5 --keep /var/tmp/recordings
  sudo exhume lab clean
  exhume lab fleet --nodes 2000 --days 14 --seed 1 -o fleet    files only: a made fleet, to try exhume fleet on

exit code: 0 it did what it says, or every verdict was right; 2 not so, or refused; 64 wrong usage"""

FAILED = 2


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("action", choices=["list", "run", "score", "clean", "fleet"], help="what to do")
    parser.add_argument("name", nargs="?", metavar="NAME", help="which scenario")
    parser.add_argument("--for", dest="window_ns", type=duration_ns, metavar="TIME", help="how long each (60s; score 15s)")
    parser.add_argument("--scale", type=int, metavar="N", help="how many zombies, directories ... (20000; score 3000)")
    parser.add_argument("--only", metavar="NAME,...", help="score: which (all)")
    parser.add_argument("--runs", type=int, metavar="N", help="score: how often each (1)")
    parser.add_argument("--keep", metavar="DIR", help="score: keep the recordings there")
    parser.add_argument("--json", action="store_true", help="print as JSON (schema exhume.lab/1, exhume.score/1)")
    fleet = parser.add_argument_group("fleet: a made fleet with a known cause, as files; nothing is done to this machine")
    fleet.add_argument("-o", "--output", metavar="DIR", help="where to; it must be empty or not there")
    fleet.add_argument("--nodes", type=int, default=2000, metavar="N", help="how many (2000)")
    fleet.add_argument("--days", type=int, default=14, metavar="N", help="of minutes (14)")
    fleet.add_argument("--seed", type=int, default=1, metavar="N", help="the same seed makes the same fleet (1)")
    fleet.add_argument("--cause", choices=["agent", "kernel", "driver", "two", "pair", "none"], default="agent", help="planted")


def run(args: argparse.Namespace) -> int:
    if args.action != "score" and (args.only or args.runs or args.keep):
        raise UsageError("--only, --runs and --keep are options of exhume lab score")
    if args.action != "fleet" and args.output:
        raise UsageError("-o is an option of exhume lab fleet")
    if args.action in ("run", "score"):
        usual_s, usual_scale = (60, 20_000) if args.action == "run" else (15, 3000)
        args.window_ns = usual_s * 10**9 if args.window_ns is None else args.window_ns
        args.scale = usual_scale if args.scale is None else args.scale
        if not 5 * 10**9 <= args.window_ns <= 600 * 10**9:
            raise UsageError("--for must be between 5s and 10m")
        if not 100 <= args.scale <= 60_000:
            raise UsageError("--scale must be between 100 and 60000")
    if args.action == "run":
        if not args.name:
            raise UsageError("which one? exhume lab list has the scenarios")
        return _run(args)
    if args.name:
        raise UsageError(f"exhume lab {args.action} takes no name{'; --only NAME' if args.action == 'score' else ''}")
    if args.action == "score":
        from exhume.cli.lab_score import score

        return score(args)
    if args.action == "fleet":
        from exhume.cli.lab_fleet import make

        return make(args)
    return _list(args) if args.action == "list" else _clean(args)


def _list(args: argparse.Namespace) -> int:
    from exhume.cli.terminal import width, wrap
    from exhume.lab.catalogue import scenarios

    found = scenarios()
    if args.json:
        _print([{"name": each.name, "summary": each.summary, "story": each.story, **_truth(each)} for each in found])
        return EXIT_HEALTHY
    for each in found:
        reason = each.missing()
        text = each.summary + (f" (not here: {reason})" if reason else "")
        sys.stdout.write("\n".join(wrap(text, f"  {each.name:<20} ", " " * 23, width(sys.stdout))) + "\n")
    return EXIT_HEALTHY


def _clean(args: argparse.Namespace) -> int:
    from exhume.lab import workshop

    removed = workshop.clean()
    if args.json:
        _print({"removed": removed})
    else:
        print(f"removed what was left of {', '.join(removed)}" if removed else "nothing was left behind")
    return EXIT_HEALTHY


def _run(args: argparse.Namespace) -> int:
    from exhume.cli.stopping import Stopping
    from exhume.cli.terminal import Progress
    from exhume.errors import Refused
    from exhume.lab.catalogue import scenario
    from exhume.lab.scenario import Settings, passing
    from exhume.lab.workshop import Lab, allow

    chosen = scenario(args.name)
    allow()
    if reason := chosen.missing():
        raise Refused(f"{chosen.name} cannot be made here: {reason}")
    settings = Settings(args.window_ns / 1e9, args.scale)
    progress = Progress(chosen.name)
    with Stopping() as stop, Lab() as lab:
        _say(f"making {chosen.name} ...")
        with chosen.make(lab, settings) as incident:
            _say(f"under way for {duration(settings.seconds * SECOND)}. Look at it from another terminal:")
            _say(
                f"  exhume check --log-root {lab.home}   exhume latency   exhume zombies   exhume record --log-root {lab.home}"
            )
            for part in passing(settings.seconds):
                progress(part)
                if stop():
                    break
            progress.clear()
            measured = incident.measured()
    truth = chosen.ground_truth(lab.name, settings, measured)
    if args.json:
        _print(truth)
    else:
        _table(chosen, settings, truth)
    return EXIT_HEALTHY if all(promise["kept"] for promise in truth["promises"]) else FAILED


def _table(chosen: "Scenario", settings: "Settings", truth: dict[str, Any]) -> None:
    from exhume.cli.terminal import Style

    style = Style(sys.stdout)
    print(f"{style(chosen.name, 'bold')}, {duration(settings.seconds * SECOND)}")
    for promise in truth["promises"]:
        mark = style("as promised", "green") if promise["kept"] else style("NOT AS PROMISED", "red")
        value = promise["measured"]
        shown = "-" if value is None else f"{value:,}"
        print(f"  {promise['what']:<22}{shown:>14}  {promise['sense']} {promise['bound']:<10,} {mark}  by {promise['source']}")
    cause = truth["truth"]["cause"] or "none: the node does not starve"
    print(f"  the truth: {cause}{'; ' + ', '.join(truth['truth']['culprits']) if truth['truth']['culprits'] else ''}")


def _truth(each: "Scenario") -> dict[str, Any]:
    from exhume.lab.scenario import Settings

    return {"truth": each.ground_truth("RUN", Settings(), {})["truth"], "missing": each.missing()}


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _print(what: object) -> None:
    import json

    print(json.dumps(what, indent=1), flush=True)
