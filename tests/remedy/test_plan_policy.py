"""What the policy keeps is neither switched off nor changed, unless a person says so."""

import pytest

from exhume.errors import Refused
from exhume.host.directory import Directory
from exhume.host.systemd.units import read_units
from exhume.image.policy import Listed, Policy
from exhume.remedy.plan import Planner, Wishes
from exhume.remedy.plan_model import Plan
from exhume.remedy.plan_unit import KEEPS, Keep
from exhume.remedy.protected_units import Protection
from tests.remedy.test_plan import AGENT, LIB, Place, place

__all__ = ["place"]  # a fixture


def planned(place: Place, policy: Policy, wishes: Wishes) -> Plan:
    with Directory(str(place.root)) as tree:
        return Planner(place.node, tree, Protection(read_units(tree), policy=policy), wishes).plan("ecs.service")


@pytest.mark.parametrize("keep", [None, *KEEPS])
def test_what_the_policy_keeps_is_touched_by_force_only(place: Place, keep: Keep | None) -> None:
    policy = Policy((Listed("ecs.service", "batch", keep=True),))
    with pytest.raises(Refused, match=r"the policy keeps it, its owner is batch; --force \w+ it( off)? all the same$"):
        planned(place, policy, Wishes(keep))
    assert planned(place, policy, Wishes(keep, force=True)).steps
    assert planned(place, Policy((Listed("ecs.service", "batch"),)), Wishes(keep)).steps


def test_what_others_need_may_be_kept_from_its_loop(place: Place) -> None:
    place.put(f"{LIB}/client.service", f"[Unit]\nRequires=ecs.service\n{AGENT}")
    assert planned(place, Policy(), Wishes("no-restart")).steps
    with pytest.raises(Refused, match=r"needed by client\.service; --keep do-nothing leaves it in place, --force switches it"):
        planned(place, Policy(), Wishes())


def test_what_the_policy_keeps_is_not_restarted_with_another_unit(place: Place) -> None:
    place.put(f"{LIB}/client.service", f"[Unit]\nRequires=ecs.service\n{AGENT}")
    policy = Policy((Listed("client.service", "batch", keep=True),))
    assert place.manager is not None
    place.manager.set(**{"ecs.service": "active"})
    assert planned(place, policy, Wishes("do-nothing")).steps
    place.manager.set(**{"ecs.service": "active", "client.service": "active"})
    with pytest.raises(
        Refused, match=r"client\.service is left alone: the policy keeps it.*; --force restarts it all the same$"
    ):
        planned(place, policy, Wishes("do-nothing"))
    assert planned(place, policy, Wishes("do-nothing", force=True)).steps
    assert planned(place, Policy(), Wishes("do-nothing")).steps
