"""From series to nodes: what was seen of each, when it came and went, when it was booted, how fast it leaks. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.fleet.model import Boot, Fact, Node
from exhume.fleet.prometheus_names import NAMING, Names
from exhume.fleet.prometheus_reply import Floats, Series
from exhume.fleet.sick import Figures, sick
from exhume.fleet.statistics import slope
from exhume.host.quantities import DAY_S

# Steps without a value that are a gap, and from which a node has come or gone.
GAP_STEPS = 3
# Boot times that are nearer than this are one boot: the kernel's wall clock moves (btime in fs/proc/stat.c is worked out anew).
SAME_BOOT_S = 120.0
# Points that a slope is taken from: 1,128 pairs.
_POINTS = 48
_FEWEST = 4
# Labels that say how a series was got and not what the node is.
_TECHNICAL = {*NAMING, "__name__", "job", "exported_job", "endpoint", "service", "pod", "container", "namespace", "prometheus"}
_TECHNICAL |= {
    "exported_instance",
    "domainname",
    "sysname",
    "version_id",
    "id",
    "build_id",
    "uid",
    "prometheus_replica",
    "replica",
}


@dataclass(slots=True)
class Seen:
    """Of one node, gathered name by name."""

    gauges: dict[str, Series] = field(default_factory=dict)
    sums: dict[str, float] = field(default_factory=dict)
    said: dict[str, tuple[float, str, str]] = field(default_factory=dict)
    """The last health and the last verdict: when, and what."""
    facts: dict[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Window:
    start_s: float
    end_s: float
    step_s: float


def gather(names: Names, gauges: Mapping[str, Sequence[Series]], sums: Mapping[str, Sequence[Series]]) -> dict[str, Seen]:
    """`sums` are counters, of which only the growth matters."""
    found: dict[str, Seen] = {}
    for what, every in gauges.items():
        for series in every:
            if name := names.of(series.labels):
                seen = found.setdefault(name, Seen())
                before = seen.gauges.get(what)
                seen.gauges[what] = series if before is None else longer(before, series)
    for what, every in sums.items():
        for series in every:
            if name := names.of(series.labels):
                seen = found.setdefault(name, Seen())
                seen.sums[what] = seen.sums.get(what, 0.0) + growth(series.values)
    return found


def growth(values: Floats) -> float:
    """Of a counter; one that falls began anew at 0. Unlike increase() of Prometheus it loses nothing between two steps, and has
    what a series brought along that was not there before, so that a single reset of a device counts as one."""
    grown = np.diff(values)
    return float(np.where(grown >= 0, grown, values[1:]).sum())


def longer(one: Series, other: Series) -> Series:
    """Two series of one node (two exporters, an address that changed): the later goes on where the earlier ends."""
    first, second = sorted((one, other), key=lambda each: float(each.times[-1]))
    after = second.times > first.times[-1]
    if float(second.times[0]) <= float(first.times[0]):
        return second
    earlier = first.times < second.times[0]
    if not after.any():
        return second
    return Series(
        second.labels,
        np.concatenate([first.times[earlier], second.times]),
        np.concatenate([first.values[earlier], second.values]),
    )


def say(found: dict[str, Seen], names: Names, what: str, every: Iterable[Series], keys: tuple[str, str]) -> None:
    """Labels that are the message: the one seen last counts."""
    for series in every:
        name, at = names.of(series.labels), float(series.times[-1])
        if name and (name not in found or at >= found[name].said.get(what, (0.0, "", ""))[0]):
            first, second = (series.labels.get(key, "") for key in keys)
            found.setdefault(name, Seen()).said[what] = at, first, second


def add_facts(found: dict[str, Seen], names: Names, every: Iterable[Series], renamed: Mapping[str, str]) -> None:
    """Labels as facts, under the names that the inventory of a cluster would have for them."""
    for series in every:
        name = names.of(series.labels)
        if name not in found:
            continue
        for label, value in series.labels.items():
            if value and label not in _TECHNICAL and (key := renamed.get(label, label)):
                found[name].facts.setdefault(key, value)


def nodes(
    found: Mapping[str, Seen], window: Window, thresholds: Thresholds | None = None
) -> tuple[tuple[Node, ...], tuple[Boot, ...]]:
    made, boots = [], []
    for name, seen in sorted(found.items()):
        node, lived = _node(name, seen, window, thresholds)
        made.append(node)
        boots += lived
    return tuple(made), tuple(boots)


def _node(name: str, seen: Seen, window: Window, thresholds: Thresholds | None) -> tuple[Node, list[Boot]]:
    zombies, live = _zombies(seen)
    last_s = max((float(each.times[-1]) for each in seen.gauges.values()), default=window.end_s)
    skew = seen.gauges.get("skew")
    boots = _boots(seen.gauges.get("booted"), float(np.median(skew.values)) if skew is not None else 0.0)
    leak = _leak(zombies, boots[-1] if boots else None)
    present = [len(each.times) for what, each in seen.gauges.items() if what != "watched"]
    health = seen.said.get("health", (0.0, "", ""))
    verdict = seen.said.get("verdict", (0.0, "", ""))
    # A verdict is absent while nothing hurts the node: an old one is history, and the figures speak for that.
    fresh = last_s - verdict[0] <= GAP_STEPS * window.step_s
    figures = Figures(
        health=health[1] if last_s - health[0] <= GAP_STEPS * window.step_s else "",
        cause=verdict[1] if fresh else "",
        subject=verdict[2] if fresh else "",
        live=live,
        zombies=float(zombies.values[-1]) if zombies is not None else None,
        leak_per_day=leak,
        resets=seen.sums.get("resets"),
        stall_s=seen.sums.get("stall_s"),
        saturated_s=seen.sums.get("saturated_s"),
        seen_s=max(present, default=0) * window.step_s,
    )
    judged = sick(figures, thresholds)
    uptime = max(0.0, last_s - boots[-1]) if boots else None
    lived = _lived(name, zombies, boots, last_s)
    longest = max([boot.uptime_s for boot in lived] + [uptime or 0.0])
    node = Node(
        name,
        dict(seen.facts),
        judged.sick,
        judged.badness,
        judged.why,
        uptime,
        longest if uptime is not None and longest > uptime else None,
        figures.zombies,
        leak,
        round(figures.resets or 0.0),
    )
    return node, lived


def _zombies(seen: Seen) -> tuple[Series | None, float | None]:
    """As the agent counts them; without it all memory cgroups that the kernel knows, less those that the kubelet watches."""
    if (dying := seen.gauges.get("dying")) is not None:
        live = seen.gauges.get("live")
        return dying, float(live.values[-1]) if live is not None else None
    total, watched = seen.gauges.get("total"), seen.gauges.get("watched")
    if total is None:
        return None, None
    if watched is None:
        return total, None
    known = np.interp(total.times, watched.times, watched.values)
    return replace(total, values=np.clip(total.values - known, 0, None)), float(watched.values[-1])


def _boots(series: Series | None, skew_s: float) -> list[float]:
    """When it was booted, by the clock of the server, each boot once."""
    found: list[float] = []
    for value in (series.values - skew_s).tolist() if series is not None else []:
        if not found or abs(value - found[-1]) > SAME_BOOT_S:
            found.append(value)
    return found


def _leak(zombies: Series | None, booted_s: float | None) -> float | None:
    """Zombies a day since the last boot."""
    if zombies is None:
        return None
    since = zombies.times >= (booted_s or 0.0)
    # Without a boot time a fall to a tenth is one: nothing else lets go of so many at once.
    falls = np.flatnonzero((zombies.values[1:] < 0.1 * zombies.values[:-1]) & (zombies.values[:-1] > 100))
    if booted_s is None and len(falls):
        since[: falls[-1] + 1] = False
    times, values = zombies.times[since], zombies.values[since]
    if len(times) < _FEWEST:
        return None
    chosen = np.unique(np.linspace(0, len(times) - 1, _POINTS).astype(np.int64))
    line = slope((times[chosen] - times[0]) / DAY_S, values[chosen])
    return line.value if line is not None else None


def _lived(name: str, zombies: Series | None, boots: Sequence[float], last_s: float) -> list[Boot]:
    if zombies is None or not boots:
        return []
    found = []
    for booted, until in zip(boots, [*boots[1:], last_s + 1], strict=True):
        during = (zombies.times >= booted) & (zombies.times < until)
        if during.any():
            times, values = zombies.times[during], zombies.values[during]
            found.append(Boot(name, float(times[0]) - booted, float(times[-1]) - booted, float(values[0]), float(values[-1])))
    return found


def gaps(times: Floats, step_s: float) -> float:
    """The longest time within which there is no value, where it is a gap at all."""
    apart = float(np.diff(times).max()) if len(times) > 1 else 0.0
    return apart if apart > GAP_STEPS * step_s else 0.0
