"""Cohorts as data for other programs: schema exhume.cohorts/1."""

import math
from typing import Any

from exhume.fleet import words
from exhume.fleet.cohorts import Cohort, Cohorts
from exhume.fleet.cohorts_facts import Condition
from exhume.fleet.dose import Dose
from exhume.fleet.model import Fact
from exhume.host.quantities import DAY_S

_KEYS = {"is not": "not", "at least": "at_least", "below": "below"}


def as_json(found: Cohorts) -> dict[str, Any]:
    return {
        "schema": "exhume.cohorts/1",
        "cohorts": [_cohort(each) for each in found.cohorts],
        "dose": _dose(found.dose) if found.dose else {},
        "misfits": [{"node": each.node, "sick": each.sick, "because": each.because} for each in found.misfits],
    }


def _cohort(cohort: Cohort) -> dict[str, Any]:
    return {
        "facts": {each.fact: _value(each) for each in cohort.conditions},
        "lift": round(cohort.lift, 4),
        "support": round(cohort.support, 6),
        "confidence": math.floor(cohort.confidence * 1e6) / 1e6,
        "because": cohort.because,
    }


def _value(condition: Condition) -> Fact | dict[str, Fact]:
    """The value itself, or for other than "is" an object that says how: {"not": v}, {"at_least": v}, {"below": v}."""
    return condition.value if condition.operator == "is" else {_KEYS[condition.operator]: condition.value}


def _dose(dose: Dose) -> dict[str, Any]:
    told: dict[str, Any] = {"fact": "uptime", "nodes": dose.nodes, "because": words.dose(dose)}
    if dose.slope is not None:
        told |= {
            "zombies_per_day": round(dose.slope.value, 1),
            "low": round(dose.slope.low, 1),
            "high": round(dose.slope.high, 1),
            "zombies_at_boot": round(dose.slope.at_zero, 1),
        }
    if dose.sick_from_s is not None:
        told["sick_from_days"] = round(dose.sick_from_s / DAY_S, 2)
    if dose.reboots:
        told |= {"reboots": dose.reboots, "reset_by_reboot": dose.reset}
    return told
