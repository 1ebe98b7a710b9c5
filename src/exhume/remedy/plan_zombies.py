"""Zombies in a plan: which can be freed in place, which stay, and whether only a reboot would help."""

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from exhume.errors import ExhumeError
from exhume.host.quantities import size
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Relief, Step
from exhume.remedy.steps.purge import purge
from exhume.remedy.steps.reboot import reboot, reboot_by_sentinel
from exhume.text import printable

Reboot = Literal["no", "sentinel", "now"]
REBOOTS: tuple[Reboot, ...] = ("no", "sentinel", "now")
MOST_HOMES = 8
"""Each place is looked at by a walk of its own, which takes a moment where there are tens of thousands."""


@dataclass(frozen=True, slots=True)
class Zombies:
    """As counted when the plan was made."""

    going: int = 0
    most_lost_bytes: int = 0
    """The most that live groups lose or have to read again when those go."""
    asking: int = 0
    """These go only if the loss of page cache is accepted, which a plan never does by itself."""
    staying: int = 0
    why: tuple[str, ...] = ()
    """Of those that stay: what holds them, and what frees them."""
    unseen: str = ""
    """Why they could not be looked at."""


@dataclass(frozen=True, slots=True)
class Afterwards:
    """What follows for a plan."""

    steps: tuple[Step, ...] = ()
    relief: tuple[Relief, ...] = ()
    settled: tuple[str, ...] = ()


def look(node: Node, homes: Iterable[str]) -> dict[str, Zombies]:
    """What is there now below each of these. On another machine's root there is nothing to see, and nothing to purge."""
    return {home: _look(node, home) for home in topmost(homes)}


def topmost(homes: Iterable[str]) -> tuple[str, ...]:
    """Each once, and none that is inside another; where they are too many to walk one by one, all of the node."""
    every = dict.fromkeys(homes)
    tops = tuple(one for one in every if not any(one.startswith(f"{other.rstrip('/')}/") for other in every if other != one))
    return tops if 0 < len(tops) <= MOST_HOMES else ("/",)


def _look(node: Node, under: str) -> Zombies:
    if not node.root.same_kernel():
        return Zombies(unseen="it is not the running node")
    if os.geteuid() != 0:
        return Zombies(unseen="zombies are counted and purged by root only")
    from exhume.remedy.purging import Purging  # numpy and BPF: not for a plan that needs neither

    try:
        with Purging(node.root, under) as purging:
            made = purging.plan
            going = made.allowed()
            why = tuple(f"{one.zombies:,} in {printable(one.home, 60)}, {one.holder.label}: {one.frees}" for one in made.left)
            return Zombies(
                going=sum(part.zombies for part in going),
                most_lost_bytes=sum(part.most_lost_bytes for part in going),
                asking=made.zombies - sum(part.zombies for part in going),
                staying=sum(one.zombies for one in made.left),
                why=why,
            )
    except (ExhumeError, OSError) as error:
        return Zombies(unseen=str(error))


def afterwards(looked: Mapping[str, Zombies], how: Reboot, most: int) -> Afterwards:
    """A purge before anybody talks of a reboot; a reboot only where enough stay to matter, and where it was asked for."""
    made: list[Step] = []
    settled: list[str] = []
    blind = dict.fromkeys(one.unseen for one in looked.values() if one.unseen)
    relief = [Relief("zombies", f"they could not be looked at: {why}", "exhume zombies purge --dry-run") for why in blind]
    seen = {home: one for home, one in looked.items() if not one.unseen}
    for home, one in seen.items():
        where = "on the whole node" if home == "/" else f"below {printable(home, 80)}"
        if one.going:
            cost = f"; live groups lose or read again at most {size(one.most_lost_bytes)}" if one.most_lost_bytes else ""
            made.append(purge(home, f"{one.going:,} zombies {where} can be freed without a reboot{cost}", one.most_lost_bytes))
        if 0 < one.asking < most:
            settled.append(f"{one.asking:,} zombies {where} hold page cache that live groups use, fewer than matter ({most:,})")
        elif one.asking:
            relief.append(
                Relief(
                    "zombies",
                    f"{one.asking:,} zombies {where} are freed only at the cost of page cache that live groups use",
                    f"exhume zombies purge --dry-run --under {shlex.quote(home)}    # the cost; --accept-cache-loss accepts it",
                )
            )
        if one.going or one.asking:
            continue
        if not one.staying:
            settled.append(f"no zombie memory cgroup is left {where}")
        elif one.staying < most:
            settled.append(f"{one.staying:,} zombies {where} stay, fewer than matter ({most:,}); no purge frees them")
    staying = sum(one.staying for one in seen.values())
    if staying and staying >= most:
        why = f"{staying:,} zombies stay that no purge frees"
        if how == "now":
            made.append(reboot(why))
        elif how == "sentinel":
            made.append(reboot_by_sentinel(f"{why}; kured and the like reboot the node when they see this file"))
        else:
            ways = [way for one in seen.values() for way in one.why]
            relief.append(Relief("zombies", why, "; ".join((*ways, "or a reboot: --reboot sentinel, --reboot now"))))
    return Afterwards(tuple(made), tuple(relief), tuple(settled))
