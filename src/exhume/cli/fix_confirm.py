"""What has to be agreed to before anything is changed: what can be undone at once, what cannot apart from it."""

import sys
from typing import TYPE_CHECKING

from exhume.errors import Refused

if TYPE_CHECKING:
    from exhume.remedy.carry_out import Consent
    from exhume.remedy.plan_model import Plan


def confirm(plan: "Plan", yes: bool, irreversible: bool) -> "Consent":
    """Asked on a terminal, refused where there is none."""
    from exhume.remedy.carry_out import Consent
    from exhume.remedy.steps import reversible

    final = [step for step in plan.steps if not reversible(step)]
    if not yes and not agreed("Carry it out?"):
        raise Refused("nothing was changed: say --yes to carry it out")
    if final and not irreversible and not yes:
        many = "One step" if len(final) == 1 else f"{len(final)} steps"
        irreversible = agreed(f"{many} cannot be undone ({', '.join(dict.fromkeys(step.kind for step in final))}). Those too?")
    return Consent(undoable=True, irreversible=irreversible)


def agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
