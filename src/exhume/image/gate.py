"""The image gate on a running node: whether what an image starts may be left alone for a node's life.

A judgement over a recording of minutes (recorder/soak.py): how many memory cgroups there are, whether they grow, what loops,
and whose the zombies are. What was not shown is never called a pass.
"""

from collections.abc import Sequence

from exhume.diagnosis.findings import crash_loop, memcg_leak
from exhume.diagnosis.findings.churn import churned, within
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.leak_places import LeakPlace, zombie_counts
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import of
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.zombies import Group, zombie_report
from exhume.image import gate_growth
from exhume.image.gate_growth import Grown
from exhume.image.gate_model import Blamed, Check, Gate, Options
from exhume.recording.recording import Recording
from exhume.recording.source_state import Absent
from exhume.text import printable

COUNT, LOOPS, SOURCES = "memory-cgroups", "crash-loops", "zombie-sources"
# From this probability on the zombies of one place are held against their owner
# (diagnosis/findings/leak_probability.py).
PROBABLE = 0.5
# Of the soak, what something must have looped for to fail it: a dozen groups at once have a rhythm, too, while it lasts. Not so
# what systemd has started again: it may have given up soon.
BRIEF = 0.1
_MOST_BLAMED = 20


def judge_node(
    recording: Recording, thresholds: Thresholds, options: Options, more: Sequence[Check] = (), early: bool = False
) -> Gate:
    """`more` are checks of what the node will start, by its files."""
    total = _there(recording, options)
    count = total if isinstance(total, int) else None
    grown = gate_growth.growth(recording, options)
    places = gate_growth.leaking(recording, options, gate_growth.room(count, options))
    checks = (
        _count(total, recording, options),
        gate_growth.check(grown, count, options, places),
        _loops(recording, thresholds, options),
        _sources(recording, thresholds, options, places),
        *more,
    )
    start, end = recording.window
    bound = grown.bound if isinstance(grown, Grown) else None
    return Gate(recording.node.hostname, checks, options, (end - start) / 1e9, early, bound)


def _there(recording: Recording, options: Options) -> int | str:
    """Memory cgroups that are there at the end, live and dying; below a directory, its zombies. Or why that is not known."""
    if options.under != "/":
        if not _walked(recording):
            return recording.why_off("zombies")
        return sum(group.zombies for group in _groups(recording, Thresholds(), options))
    rows = [row for row in recording["memcg"].rows() if row["path"] == "/"]
    if not rows:
        return recording.why_off("memcg")
    last = max(rows, key=lambda row: row["time"])
    total = int(last["total"] if last["dying"] < 0 or last["scope"] != "node" else last["live"] + last["dying"])
    return total if total >= 0 else recording.why_off("memcg")


def _count(total: int | str, recording: Recording, options: Options) -> Check:
    if isinstance(total, str):
        return Check(COUNT, "unknown", f"memory cgroups cannot be counted: {total}", limit=options.limit)
    if options.under != "/":
        what = f"{total:,} zombie memory cgroups below {printable(options.under)}"
    else:
        what = f"{total:,} memory cgroups"
        rows = [row for row in recording["memcg"].rows() if row["path"] == "/" and row["dying"] >= 0]
        if rows:
            last = max(rows, key=lambda row: row["time"])
            what += f", {last['dying']:,} of them zombies"
    advice = "The kernel walks every memory cgroup, zombies too. Name them with exhume zombies."
    if total > options.limit:
        return Check(COUNT, "failed", f"{what}: more than {options.limit:,}", total, options.limit, help=advice)
    return Check(COUNT, "passed", f"{what}; {options.limit:,} may be", total, options.limit, help=advice)


