"""Several sources of one fleet: the same machine under several names, and machines that only look the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.fleet.kubernetes import fleet as cluster
from exhume.fleet.model import Boot, Fleet, Node
from exhume.fleet.sources_join import join
from exhume.fleet.sources_names import host, matched


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("http://Node-7.example.com:9100/metrics", "node-7.example.com"),
        ("node-7.", "node-7"),
        ("10.1.2.3:9100", "10.1.2.3"),
        ("[fe80::1]:9100", "fe80::1"),
        ("fe80::1", "fe80::1"),
        (" a ", "a"),
    ],
)
def test_the_host_in_a_name(name: str, wanted: str) -> None:
    assert host(name) == wanted


def test_names_match_by_host_and_by_part_of_the_domain_but_never_across_domains() -> None:
    known = ["n1.a.example", "n2", "n3.a.example", "n3.b.example", "10.0.0.1", "n5.x"]
    asked = ["n1:9100", "N2.a.example", "n3", "10.0.0.10", "n5.y", "n3.b.example:1"]
    assert matched(asked, known) == {"n1:9100": "n1.a.example", "N2.a.example": "n2", "n3.b.example:1": "n3.b.example"}


@given(st.lists(st.text(max_size=12), max_size=8), st.lists(st.text(max_size=12), max_size=8))
def test_whatever_the_names_are_a_match_is_a_known_name(names: list[str], known: list[str]) -> None:
    found = matched(names, known)
    assert set(found) <= set(names)
    assert set(found.values()) <= set(known)
    assert all(found.get(name) == name for name in names if known.count(name) == 1)


def test_facts_and_figures_are_put_together_and_the_first_is_believed() -> None:
    first = Fleet("one", (Node("a.example", {"zone": "z1", "kernel": "5"}, None), Node("b", {})), ("t1",))
    second = Fleet(
        "two",
        (Node("a:9100", {"zone": "z2", "image": "i"}, True, 2.0, "sick", 50.0, 90.0, 7.0, 8.0, 1.0), Node("c", {}, False)),
        ("t2",),
        "dir",
        (Boot("a:9100", 0, 1, 2, 3),),
    )
    whole = join([first, second])
    assert [node.name for node in whole.nodes] == ["a.example", "b", "c"]
    a = whole.nodes[0]
    assert a.facts == {"zone": "z1", "kernel": "5", "image": "i"}
    assert (a.sick, a.badness, a.why, a.uptime_s, a.exposed_s) == (True, 2.0, "sick", 50.0, 90.0)
    assert (a.zombies, a.leak_per_day, a.resets) == (7.0, 8.0, 1.0)
    assert whole.boots == (Boot("a.example", 0, 1, 2, 3),)
    assert whole.directory == "dir"
    assert whole.troubles[:2] == ("t1", "t2")
    assert "1 nodes are in both one and two; 1 in the first alone, 1 in the second alone" in whole.troubles[2]
    assert whole.troubles[3] == "two has other values than one, which is believed, for: zone (1)"


def test_a_renamed_node_is_known_by_what_only_one_machine_has() -> None:
    first = Fleet("one", (Node("old", {"provider-id": "aws:///eu/i-12"}), Node("x", {"boot-id": "B"})))
    second = Fleet("two", (Node("new", {"instance-id": "I-12"}), Node("y", {"boot_id": "b"}), Node("z", {"boot_id": "c"})))
    whole = join([first, second])
    assert [node.name for node in whole.nodes] == ["old", "x", "z"]
    assert any("new is old, y is x" in said for said in whole.troubles)


def test_two_machines_with_one_id_are_not_one() -> None:
    """Cloned images have the same uuid everywhere."""
    first = Fleet("one", (Node("a", {"system-uuid": "0"}), Node("b", {"system-uuid": "0"})))
    second = Fleet("two", (Node("c", {"system-uuid": "0"}),))
    assert [node.name for node in join([first, second]).nodes] == ["a", "b", "c"]


def test_an_address_finds_its_node() -> None:
    first = Fleet("one", (Node("a", {"internal-ip": "10.0.0.1"}),))
    second = Fleet("two", (Node("10.0.0.1:9100", {"kernel": "6"}),))
    (node,) = join([first, second]).nodes
    assert (node.name, node.facts["kernel"]) == ("a", "6")


nodes = st.lists(
    st.builds(
        Node,
        st.sampled_from(["a", "a.x", "a.y", "b", "A:1", "10.0.0.1", ""]),
        st.dictionaries(
            st.sampled_from(["zone", "boot-id", "internal-ip"]), st.sampled_from(["a", "b", "10.0.0.1"]), max_size=2
        ),
        st.sampled_from([True, False, None]),
        uptime_s=st.sampled_from([None, 1.0]),
        exposed_s=st.sampled_from([None, 2.0]),
    ),
    max_size=5,
    unique_by=lambda node: node.name,
)


@given(nodes, nodes)
def test_joined_fleets_have_every_node_once_and_lose_no_sickness(first: list[Node], second: list[Node]) -> None:
    whole = join([Fleet("one", tuple(first)), Fleet("two", tuple(second))])
    names = [node.name for node in whole.nodes]
    assert len(names) == len(set(names))
    assert max(len(first), len(second)) <= len(names) <= len(first) + len(second)
    assert any(node.sick for node in whole.nodes) == any(node.sick for node in (*first, *second))


NODE = {
    "metadata": {
        "name": "ip-10-0-0-1",
        "creationTimestamp": "2026-11-01T00:00:00Z",
        "labels": {"topology.kubernetes.io/zone": "z", "kubernetes.io/hostname": "x", "team": "t", "gpu": ""},
    },
    "spec": {"providerID": "aws:///z/i-1", "unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
    "status": {
        "nodeInfo": {"kernelVersion": "5.4", "bootID": "B", "osImage": "Ubuntu 20.04"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "images": [{}, {}],
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "ContainerRuntimeReady", "status": "True"},
            {"type": "KernelDeadlock", "status": "True", "reason": "AUFSUmountHung"},
            {"type": "MemoryPressure", "status": "False"},
        ],
    },
}


def test_a_node_of_a_cluster() -> None:
    (node,) = cluster([NODE], "k", 1_793_491_200 + 86_400).nodes
    assert node.facts["zone"] == "z"
    assert node.facts["label:team"] == "t"
    assert node.facts["label:gpu"] is True
    assert node.facts["kernel"] == "5.4"
    assert node.facts["provider-id"] == "aws:///z/i-1"
    assert node.facts["cordoned"] is True
    assert node.facts["images"] == 2
    assert node.facts["age-days"] == 1
    assert node.facts["condition:KernelDeadlock"] == "True"
    assert (node.sick, node.why) == (True, "KernelDeadlock is True (AUFSUmountHung)")


def test_a_ready_node_is_not_said_to_be_healthy() -> None:
    """The incident's were ready all the time."""
    ready = {"metadata": {"name": "n"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    gone = {"metadata": {"name": "m"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    first, second = cluster([ready, gone, {}], "k", 0).nodes
    assert (first.sick, second.sick) == (None, True)


shapes = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from("metadata name labels status spec conditions type nodeInfo addresses taints images".split()), inner
        )
    ),
    max_leaves=15,
)


@given(st.lists(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), shapes), max_size=3))
def test_any_shape_of_an_object_is_a_node_or_passed_over(documents: list[dict[str, object]]) -> None:
    found = cluster(documents, "k", 0.0)
    assert all(isinstance(node.name, str) and node.name for node in found.nodes)
