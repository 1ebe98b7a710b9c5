"""The kinds of steps: as data, as they are shown, and the ones that act on the kernel, on a real one."""

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cluster.fleet_limits import FleetLimits
from exhume.cluster.pods import Allowed
from exhume.errors import ExhumeError, Refused, UsageError
from exhume.host.root import Root
from exhume.remedy import plan_model
from exhume.remedy.manager import UnitState
from exhume.remedy.node import Node, at
from exhume.remedy.operations import Operations
from exhume.remedy.plan_model import Plan, Step
from exhume.remedy.purge import rows_by_home
from exhume.remedy.steps import KINDS, kind_of, preview, reversible
from exhume.remedy.steps.cgroups import remove_empty_cgroups
from exhume.remedy.steps.cluster import cordon, drain, taint, uncordon, untaint, wait_ready
from exhume.remedy.steps.files import make_link, remove_link, write_file
from exhume.remedy.steps.processes import signal_parent
from exhume.remedy.steps.purge import purge
from exhume.remedy.steps.reboot import reboot, reboot_by_sentinel
from exhume.remedy.steps.units import reload, reset_failed, restart_unit, start_unit, stop_unit
from exhume.sources.memcg_walk import walk
from tests import zombies
from tests.remedy.nodes import FileManager, node
from tests.starved import no_core_held

EVERY = (
    write_file("/a", b"x", "r", mode=0o600),
    make_link("/a", "/dev/null", "r", over_file=True),
    remove_link("/a", "b", "r"),
    stop_unit("a.service", "r", deadline_s=1.5),
    start_unit("a.service", "r"),
    restart_unit("a.service", "r", "4711:1"),
    reset_failed("a.service", "r"),
    reload("r"),
    remove_empty_cgroups("/sys/fs/cgroup", ("/a",), "r"),
    purge("/", "r"),
    reboot("r"),
    reboot_by_sentinel("r"),
    signal_parent(4711, 1, "r"),
    cordon("n1", "r", FleetLimits()),
    drain("n1", "r", Allowed()),
    taint("n1", "r", "study"),
    untaint("n1", "r"),
    wait_ready("n1", "r", "boot"),
    uncordon("n1", "r"),
)

texts = st.text(max_size=20)
steps = st.builds(
    Step,
    kind=texts,
    target=texts,
    reason=texts,
    risk=st.sampled_from(["low", "medium", "high"]),
    undoable=st.booleans(),
    expects=texts,
    content=st.binary(max_size=50),
    mode=st.none() | st.integers(0, 0o777),
    link=texts,
    over_file=st.booleans(),
    paths=st.lists(texts, max_size=3).map(tuple),
    deadline_s=st.floats(0, 86400),
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
FIELDS = "kind target reason risk undoable expects content mode link over_file paths deadline_s".split()


def test_every_kind_has_a_step_here_and_is_found_by_its_name() -> None:
    assert {step.kind for step in EVERY} == set(KINDS)
    assert [kind_of(step).name for step in EVERY] == [step.kind for step in EVERY]
    irreversible = {step.kind for step in EVERY if not reversible(step)}
    assert irreversible == {
        "restart-unit",
        "reset-failed",
        "remove-empty-cgroups",
        "purge",
        "reboot",
        "reboot-sentinel",
        "drain",
        "signal-parent",
    }
    with pytest.raises(ExhumeError, match="a step of the kind burn is not known"):
        kind_of(Step("burn", "x", "r"))


@given(st.builds(Plan, texts, texts, st.lists(steps, max_size=3).map(tuple)))
def test_a_plan_goes_through_json_unharmed(plan: Plan) -> None:
    assert plan_model.from_json(json.loads(json.dumps(plan_model.to_json(plan)))) == plan


@given(
    junk | st.fixed_dictionaries({"kind": texts, "target": texts, "reason": texts}, optional=dict.fromkeys(FIELDS[3:], junk))
)
def test_a_strange_step_is_wrong_usage(told: object) -> None:
    try:
        step = plan_model.step_from_json(told)
    except UsageError as error:
        assert str(error)  # noqa: PT017
    else:
        assert plan_model.step_from_json(plan_model.step_to_json(step)) == step


def test_a_plan_of_another_schema_or_with_too_many_steps_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="must have the schema"):
        plan_model.from_json({"schema": "exhume.plan/2"})
    with pytest.raises(UsageError, match="at most 1000"):
        plan_model.from_json({"schema": "exhume.plan/1", "target": "", "why": "", "steps": [{}] * 1001})


