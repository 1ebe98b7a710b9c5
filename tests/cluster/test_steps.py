"""The steps of a remedy that take a node out of service, on a real API server: in order, resumed, undone, within limits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.cluster import cordon
from exhume.cluster.client import STRATEGIC, Client
from exhume.cluster.drain import pods_of
from exhume.cluster.fleet_limits import FleetLimits, refuse_more
from exhume.cluster.pods import Allowed
from exhume.errors import Refused
from exhume.host.root import Root
from exhume.remedy import carry_out, plan_cluster
from exhume.remedy.node import Node, at
from exhume.remedy.operations import Operations
from exhume.remedy.plan_model import Plan, Step, from_json, to_json
from exhume.remedy.steps import cluster as steps
from tests.cluster.objects import await_ready, make_node, make_pod, pod
from tests.cluster.servers import Cluster
from tests.cluster.test_cordon import by_hand

pytestmark = pytest.mark.ci

YES = carry_out.Consent(True, True)
MANY = FleetLimits(max_at_once=1000, pause_when_failed=0)


@pytest.fixture
def acting(kubelets: Cluster, tmp_path: Path) -> Node:
    return replace(at(str(tmp_path)), cluster=kubelets.client)


@pytest.fixture
def client(kubelets: Cluster) -> Client:
    return kubelets.client()


@pytest.fixture(autouse=True)
def _closed(client: Client) -> object:
    yield
    client.close()


def out(name: str, *more: Step) -> Plan:
    first = steps.cordon(name, "test", MANY), steps.drain(name, "test", Allowed(), 20.0)
    return Plan(name, "test", (*first, *more))


def test_out_and_back_after_a_boot(acting: Node, client: Client) -> None:
    name = make_node(client)
    await_ready(client, name)
    make_pod(client, pod(f"{name}-a", name))
    boots = steps.wait_ready(name, "test", "first", 0.2)
    plan = from_json(to_json(out(name, boots, steps.uncordon(name, "test"))))
    stopped = carry_out.apply(plan, acting, YES)
    assert [event.what for event in stopped.events] == ["done", "done", "failed"]
    assert "it has not booted anew" in stopped.events[-1].note
    assert cordon.mark_of(cordon.read_node(client, name)) is not None
    assert pods_of(client, name, Allowed()) == ()
    client.patch(f"/api/v1/nodes/{name}/status", {"status": {"nodeInfo": {"bootID": "second"}}})
    assert [event.what for event in carry_out.resume(acting).events] == ["done", "done"]
    node = cordon.read_node(client, name)
    assert not cordon.closed(node)
    assert cordon.left_mark(node) is None


def test_one_that_was_cordoned_by_hand_is_drained_and_stays_cordoned(acting: Node, client: Client) -> None:
    name = make_node(client)
    await_ready(client, name)
    by_hand(client, name, True)
    make_pod(client, pod(f"{name}-a", name))
    outcome = carry_out.apply(out(name, steps.uncordon(name, "test")), acting, YES)
    assert [event.what for event in outcome.events] == ["skipped", "done", "done"]
    assert outcome.events[-1].note == "it was not cordoned by exhume, so it stays cordoned"
    assert cordon.closed(cordon.read_node(client, name))


def test_undo_uncordons_what_it_cordoned_and_keeps_what_others_cordoned_since(acting: Node, client: Client) -> None:
    name = make_node(client)
    await_ready(client, name)
    carry_out.apply(out(name), acting, YES)
    assert carry_out.undo(acting).exit_code == 0
    assert not cordon.closed(cordon.read_node(client, name))
    carry_out.apply(out(name), acting, YES)
    by_hand(client, name, False)
    by_hand(client, name, True)
    undone = carry_out.undo(acting)
    assert [event.what for event in undone.events] == ["kept"]
    assert cordon.closed(cordon.read_node(client, name))


def test_evictions_need_their_own_consent(acting: Node, client: Client) -> None:
    name = make_node(client)
    await_ready(client, name)
    make_pod(client, pod(f"{name}-a", name))
    outcome = carry_out.apply(out(name), acting, carry_out.Consent(True, False))
    assert [event.what for event in outcome.events] == ["done", "skipped"]
    assert [one.name for one in pods_of(client, name, Allowed())] == [f"{name}-a"]


def test_quarantine_and_release(acting: Node, client: Client) -> None:
    name = make_node(client)
    carry_out.apply(plan_cluster.quarantine(name, "", "study"), acting, YES)
    node = cordon.read_node(client, name)
    assert (cordon.closed(node), cordon.tainted(node), cordon.taint_value(node)) == (True, True, "study")
    carry_out.apply(plan_cluster.release(name, ""), acting, YES)
    node = cordon.read_node(client, name)
    assert (cordon.closed(node), cordon.tainted(node), cordon.left_mark(node)) == (False, False, None)


def test_no_more_nodes_are_out_than_allowed(acting: Node, client: Client) -> None:
    held = len([node for node in cordon.find_nodes(client) if cordon.mark_of(node) and not cordon.tainted(node)])
    limits = FleetLimits(held + 2, 0)
    names = [make_node(client) for _ in range(3)]
    await_ready(client, *names)
    outcomes = [
        carry_out.apply(Plan(name, "test", (steps.cordon(name, "test", limits),)), acting, YES).events[0] for name in names
    ]
    assert [event.what for event in outcomes] == ["done", "done", "failed"]
    assert f"at most {held + 2} may be at once" in outcomes[2].note
    assert not cordon.closed(cordon.read_node(client, names[2]))
    for name in names[:2]:
        cordon.uncordon(client, name)


def test_of_two_that_cordon_at_the_same_moment_the_later_steps_back(acting: Node, client: Client) -> None:
    """What `before` could not see yet is seen after the mark is set."""
    held = len([node for node in cordon.find_nodes(client) if cordon.mark_of(node) and not cordon.tainted(node)])
    first, second = make_node(client), make_node(client)
    await_ready(client, first, second)
    step = steps.cordon(second, "test", FleetLimits(held + 1, 0))
    kind = steps.Cordon()
    before = kind.before(step, acting)
    cordon.cordon(client, first, "theirs")
    with pytest.raises(Refused, match="at most"):
        kind.apply(step, acting, before, "20260101-000000-0")
    assert not cordon.closed(cordon.read_node(client, second))
    assert cordon.closed(cordon.read_node(client, first))
    cordon.uncordon(client, first)


def test_a_node_that_did_not_come_back_stops_the_next(kubelets: Cluster, client: Client) -> None:
    lost, fresh = make_node(client), make_node(client)
    await_ready(client, lost, fresh)
    cordon.cordon(client, lost, "ours")
    node = cordon.read_node(client, lost)
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    mark = cordon.mark_of(node)
    assert mark is not None
    limits = FleetLimits(10, 1, 600.0)
    refuse_more([node], fresh, limits, mark.time_s + 599)
    with pytest.raises(Refused, match=f"{lost} did not come back within 10 min"):
        refuse_more([node], fresh, limits, mark.time_s + 601)
    cordon.uncordon(client, lost)


def test_only_this_machine_is_rebooted(client: Client) -> None:
    name = make_node(client)
    await_ready(client, name)
    wanted: Callable[[], Plan] = lambda: plan_cluster.take_out(  # noqa: E731
        cordon.read_node(client, name), "", Allowed(), FleetLimits(), 60.0, "now", Root("/")
    )
    with pytest.raises(Refused, match="is not this machine"):
        wanted()
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    client.patch(f"/api/v1/nodes/{name}/status", {"status": {"nodeInfo": {"bootID": here}}}, STRATEGIC)
    assert [step.kind for step in wanted().steps] == ["cordon", "drain", "reboot", "wait-ready", "uncordon"]


class Killed(BaseException):
    """As kill -9 would be: nothing catches it."""


@pytest.mark.parametrize("after", ["call cordon", "call drain", "call uncordon"])
@pytest.mark.parametrize("then", ["resume", "undo"])
def test_whoever_is_killed_after_a_change_leaves_something_that_can_be_ended(
    acting: Node, client: Client, after: str, then: str
) -> None:
    class Dying(Operations):
        def happened(self, what: str) -> None:
            if what == after:
                raise Killed

    name = make_node(client)
    await_ready(client, name)
    make_pod(client, pod(f"{name}-a", name))
    with pytest.raises(Killed):
        carry_out.apply(out(name, steps.uncordon(name, "test")), replace(acting, operations=Dying()), YES)
    if then == "resume":
        assert {event.what for event in carry_out.resume(acting).events} == {"done"}
        assert pods_of(client, name, Allowed()) == ()
    else:
        assert carry_out.undo(acting).exit_code == 0
    node = cordon.read_node(client, name)
    assert not cordon.closed(node)
    assert cordon.left_mark(node) is None
