"""A latency report as people read it: the verdict, the histograms as pictures, the worst cases with who caused them."""

from exhume.cli.terminal import Style, wrap
from exhume.node.latency.histogram import BUCKETS, percentile
from exhume.pictures.histogram_text import axis, strip
from exhume.text import printable
from exhume.verdict.latency import LatencyReport, ProbeSeen, StallSeen

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
MOST_ROWS, MOST_STALLS, MOST_FRAMES = 3, 5, 6


def render(report: LatencyReport, style: Style, columns: int, verbose: bool = False) -> str:
    word = report.health.upper()
    first, *rest = wrap(printable(report.summary, 400), "", " " * (len(word) + 2), columns - len(word) - 2)
    lines = [style(word, _COLOURS[report.health], "bold") + "  " + style(first, "bold")]
    lines += [style(line, "bold") for line in rest]
    if report.probes:
        lines += ["", *_probes(report, style, verbose)]
    if report.stalls:
        lines += ["", *_stalls(report, style, columns, verbose)]
    lines += ["", *_sources(report, style, columns, verbose)]
    return "\n".join(lines).rstrip() + "\n"


def _probes(report: LatencyReport, style: Style, verbose: bool) -> list[str]:
    lines = [style(f"  {'':<10}{'':<28}{'':>9}{'p50':>9}{'p99':>9}{'max':>9}   {axis(BUCKETS)}", "dim").rstrip()]
    shown: dict[tuple[str, str], int] = {}
    left = 0
    before = ""
    for probe in report.probes:
        kind = (probe.what, probe.stage)
        shown[kind] = shown.get(kind, 0) + 1
        if not verbose and shown[kind] > MOST_ROWS:
            left += 1
            continue
        lines += _probe(probe, style, probe.what != before, shown[kind] == 1)
        before = probe.what
    if left:
        lines.append(style(f"  {left:,} more: -v shows them all", "dim"))
    return lines


def _probe(probe: ProbeSeen, style: Style, first: bool, first_of_stage: bool) -> list[str]:
    histogram = probe.histogram
    lines = []
    if first_of_stage:
        stage = _STAGES.get((probe.what, probe.stage), probe.stage)
        what = f"{probe.what if first else '':<10}"
        lines.append(f"  {style(what, 'bold')}{style(stage, 'dim')}")
    where = " ".join(filter(None, (probe.device, probe.name, f"core {probe.core}" if probe.core >= 0 else "all others")))
    picture = strip(histogram.buckets, probe.stalls.buckets)
    worst = duration(probe.max_ns / 1000)
    late = probe.stalls.count > 0
    lines.append(
        f"  {'':<10}{printable(where, 27):<28}{histogram.count:>9,}"
        f"{duration(percentile(histogram, 50)):>9}{duration(percentile(histogram, 99)):>9}"
        + (style(f"{worst:>9}", "red") if late else f"{worst:>9}")
        + f"   {picture}"
    )
    return lines


def _stalls(report: LatencyReport, style: Style, columns: int, verbose: bool) -> list[str]:
    worst = sorted(report.stalls, key=lambda stall: -stall.us)
    lines = []
    for stall in worst if verbose else worst[:MOST_STALLS]:
        lines += _stall(report, stall, style, columns)
    if not verbose and len(worst) > MOST_STALLS:
        lines.append(style(f"  {len(worst) - MOST_STALLS:,} more: -v shows them all", "dim"))
    return lines


def _stall(report: LatencyReport, stall: StallSeen, style: Style, columns: int) -> list[str]:
    lasts = " and lasts" if stall.ongoing else ""
    sure = f" ±{duration(stall.error_us / 2)}" if stall.error_us > 1000 else ""
    head = f"  {report.wall(stall.at)[11:23]}  {duration(stall.us)}{sure}{lasts}"
    lines = [style(head, "yellow") + f"  {printable(stall.whom)} on core {stall.core} {_WORDS.get(stall.what, 'waited')}"]
    offender = stall.offender
    if offender is None:
        return [*lines, "    who held the core is not known"]
    if not offender.pid:
        return [*lines, "    the core was idle, or did not run at all (a virtual CPU without its core)"]
    where = f", {offender.cgroup}" if offender.cgroup else ""
    text = f"held by {offender.comm} [{offender.pid}]{where}"
    lines += wrap(printable(text, 300), "    ", "      ", columns)
    if offender.stack:
        lines += [style(line, "dim") for line in wrap(" < ".join(offender.stack[:MOST_FRAMES]), "    in ", "       ", columns)]
    elif offender.samples:
        lines.append(style("    in user space", "dim"))
    return lines


_WORDS = {"napi": "was due and not polled", "softirq": "was due and not run", "runqueue": "was runnable and not run"}


def _sources(report: LatencyReport, style: Style, columns: int, verbose: bool) -> list[str]:
    on = [name for name, state, _ in report.sources if state == "on"]
    lines = []
    for name, state, reason in report.sources:
        if verbose or (state == "off" and name.startswith("latency")) or reason.startswith("weaker"):
            lines += wrap(printable(f"{name} {state}{f': {reason}' if reason else ''}", 400), "  ", "    ", columns)
    share = max((probe.share for probe in report.probes if probe.what in ("napi", "softirq", "runqueue")), default=1.0)
    if share < 1:
        text = f"histograms from {share:.0%} of the time, stalls from all of it; --full measures every event, and costs more"
        lines += wrap(text, "  ", "  ", columns)
    return [style(line, "dim") for line in lines] if lines or not on else []


def duration(us: float) -> str:
    """With two or three digits that matter."""
    if us < 1:
        return "<1 us" if us > 0 else "0"
    for limit, unit in ((1000, "us"), (1_000_000, "ms"), (60_000_000, "s")):
        if us < limit:
            value = us * 1000 / limit if limit < 60_000_000 else us / 1_000_000
            return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"
    return f"{us / 60_000_000:.1f} min"