def test_files_are_shown_as_a_diff_with_modes_and_links(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/conf").write_bytes(b"same\nold\n")
    (tmp_path / "etc/link").symlink_to("/lib/x")
    there = node(tmp_path)
    assert preview(write_file("/etc/conf", b"same\nnew\x1b[31m", "r", mode=0o600), there) == (
        "--- /etc/conf  (mode 0644)\n+++ /etc/conf  (mode 0600)\n@@ -1,2 +1,3 @@\n same\n-old\n"
        "+new\\x1b[31m\n+\\ No newline at end of file\n"
    )
    assert (
        preview(remove_link("/etc/link", "/lib/x", "r"), there)
        == "--- /etc/link  (link to /lib/x)\n+++ /etc/link  (not there)\n"
    )
    assert preview(make_link("/etc/conf", "/dev/null", "r", over_file=True), there) == (
        "--- /etc/conf  (mode 0644)\n+++ /etc/conf  (link to /dev/null)\n@@ -1,2 +0,0 @@\n-same\n-old\n"
    )
    assert preview(write_file("/etc/conf", b"same\nold\n", "r"), there) == ""
    assert (tmp_path / "etc/conf").read_bytes() == b"same\nold\n"


def test_calls_are_shown_as_busctl_would_make_them(tmp_path: Path) -> None:
    there = node(tmp_path)
    manager = "busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager"
    assert preview(stop_unit("a.service", "r"), there) == f"{manager} StopUnit ss a.service replace\n"
    assert preview(reload("r"), there) == f"{manager} Reload\n"
    login = "busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager"
    assert preview(reboot("r"), there) == f"{login} Reboot b false\n"
    with pytest.raises(Refused, match="is not the name of a unit"):
        preview(stop_unit("a b; rm", "r"), there)


def test_what_is_there_is_not_what_the_step_is_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("elsewhere")
    there = node(tmp_path)
    for step, why in (
        (remove_link("/file", "", "r"), "there is a file, not a link"),
        (make_link("/file", "x", "r"), "there is a file, not a link"),
        (make_link("/new", "", "r"), "a link must lead somewhere"),
        (write_file("/link", b"", "r"), "there is a link, not a file"),
        (remove_link("/link", "here", "r"), "it leads to elsewhere, not to here"),
        (Step("reboot-sentinel", "/file", "r"), "a reboot is asked for by a file at /run/reboot-required"),
        (write_file("/new", bytes((1 << 20) + 1), "r"), "more than any configuration"),
    ):
        with pytest.raises(Refused, match=why):
            kind_of(step).before(step, there)


def test_the_sentinel_is_confirmed_as_a_reboot_is() -> None:
    step = reboot_by_sentinel("r")
    assert (step.kind, step.target, step.risk, step.undoable) == ("reboot-sentinel", "/run/reboot-required", "high", False)


@pytest.mark.parametrize(
    ("active", "sub", "up", "down"),
    [
        ("active", "running", True, False),
        ("activating", "auto-restart", True, False),
        ("failed", "failed-before-auto-restart", True, False),
        ("failed", "failed", False, True),
        ("inactive", "dead", False, True),
        ("deactivating", "stop-sigterm", False, False),
    ],
)
def test_what_counts_as_up_and_as_down(active: str, sub: str, up: bool, down: bool) -> None:
    assert (UnitState(active, sub).up, UnitState(active, sub).down) == (up, down)


NONE = "no zombies that can be freed at the cost that was agreed to"


def real(manager: FileManager | None = None) -> Node:
    return Node(Root(), manager, Operations())


def below(parent: Path) -> str:
    return "/" + str(parent.relative_to(zombies.MEMORY))


@pytest.mark.skipif(bool(zombies.unavailable()), reason=zombies.unavailable() or "-")
def test_empty_cgroups_go_bottom_up_and_what_is_used_or_owned_stays(tmp_path: Path) -> None:
    manager = FileManager(tmp_path, tmp_path / "manager")
    manager.set(**{"up.service": "active", "down.service": "inactive"})
    with zombies.directories(5, "steps") as parent:
        for name in ("a/b/c", "up.service/x", "down.service/x", "busy/in"):
            (parent / name).mkdir(parents=True)
        home = zombies.own_cgroup()
        (parent / "busy/in/cgroup.procs").write_text("0")
        try:
            step = remove_empty_cgroups(str(zombies.MEMORY), (below(parent),), "they leaked")
            assert preview(step, real()) == f"rmdir what is empty of the 14 directories below {parent}\n"
            assert kind_of(step).before(step, real()) == {"directories": 14}
            note = kind_of(step).apply(step, real(manager), {}, "t")
        finally:
            (home / "cgroup.procs").write_text("0")
        assert note == "10 directories removed, 4 kept"
        left = sorted(str(Path(path, name).relative_to(parent)) for path, names, _ in os.walk(parent) for name in names)
        assert left == ["busy", "busy/in", "up.service", "up.service/x"]
        with pytest.raises(Refused, match="only removed on the node whose kernel this is"):
            kind_of(step).before(step, node(tmp_path))


@pytest.mark.skipif(bool(zombies.unavailable()), reason=zombies.unavailable() or "-")
def test_without_a_manager_what_bears_the_name_of_a_unit_stays(tmp_path: Path) -> None:
    with zombies.directories(2, "steps") as parent:
        (parent / "some.service").mkdir()
        step = remove_empty_cgroups(str(zombies.MEMORY), (below(parent),), "they leaked")
        kind_of(step).apply(step, real(), {}, "t")
        assert [entry.name for entry in parent.iterdir() if entry.is_dir()] == ["some.service"]
        assert not kind_of(step).done(step, real())


@pytest.mark.skipif(bool(zombies.unavailable()), reason=zombies.unavailable() or "-")
def test_zombies_are_purged_by_a_step(tmp_path: Path) -> None:
    with no_core_held(), zombies.zombies(60, "steps-purged") as parent:
        step = purge(below(parent), "they slow down every walk")
        kind_of(step).before(step, real())
        note = kind_of(step).apply(step, real(), {}, "t")
        # The kernel may evict some of their pages by itself, before or after the step counts them.
        assert re.fullmatch(rf"(\d+) of \1 zombies gone|{NONE}", note)
        assert rows_by_home(walk(), below(parent)) == {}
        assert kind_of(step).apply(step, real(), {}, "t") == NONE
    with pytest.raises(Refused, match="only purged on the node whose kernel this is"):
        kind_of(step).before(step, node(tmp_path))


def test_the_node_of_a_directory_has_its_root(tmp_path: Path) -> None:
    there = at(str(tmp_path))
    assert there.manager is None
    assert there.files.root == str(tmp_path)
