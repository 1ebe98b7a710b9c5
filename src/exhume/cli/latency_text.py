"""A latency report as people read it: the verdict, the histograms as pictures, the worst cases with who caused them."""

import os
from contextlib import suppress
from functools import cache

from exhume.cli.terminal import Style, wrap
from exhume.diagnosis.findings.held import INTERRUPT, REST
from exhume.diagnosis.findings.stalls import HeldStall
from exhume.diagnosis.latency import LatencyReport, ProbeSeen, holder_did, waiting
from exhume.host.quantities import MICROSECOND, duration, milliseconds
from exhume.recorder.latency import SOURCES
from exhume.recording.source_state import Gap, Reasons, Weaker
from exhume.render.histogram_text import axis, halved, strip
from exhume.sources.latency.histogram import BUCKETS, percentile
from exhume.text import printable

_COLOURS = {"healthy": "green", "warning": "yellow", "critical": "red", "unknown": "yellow"}
_STAGES = {
    ("napi", "wait"): "due to polled",
    ("napi", "gap"): "poll to poll, more to do",
    ("napi", "run"): "one poll",
    ("softirq", "wait"): "raised to run",
    ("softirq", "run"): "one run",
    ("runqueue", "wait"): "runnable to running",
    ("reclaim", "direct"): "direct reclaim",
    ("reclaim", "memcg"): "memcg reclaim",
    ("rstat", "wait"): "waited for the lock",
}
MOST_ROWS, MOST_STALLS, MOST_FRAMES, MOST_THREADS = 3, 5, 6, 10
_NUMBERS = 4 + 4 * 9 + 2
"""Columns that are taken by all but the place and the picture."""


def render(report: LatencyReport, style: Style, columns: int, verbose: bool = False, ascii_only: bool = False) -> str:
    word = report.health.upper()
    first, *rest = wrap(printable(report.summary, 400), f"{word}  ", " " * (len(word) + 2), columns)
    lines = [style(word, _COLOURS[report.health], "bold") + style(first.removeprefix(word), "bold")]
    lines += [style(line, "bold") for line in rest]
    if report.probes:
        lines += ["", *_probes(report, style, columns, verbose, ascii_only)]
    if report.threads:
        lines += ["", *_threads(report, style, columns, verbose)]
    if report.stalls:
        lines += ["", *_stalls(report, style, columns, verbose)]
    lines += ["", *_sources(report, style, columns, verbose)]
    return "\n".join(lines).rstrip() + "\n"


def _probes(report: LatencyReport, style: Style, columns: int, verbose: bool, ascii_only: bool) -> list[str]:
    half = columns < _NUMBERS + 20 + BUCKETS
    picture = 1 + BUCKETS // 2 if half else BUCKETS
    place = max(12, min(40, columns - _NUMBERS - picture))
    head = f"{'':<{place + 4}}{'count':>9}{'p50':>9}{'p99':>9}{'max':>9}  {axis(picture, half)}"
    lines = [style(head.rstrip(), "dim")]
    shown: dict[tuple[str, str], int] = {}
    left = 0
    for probe in report.probes:
        kind = (probe.what, probe.stage)
        shown[kind] = shown.get(kind, 0) + 1
        if not verbose and shown[kind] > MOST_ROWS:
            left += 1
            continue
        if shown[kind] == 1:
            lines.append(f"  {style(probe.what, 'bold')}  {style(_STAGES.get(kind, probe.stage), 'dim')}")
        lines.append(_probe(probe, style, place, half, ascii_only))
    if left:
        lines.append(style(f"  {left:,} more: -v shows them all", "dim"))
    return lines


def _probe(probe: ProbeSeen, style: Style, place: int, half: bool, ascii_only: bool) -> str:
    histogram, marks = probe.histogram, probe.stalls.buckets
    device = f"{probe.device}@{network(probe.netns)}" if probe.device and network(probe.netns) else probe.device
    core = f"core {probe.core}" if probe.core >= 0 else "all others"
    name = " ".join(filter(None, (device, probe.name)))
    room = place - 1 - (len(core) + 1 if name else 0)
    where = f"{printable(name, room)} {core}" if name else core
    cells = strip(halved(histogram.buckets), halved(marks), ascii_only) if half else strip(histogram.buckets, marks, ascii_only)
    worst = f"{duration(probe.max_ns):>9}"
    return (
        f"    {where:<{place}}{histogram.count:>9,}"
        f"{duration(percentile(histogram, 50) * MICROSECOND):>9}{duration(percentile(histogram, 99) * MICROSECOND):>9}"
        + (style(worst, "red") if probe.stalls.count else worst)
        + f"  {cells}"
    )


