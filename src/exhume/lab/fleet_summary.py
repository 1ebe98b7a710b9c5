"""A made fleet as the analysis sees it, without the minutes: what they would come to, worked out. Quick, for many fleets."""

from dataclasses import dataclass

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.fleet.model import Boot, Fact, Fleet, Node
from exhume.lab.fleet_facts import DAY_MINUTES, Made

LIVE = 240
# Zombies from which their walks are long enough to starve a core: the incident's, after eight days.
STARVING = 8 * 8640


@dataclass(frozen=True, slots=True)
class Life:
    """A boot of a node within the window, in minutes of its uptime."""

    begin: int
    end: int


def lives(boots: list[int], minutes: int) -> list[Life]:
    ends = [*boots[1:], minutes]
    return [Life(max(0, boot) - boot, end - boot) for boot, end in zip(boots, ends, strict=True)]


def facts_of(made: Made, index: int) -> dict[str, Fact]:
    return {name: column[index] for name, column in made.facts.items() if column[index] is not None}


def as_fleet(made: Made, by_zombies: bool = True) -> Fleet:
    """`by_zombies` is how the loader judges; without, only stalls and resets are known, as of a source that counts no cgroups:
    nodes are sick from their eighth day on, and until then look healthy."""
    nodes, boots = [], []
    minutes = made.settings.days * DAY_MINUTES
    limits = Thresholds()
    for index, name in enumerate(made.names):
        leak = float(made.leak_per_day[index])
        lived = lives(made.boots[index], minutes)
        exposed = max(life.end for life in lived)
        most = exposed / DAY_MINUTES * leak
        starved = bool(made.starved[index]) or most >= STARVING
        leaked = limits.many_zombies(most, LIVE)
        now = lived[-1].end
        nodes.append(
            Node(
                name,
                facts_of(made, index),
                sick=starved or (by_zombies and leaked),
                uptime_s=now * 60.0,
                exposed_s=exposed * 60.0,
                zombies=now / DAY_MINUTES * leak if by_zombies else None,
                leak_per_day=leak if by_zombies else None,
            )
        )
        if by_zombies:
            boots += [
                Boot(name, life.begin * 60.0, life.end * 60.0, life.begin / DAY_MINUTES * leak, life.end / DAY_MINUTES * leak)
                for life in lived
            ]
    return Fleet("a made fleet", tuple(nodes), boots=tuple(boots))
