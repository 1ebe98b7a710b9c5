"""Cohorts in words: conditions, why a cohort is believed, what a dose says, why a node does not fit."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from exhume.fleet.cohorts_facts import Condition
from exhume.fleet.dose import Dose
from exhume.fleet.model import Fact, Node
from exhume.host.quantities import SECOND, duration
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.fleet.cohorts import Cohort, Cohorts

_LONGEST = 80
_MOST_NAMED = 4


def condition(each: Condition) -> str:
    if each.fact == "uptime_s" and isinstance(each.value, float):
        return f"the node is up for {each.operator} {duration(each.value * SECOND)}"
    return f"{printable(each.fact, _LONGEST)} {each.operator} {value(each.value)}"


def conditions(every: Sequence[Condition]) -> str:
    return " and ".join(condition(each) for each in every)


def value(of: Fact) -> str:
    if isinstance(of, bool):
        return "true" if of else "false"
    if isinstance(of, float):
        return f"{of:,.0f}" if of == int(of) and abs(of) < 1e15 else f"{of:.6g}"
    return printable(of, _LONGEST)


def chance(log: float) -> str:
    """A probability in words that fit behind "by luck"."""
    if log <= math.log(1e-6):
        return "less than one in a million"
    probability = math.exp(log)
    return f"{probability:.2g}" if probability < 0.1 else f"{probability:.2f}"


def because(cohort: "Cohort") -> str:
    told = (
        f"{cohort.sick_having:,} of {cohort.having:,} nodes where {conditions(cohort.conditions)} are sick "
        f"({cohort.share:.0%}), of the {cohort.others:,} others {cohort.sick_others:,} ({cohort.share_others:.0%}); "
        f"the chance of it by luck, {cohort.tries:,} tr{'y' if cohort.tries == 1 else 'ies'} counted: "
        f"{chance(cohort.log_corrected)}."
    )
    if cohort.given:
        told += f" It is counted among nodes that are alike in {_names(cohort.given)}."
    if cohort.same:
        told += f" The same nodes: {_listed([condition(each) for each in cohort.same])}."
    nothing = list(
        dict.fromkeys(printable(each.condition.fact, _LONGEST) for each in cohort.confounded if each.explains_nothing)
    )
    if nothing:
        by = cohort.confounded[0].by
        known = f"{_names(by)} {'is' if len({each.fact for each in by}) == 1 else 'are'} known"
        told += f" {_listed(nothing)} explain{'s' * (len(nothing) == 1)} nothing once {known}."
    alike = list(dict.fromkeys(printable(each.condition.fact, _LONGEST) for each in cohort.confounded if not each.tellable))
    if alike:
        told += f" {_listed(alike)} go{'es' * (len(alike) == 1)} along with it so closely that it cannot be told which it is."
    if cohort.too_few:
        healthy = cohort.having - cohort.sick_having
        told += (
            f" Whether a second fact is needed as well cannot be told by so few nodes: {healthy:,} of those with it "
            f"{'is' if healthy == 1 else 'are'} healthy."
        )
    return told


def _names(every: Sequence[Condition]) -> str:
    return _listed(list(dict.fromkeys(printable(each.fact, _LONGEST) for each in every)))


def _listed(names: list[str]) -> str:
    if len(names) > _MOST_NAMED:
        names = [*names[:_MOST_NAMED], f"{len(names) - _MOST_NAMED} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def dose(found: Dose) -> str:
    parts = []
    if found.slope is not None:
        line = found.slope
        parts.append(
            f"zombies grow {line.value:,.0f} a day since boot ({line.low:,.0f} to {line.high:,.0f}, by {found.nodes:,} nodes)"
        )
    if found.sick_from_s is not None:
        parts.append(f"nodes are sick from {duration(found.sick_from_s * SECOND)} of uptime on")
    if found.reboots and found.reset > found.reboots / 2:
        parts.append(f"a reboot resets it ({found.reset:,} of {found.reboots:,} seen)")
    elif found.reboots:
        parts.append(f"a reboot does not reset it ({found.reset:,} of {found.reboots:,} seen)")
    return "; ".join(parts)


def misfit_sick(node: Node, expected: Sequence[Condition]) -> str:
    names = [name for name in dict.fromkeys(one.fact for one in expected) if name in node.facts]
    facts = [f"{printable(name, _LONGEST)} is {value(_plain(node.facts[name]))}" for name in names]
    why = f" ({printable(node.why, 240)})" if node.why else ""
    return f"sick{why} although {' and '.join(facts)}" if facts else f"sick{why} without any of the causes"


def _plain(fact: Fact) -> Fact:
    return float(fact) if isinstance(fact, int) and not isinstance(fact, bool) else fact


def misfit_healthy(expected: Sequence[Condition]) -> str:
    return f"healthy although {conditions(expected)}"


def verdict(found: "Cohorts") -> str:
    judged = found.sick + found.healthy
    if not judged:
        return "nothing says of any node whether it is sick"
    if not found.sick:
        return f"none of {judged:,} nodes is sick"
    head = f"{found.sick:,} of {judged:,} nodes are sick"
    if not found.healthy:
        return f"all {judged:,} nodes are sick: there is nothing to compare them with"
    if not found.cohorts:
        return f"{head}, and no fact separates them from the healthy ones ({found.tried:,} tried)"
    return f"{head}; what they share: {', or '.join(conditions(each.conditions) for each in found.cohorts)}"