def _threads(report: LatencyReport, style: Style, columns: int, verbose: bool) -> list[str]:
    lines = [f"  {style('threads', 'bold')}  {style('by name: waits for a core, and their mean', 'dim')}"]
    shown = report.threads if verbose else report.threads[:MOST_THREADS]
    for thread in shown:
        who = printable(f"{thread.name} [{thread.tid}]", columns - 40)
        lines.append(f"    {who:<32} {thread.waits:>9,}{duration(thread.mean_us * MICROSECOND):>9}")
    if len(report.threads) > len(shown):
        lines.append(style(f"  {len(report.threads) - len(shown):,} more: -v shows them all", "dim"))
    return lines


@cache
def network(inode: int) -> str:
    """A network namespace as people know it: nothing for our own, the name it has in /run/netns, else its number."""
    if not inode:
        return ""
    with suppress(OSError):
        if os.stat("/proc/self/ns/net").st_ino == inode:
            return ""
    with suppress(OSError):
        for entry in os.scandir("/run/netns"):
            if entry.stat().st_ino == inode:
                return printable(entry.name, 24)
    return str(inode)


def _stalls(report: LatencyReport, style: Style, columns: int, verbose: bool) -> list[str]:
    worst = sorted(report.stalls, key=lambda stall: -stall.ns)
    many = ", the longest first" if len(worst) > 1 else ""
    lines = [f"  {style('stalls', 'bold')}  {style(f'{report.start[:10]}, UTC{many}', 'dim')}"]
    for stall in worst if verbose else worst[:MOST_STALLS]:
        lines += _stall(report, stall, style, columns)
    if not verbose and len(worst) > MOST_STALLS:
        lines.append(style(f"  {len(worst) - MOST_STALLS:,} more: -v shows them all", "dim"))
    return lines


def _stall(report: LatencyReport, stall: HeldStall, style: Style, columns: int) -> list[str]:
    lasts = "" if stall.over else " and lasts"
    sure = f" ±{milliseconds(stall.error_ns / 2e6)}" if stall.error_ns > 1_000_000 else ""
    where = f"@{network(stall.netns)}" if stall.device and network(stall.netns) else ""
    head = f"{report.wall(stall.start)[11:23]}  {milliseconds(stall.ns / 1e6)}{sure}{lasts}"
    text = f"{waiting(stall)}{where} on core {stall.core} {_WORDS.get(stall.what, 'waited')}"
    first, *rest = wrap(printable(text, 200), f"    {head}  ", "      ", columns)
    lines = [f"    {style(head, 'yellow')}{first.removeprefix(f'    {head}')}", *rest]
    if stall.throttled:
        return [*lines, "      the quota of its cgroup held it back"]
    if stall.who is None:
        return [*lines, "      who held the core is not known"]
    if stall.who == REST:
        idle = "the core was idle, in a softirq, had interrupts off, or did not run at all (a virtual CPU without its core)"
        return [*lines, *wrap(idle, "      ", "        ", columns)]
    policy = f", {stall.policy}" if stall.policy else ""
    cgroup = f", {stall.holder_cgroup}" if stall.holder_cgroup else ""
    did = f" {holder_did(stall)}" if holder_did(stall) else " held the core"
    about = f"{policy}{cgroup}" if stall.who != INTERRUPT else ""
    lines += wrap(printable(f"{stall.who}{about}:{did}", 300), "      ", "        ", columns)
    if stall.stack:
        stack = printable(" < ".join(stall.stack[:MOST_FRAMES]), 400)
        lines += [style(line, "dim") for line in wrap(stack, "      in ", "         ", columns)]
    return lines


_WORDS = {"napi": "was due and not polled", "softirq": "was due and not run", "runqueue": "was runnable and not run"}


def _sources(report: LatencyReport, style: Style, columns: int, verbose: bool) -> list[str]:
    lines = []
    if report.watched:
        lines += wrap(f"watched: {report.watched}", "  ", "    ", columns)
    shares = [probe.share for probe in report.probes if probe.what in ("napi", "softirq", "runqueue")]
    if shares and max(shares) < 0.9:
        text = (
            f"histograms from {max(shares):.0%} of the time, stalls from all of it; --full measures every event, and costs more"
        )
        lines += wrap(text, "  ", "  ", columns)
    elif not shares and any(name == "latency-windows" and state.up for name, state in report.sources):
        lines += wrap("no window of the probes was open in this interval, so there are no histograms", "  ", "  ", columns)
    told: set[Reasons] = set()
    for name, state in report.sources:
        limited = state.find(Weaker) is not None or state.find(Gap) is not None
        if verbose or limited or (not state.up and name in SOURCES):
            why = "as above" if state.reasons and state.reasons in told else state.reason
            told.add(state.reasons)
            lines += wrap(printable(f"source {name} {state.state}{f': {why}' if why else ''}", 400), "  ", "    ", columns)
    return [style(line, "dim") for line in lines]