def _loops(recording: Recording, thresholds: Thresholds, options: Options) -> Check:
    examined = crash_loop.detect(recording, thresholds)
    advice = "Something is started again and again, and fails. Take it out of the image, or give it what it needs to run."
    if examined.unseen:
        return Check(LOOPS, "unknown", f"crash loops cannot be seen: {examined.unseen}", limit=0)
    start, end = recording.window
    by_severity: dict[bool, list[Blamed]] = {True: [], False: []}
    for loop in of(examined.findings, CrashLoop):
        if options.under != "/" and not within(options.under, loop.facts.cgroup):
            continue
        counted = loop.facts.ways[0] == "systemd" and loop.facts.restarts_in_window > 0
        lasted = counted or loop.end - loop.start >= BRIEF * (end - start)
        by_severity[loop.serious and lasted].append(Blamed(loop.subject, loop.summary))
    if bad := by_severity[True]:
        return Check(LOOPS, "failed", _said(bad, "crash loop"), len(bad), 0, tuple(bad), advice)
    if odd := by_severity[False]:
        # A rhythm without bad ends, or too few restarts to call it a loop: not shown to be wrong.
        return Check(LOOPS, "warning", f"no crash loop is certain, but {odd[0].message}", 0, 0, tuple(odd), advice)
    said = examined.ruled_out or "none of the loops is there"
    unseen = {}
    if not recording.on("cgroup-events"):
        unseen["cgroup-events"] = "loops inside a unit only cgroup events would show"
    if not recording.on("units"):
        unseen["units"] = "systemd was not asked"
    if unseen:
        said += f" ({'; '.join(f'{what}: {recording.why_off(source)}' for source, what in unseen.items())})"
    hidden = any(not _absent(recording, source) for source in unseen)
    return Check(LOOPS, "warning" if hidden else "passed", said, 0, 0, help=advice)


def _absent(recording: Recording, source: str) -> bool:
    """Whether the source is off because the node has nothing of the kind, which hides no loop."""
    state = recording.source(source)
    return state is not None and state.find(Absent) is not None


def _sources(recording: Recording, thresholds: Thresholds, options: Options, places: list[tuple[LeakPlace, Grown]]) -> Check:
    found = {blamed.subject: blamed for blamed in (gate_growth.blamed(*place, options) for place in places)}
    for leak in of(memcg_leak.detect(recording, thresholds).findings, MemcgLeak):
        if leak.serious and within(options.under, leak.facts.path or leak.subject):
            found.setdefault(leak.subject, Blamed(leak.subject, leak.summary))
    groups = _groups(recording, thresholds, options)
    for group in groups:
        subject = group.unit or group.pod or group.path
        # What came while we looked was judged with its rhythm above: a step is no leak, so that here the number counts.
        if group.zombies >= thresholds.zombies_baseline and group.leak_probability >= PROBABLE and subject != "/*":
            said = f"{group.zombies:,} zombies are {printable(subject)}'s: {group.because}"
            found.setdefault(subject, Blamed(subject, said))
    advice = "Zombies with a known source are a leak that can be stopped where it begins: take the source out of the image."
    bad = tuple(found.values())[:_MOST_BLAMED]
    if bad:
        return Check(SOURCES, "failed", _said(bad, "source of zombies", "sources of zombies"), len(bad), 0, bad, advice)
    zombies = sum(group.zombies for group in groups)
    if not _walked(recording):
        counts = zombie_counts(recording)
        if not counts or counts[-1][1] >= thresholds.zombies_baseline:
            return Check(SOURCES, "unknown", f"whose the zombies are cannot be seen: {recording.why_off('zombies')}", limit=0)
        zombies = counts[-1][1]  # too few, all together, for any place to be suspected
    said = f"{zombies:,} zombies, and no place has enough of them to be their source" if zombies else "no zombies"
    if lost := churned(recording).lost:
        said += f"; {lost:,} cgroup events were lost"
    return Check(SOURCES, "passed", said, 0, 0, help=advice)


def _walked(recording: Recording) -> bool:
    """Whether they could be named, or there was none to name."""
    methods = set(recording["memcg_walk"].texts("method"))
    return recording.counter("memcg_walk_longest_ns") is not None or bool(methods - {"count"})


def _groups(recording: Recording, thresholds: Thresholds, options: Options) -> list[Group]:
    groups = zombie_report(recording, thresholds).groups
    return [one for one in groups if within(options.under, one.home) or within(options.under, one.path)]


def _said(bad: Sequence[Blamed], one: str, many: str = "") -> str:
    if len(bad) == 1:
        return bad[0].message
    names = ", ".join(printable(blamed.subject) for blamed in bad[:5])
    return f"{len(bad)} {many or one + 's'}: {names}" + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
