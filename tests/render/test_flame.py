"""The tree behind a flame graph."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.recording.recording import Recording
from exhume.recording.tally import Tally
from exhume.render.flame import BYS, By, Node, as_json, build, plant, select, walk
from exhume.render.folded import folded, frame
from tests.render.made import NODE, Ran, idle, recorded


def tree(node: Node) -> dict[str, object]:
    """{name samples: children}, for people who read tests."""
    return {f"{child.name} {child.value}": tree(child) for child in node.children}


MIXED = (
    Ran(0, "kubelet", "kubelet:main k:read k:walk", 6),
    Ran(0, "kubelet", "kubelet:main k:read", 1),
    Ran(10, "kubelet", "kubelet:main k:write", 2, pid=101),
    Ran(2, "sshd", "sshd:main", 3, "user", pid=7, cgroup="/system.slice/ssh.service"),
    idle(0, 5),
    idle(2, 4),
)


def test_stacks_merge_from_their_outermost_caller_on() -> None:
    root = build(*recorded(*MIXED))
    assert (root.name, root.value) == ("all", 21)
    assert tree(root) == {
        "kubelet 9": {"main 9": {"read 7": {"walk 6": {}}, "write 2": {}}},
        "sshd 3": {"main 3": {}},
        "idle 9": {},
    }


def test_by_core_has_each_core_in_the_order_of_numbers_with_its_own_idle() -> None:
    root = build(*recorded(*MIXED), by="core")
    assert [(child.name, child.value) for child in root.children] == [("core 0", 12), ("core 2", 7), ("core 10", 2)]
    assert tree(root.children[1]) == {"sshd 3": {"main 3": {}}, "idle 4": {}}


def test_by_thread_and_by_none() -> None:
    assert [child.name for child in build(*recorded(*MIXED), by="thread").children] == [
        "kubelet 100",
        "kubelet 101",
        "sshd 7",
        "idle",
    ]
    assert tree(build(*recorded(*MIXED), by="none", idle="none")) == {
        "main 9": {"read 7": {"walk 6": {}}, "write 2": {}},
        "main 3": {},
    }


def test_by_cgroup_has_each_cgroup() -> None:
    assert [(child.name, child.value) for child in build(*recorded(*MIXED), by="cgroup", idle="none").children] == [
        ("/", 9),
        ("/system.slice/ssh.service", 3),
    ]


def test_a_tree_of_two_windows_has_the_samples_of_both() -> None:
    now, then = recorded(*MIXED), recorded(Ran(0, "kubelet", "kubelet:main k:read k:copy", 8), idle(0, 2), idle(3, 1))
    both = plant(*now, "process", "frame", base=then)
    assert (both.total, both.base_total, both.idle) == (21, 11, 9)

    def counted(root: Node, base: bool) -> dict[tuple[str, ...], int]:
        found: dict[tuple[str, ...], int] = {}
        waiting: list[tuple[tuple[str, ...], Node]] = [((), root)]
        while waiting:
            path, node = waiting.pop()
            found[path] = node.base if base else node.value
            waiting += [((*path, child.name), child) for child in node.children]
        return {path: samples for path, samples in found.items() if samples}

    assert counted(both.node(), base=False) == counted(build(*now), base=False)
    assert counted(both.node(), base=True) == counted(build(*then), base=False)
    assert both.wide(0.3).sum() == 5  # kubelet, main, read, copy (only in the base), idle


def test_idle_samples_are_one_frame_or_stacks_or_left_out() -> None:
    made = recorded(Ran(0, "a", "a:main", 1, "user"), idle(0, 3))
    assert tree(build(*made, idle="frame")) == {"a 1": {"main 1": {}}, "idle 3": {}}
    assert tree(build(*made, idle="none")) == {"a 1": {"main 1": {}}}
    whole: dict[str, object] = {"cpu_startup_entry 3": {"do_idle 3": {"default_idle 3": {}}}}
    assert tree(build(*made, idle="stack")) == {"a 1": {"main 1": {}}, "swapper 3": whole}


def test_what_the_idle_task_does_in_interrupts_is_not_idle() -> None:
    made = recorded(Ran(0, "swapper", "k:do_idle k:handle_softirqs", 2, "softirq", 0), idle(0, 3))
    assert tree(build(*made)) == {"swapper 2": {"do_idle 2": {"handle_softirqs 2": {}}}, "idle 3": {}}


def test_inverted_begins_at_the_functions_that_ran() -> None:
    made = recorded(Ran(0, "a", "a:main a:parse k:fault", 2), Ran(0, "a", "a:main k:fault", 3))
    assert tree(build(*made, by="none", inverted=True)) == {"fault 5": {"main 3": {}, "parse 2": {"main 2": {}}}}


def test_frames_of_the_same_name_module_and_space_are_one_although_their_ids_differ() -> None:
    tally, made = recorded(Ran(0, "a", "x:f", 1), Ran(0, "a", "y:f", 2))
    made["frames"].add(50, "f", "/usr/bin/x", "user", -1)
    made["stacks"].add(50, "user", [50])
    more = Tally(*(np.append(column, value) for column, value in zip(tally, (0, 1, 50, 4), strict=True)))
    values = {child.module: child.value for child in build(more, made, by="none").children}
    assert values == {"/usr/bin/x": 5, "/usr/bin/y": 2}


def test_a_frame_without_a_name_is_called_by_its_place() -> None:
    _, made = recorded(Ran(0, "a", "x:f", 1))
    rows = [(60, "/usr/lib/libfoo.so", 0x1234), (61, "/usr/lib/libfoo.so", -1), (62, "", 0x7F00)]
    for number, module, offset in rows:
        made["frames"].add(number, "", module, "user", offset)
    made["frames"].add(63, "", "[kernel]", "kernel", -1)
    made["stacks"].add(60, "user", [60, 61, 62, 63])
    root = build(Tally(*(np.array([value]) for value in (0, 1, 60, 1))), made, by="none")
    names = [(one.node.name, one.node.kind) for one in walk(root)][1:]
    assert names == [
        ("[unknown] (libfoo.so+0x1234)", "user"),
        ("[unknown] (libfoo.so)", "user"),
        ("[unknown]", "user"),
        ("[unknown] ([kernel])", "kernel"),
    ]


def test_functions_made_at_run_time_are_told_apart() -> None:
    _, made = recorded(Ran(0, "a", "j:Lhash;", 1))
    made["frames"].add(70, "Server.run (server.py)", "[jit]", "user", -1)
    made["frames"].add(71, "f (not.py)", "/usr/bin/x", "user", -1)
    made["stacks"].add(70, "user", [1, 70, 71])
    root = build(Tally(*(np.array([value]) for value in (0, 1, 70, 1))), made, by="none")
    assert [one.node.kind for one in walk(root)][1:] == ["jit", "python", "user"]


def test_what_the_dictionaries_do_not_have_is_counted_as_unknown() -> None:
    tally = Tally(*(np.array(column) for column in ([0, 0], [9, 9], [7, 8], [2, 3])))
    made = Recording(NODE)
    made["stacks"].add(8, "user", [1, 2])
    assert tree(build(tally, made)) == {"[unknown] 5": {"[unknown] 5": {"[unknown] 3": {}}}}


def test_nothing_makes_an_empty_tree() -> None:
    for by in BYS:
        assert build(*recorded(), by=by) == Node("all", "all", 0)


@pytest.mark.parametrize(
    ("wanted", "samples"),
    [
        ({"cores": [10]}, 2),
        ({"cores": []}, 0),
        ({"comm": re.compile("^kube")}, 9),
        ({"pids": [101, 7]}, 5),
        ({"cgroup": re.compile("ssh")}, 3),
        ({"comm": re.compile("kubelet"), "cores": [0]}, 7),
        ({"pids": [12345]}, 0),
        ({}, 21),
    ],
)
def test_a_part_can_be_selected(wanted: dict[str, object], samples: int) -> None:
    tally, made = recorded(*MIXED)
    assert int(select(tally, made, **wanted).count.sum()) == samples  # type: ignore[arg-type]


WORDS = st.sampled_from(["a:main", "a:f", "b:f", "k:read", "k:walk", "j:hot"])
ROWS = st.lists(
    st.builds(
        Ran,
        st.integers(0, 3),
        st.sampled_from(["p", "q"]),
        st.lists(WORDS, max_size=6).map(" ".join),
        st.integers(1, 50),
        st.sampled_from(["user", "system", "idle"]),
        st.integers(0, 2),
    ),
    max_size=30,
)


@given(ROWS, st.sampled_from(BYS), st.booleans())
def test_no_sample_is_lost_or_counted_twice(rows: list[Ran], by: By, inverted: bool) -> None:
    root = build(*recorded(*rows), by=by, inverted=inverted)
    assert root.value == sum(row.samples for row in rows)
    ends: dict[int, int] = {}
    for one in walk(root):
        assert one.node.own >= 0
        assert one.start >= ends.get(one.depth, 0), "siblings must not overlap"
        ends[one.depth] = one.start + one.node.value
        if one.depth:
            assert ends[one.depth] <= ends[one.depth - 1]
    assert sum(one.node.own for one in walk(root)) == root.value


@given(ROWS, st.sampled_from(BYS))
def test_folded_lines_add_up_to_the_tree(rows: list[Ran], by: By) -> None:
    root = build(*recorded(*rows), by=by, idle="stack")
    lines = list(folded(root))
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == root.value
    if by != "none":
        first: dict[str, int] = {}
        for line in lines:
            path, _, count = line.rpartition(" ")
            first[path.split(";")[0]] = first.get(path.split(";")[0], 0) + int(count)
        told: dict[str, int] = {}
        for child in root.children:  # names that are hostile are escaped, and may be the same then
            told[frame(child)] = told.get(frame(child), 0) + child.value
        assert first == told


@given(ROWS)
def test_the_json_is_the_tree(rows: list[Ran]) -> None:
    root = build(*recorded(*rows))

    def same(node: Node, document: dict[str, object]) -> None:
        assert (document["name"], document["kind"], document["samples"]) == (node.name, node.kind, node.value)
        children = document.get("children", [])
        assert isinstance(children, list)
        for child, below in zip(node.children, children, strict=True):
            same(child, below)

    same(root, json.loads("".join(as_json(root))))


def test_a_stack_may_be_deeper_than_python_is() -> None:
    from exhume.render.flame_svg import svg
    from exhume.render.flame_text import render

    root = build(*recorded(Ran(0, "a", " ".join(["a:f"] * 5000), 3)))
    assert sum(1 for _ in walk(root)) == 5002
    assert next(folded(root)).count(";") == 5000
    assert "".join(as_json(root)).count('"name"') == 5002
    assert svg(root, "deep").count("<title>") == 5003
    assert render(root, 80, 10, colour=False)


def test_user_space_without_frames_is_called_so() -> None:
    """What a recorder with --kernel-only has of it."""
    tally, dictionaries = recorded(Ran(0, "bash", "", 5, "user"), Ran(0, "bash", "k:read", 2))
    tree = plant(tally, dictionaries, "process", "frame")
    assert list(folded(tree.node())) == ["bash;[user space] 5", "bash;read_[k] 2"]
