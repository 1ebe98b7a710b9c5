"""Zombies in a plan: what can be let go in place, what stays, and whether only a reboot would help."""

import os
from dataclasses import dataclass
from typing import Literal

from exhume.errors import ExhumeError
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Relief, Step
from exhume.remedy.steps.purge import purge
from exhume.remedy.steps.reboot import reboot, reboot_by_sentinel
from exhume.text import printable

Reboot = Literal["no", "sentinel", "now"]
REBOOTS: tuple[Reboot, ...] = ("no", "sentinel", "now")


@dataclass(frozen=True, slots=True)
class Zombies:
    """As counted when the plan was made."""

    going: int = 0
    staying: int = 0
    why: tuple[str, ...] = ()
    """Of those that stay: what holds them and the way that would work."""
    unseen: str = ""
    """Why nobody could look."""


def look(node: Node, under: str = "/") -> Zombies:
    """One walk. On another machine's root there is nothing to see, and nothing to purge."""
    if not node.root.same_kernel():
        return Zombies(unseen="it is not the running node")
    if os.geteuid() != 0:
        return Zombies(unseen="zombies are counted and purged by root only")
    from exhume.remedy.purging import Purging  # numpy and BPF: not for a plan that needs neither

    try:
        with Purging(node.root, under) as purging:
            left = purging.plan.left
            why = tuple(f"{one.zombies:,} in {printable(one.home, 60)}, {one.why}: {one.way}" for one in left)
            return Zombies(purging.plan.zombies, sum(one.zombies for one in left), why)
    except (ExhumeError, OSError) as error:
        return Zombies(unseen=str(error))


def steps(zombies: Zombies, homes: tuple[str, ...], how: Reboot, most: int) -> tuple[list[Step], list[Relief]]:
    """A purge before anybody talks of a reboot; a reboot only where enough stay to matter, and where it was asked for."""
    made: list[Step] = []
    relief: list[Relief] = []
    if zombies.unseen:
        relief.append(Relief("zombies", f"they could not be looked at: {zombies.unseen}", "exhume zombies purge --dry-run"))
    elif zombies.going:
        for home in homes:
            why = f"{zombies.going:,} zombies can go without a reboot"
            made.append(purge(home, why if len(homes) == 1 else f"those below it; on the whole node {why}"))
    if zombies.staying and zombies.staying >= most:
        why = f"{zombies.staying:,} zombies are held by what a purge does not reach"
        if how == "now":
            made.append(reboot(why))
        elif how == "sentinel":
            made.append(reboot_by_sentinel(f"{why}; kured and the like reboot the node when they see this file"))
        else:
            text = "; ".join((*zombies.why, "or a reboot: --reboot sentinel, --reboot now"))
            relief.append(Relief("zombies", why, text))
    return made, relief
