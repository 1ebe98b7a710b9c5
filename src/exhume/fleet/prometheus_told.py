"""What Prometheus does not know, or knows under two names: nodes that came, went or were renamed, gaps, clocks apart. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np

from exhume.fleet.prometheus_nodes import GAP_STEPS, Seen, Window, gaps, longer
from exhume.host.quantities import SECOND, counted, duration
from exhume.text import printable

# What only one machine has: a node that comes back under another name is known by it.
IDENTITIES = ("provider-id", "system-uuid", "product_uuid", "boot-id")
# Without such a thing: booted in the same second, and seen under the new name within an hour of the old one's end.
_SAME_S, _SOON_S = 1.0, 3600.0
_SKEWED_S = 60.0
_MOST_NAMED = 5


def renamed(found: Mapping[str, Seen], window: Window) -> tuple[dict[str, Seen], list[str]]:
    """One node out of two names that were never seen at once; the later name stays."""
    left = dict(found)
    said = []
    spans = {name: span for name, seen in found.items() if (span := _span(seen)) is not None}
    gone = sorted(
        (name for name, span in spans.items() if span[1] < window.end_s - GAP_STEPS * window.step_s),
        key=lambda each: spans[each],
    )
    come = sorted(name for name, span in spans.items() if span[0] > window.start_s + GAP_STEPS * window.step_s)
    for old in gone:
        # A value is given for five minutes after it was last seen (--query.lookback-delta): by a step the two may overlap.
        later = [new for new in come if new != old and new in left and spans[new][0] > spans[old][1] - window.step_s]
        same = [new for new in later if _identical(left[old], left[new])]
        if not same:
            same = [
                new
                for new in later
                if spans[new][0] - spans[old][1] <= max(_SOON_S, GAP_STEPS * window.step_s) and _one_boot(left[old], left[new])
            ]
        if len(same) == 1:
            new = same[0]
            left[new] = _joined(left.pop(old), left[new])
            spans[new] = spans[old][0], spans[new][1]
            said.append(f"{printable(old, 60)} is {printable(new, 60)} now")
    return left, [f"renamed, and taken for one node: {_listed(said)}"] if said else []


def _span(seen: Seen) -> tuple[float, float] | None:
    times = [each.times for each in seen.gauges.values()]
    return (min(float(each[0]) for each in times), max(float(each[-1]) for each in times)) if times else None


def _identical(one: Seen, other: Seen) -> bool:
    return any(key in one.facts and one.facts[key] == other.facts.get(key) for key in IDENTITIES)


def _one_boot(one: Seen, other: Seen) -> bool:
    if any(key in one.facts and key in other.facts for key in IDENTITIES):
        return False  # both are known, and are two
    first, second = one.gauges.get("booted"), other.gauges.get("booted")
    return first is not None and second is not None and abs(float(first.values[-1]) - float(second.values[0])) <= _SAME_S


def _joined(old: Seen, new: Seen) -> Seen:
    gauges = dict(old.gauges)
    for what, series in new.gauges.items():
        gauges[what] = longer(gauges[what], series) if what in gauges else series
    sums = {what: old.sums.get(what, 0.0) + new.sums.get(what, 0.0) for what in {**old.sums, **new.sums}}
    return Seen(gauges, sums, {**old.said, **new.said}, {**old.facts, **new.facts})


def told(found: Mapping[str, Seen], window: Window) -> list[str]:
    spans = {name: span for name, seen in found.items() if (span := _span(seen)) is not None}
    edge = GAP_STEPS * window.step_s
    said = []
    vanished = [name for name, span in spans.items() if span[1] < window.end_s - edge]
    came = [name for name, span in spans.items() if span[0] > window.start_s + edge]
    if vanished:
        said.append(f"{_nodes(vanished)} not seen any more at the end of the window: as they were last")
    if came and len(came) < len(spans):
        said.append(f"{_nodes(came)} not seen at its begin")
    holes = {name: hole for name, seen in found.items() if (hole := _hole(seen, window)) > 0}
    if holes:
        worst = max(holes.values())
        said.append(f"{_nodes(list(holes))} with gaps in what is known, the longest of {duration(worst * SECOND)}")
    skewed = {
        name: skew
        for name, seen in found.items()
        if "skew" in seen.gauges and abs(skew := float(np.median(seen.gauges["skew"].values))) > _SKEWED_S
    }
    if skewed:
        worst = max(skewed.values(), key=abs)
        said.append(f"{_nodes(list(skewed))} with a clock that is off, by {duration(worst * SECOND)} at worst: put right")
    plain = [name for name, seen in found.items() if "dying" not in seen.gauges and "total" in seen.gauges]
    if plain:
        said.append(
            f"{_nodes(plain)} without the agent: zombies are not told from live cgroups that the kubelet does not watch, "
            f"and late polls and resets are not seen"
        )
    blind = [name for name, seen in found.items() if not {"dying", "total"} & set(seen.gauges)]
    if blind:
        said.append(f"{_nodes(blind)} of which nobody counts memory cgroups (node_exporter: --collector.cgroups)")
    return said


def _hole(seen: Seen, window: Window) -> float:
    series = seen.gauges.get("dying") or seen.gauges.get("total")
    return gaps(series.times, window.step_s) if series is not None else 0.0


def _nodes(names: Sequence[str]) -> str:
    shown = _listed([printable(name, 60) for name in sorted(names)])
    return f"{counted(len(names), 'node')} ({shown})"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
