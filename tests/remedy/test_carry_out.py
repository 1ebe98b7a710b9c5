"""Plans carried out and undone: consent, order, what others changed meanwhile, and random plans over random trees."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError, Refused, UsageError
from exhume.remedy import carry_out, journal
from exhume.remedy.carry_out import ALREADY, NOT_CONFIRMED, Consent, Event
from exhume.remedy.plan_model import MOST_STEPS, Plan, Relief, Step
from exhume.remedy.steps import expected
from exhume.remedy.steps.files import make_link, remove_link, write_file
from exhume.remedy.steps.reboot import reboot, reboot_by_sentinel
from exhume.remedy.steps.units import reload, stop_unit
from tests.examples import examples
from tests.remedy.nodes import UNITS, FileManager, node, scratch, snapshot, without_times

YES, ALL = Consent(True), Consent(True, True)
DROP_IN = f"/{UNITS}/ecs.service.d/50-exhume.conf"
OTHER = f"/{UNITS}/other.service.d/exhume.conf"


def plan(*steps: Step) -> Plan:
    return Plan("ecs.service", "a test", steps)


def drop_in(content: bytes = b"[Service]\nRestart=no\n") -> Step:
    return write_file(DROP_IN, content, "breaks the loop")


@pytest.fixture
def manager(tmp_path: Path) -> FileManager:
    (tmp_path / "root" / UNITS).mkdir(parents=True)
    made = FileManager(tmp_path / "root", tmp_path / "manager")
    made.set(**{"ecs.service": "active"})
    return made


def test_nothing_is_done_without_consent(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="not confirmed"):
        carry_out.apply(plan(drop_in()), node(tmp_path), Consent(False, True))
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_undone_is_skipped_and_named_unless_it_was_confirmed_apart(tmp_path: Path) -> None:
    there = node(tmp_path)
    some = plan(drop_in(), reboot_by_sentinel("the kernel is old"))
    outcome = carry_out.apply(some, there, YES)
    assert [(event.what, event.note) for event in outcome.events] == [("done", ""), ("skipped", NOT_CONFIRMED)]
    assert not (tmp_path / "run/reboot-required").exists()
    assert outcome.exit_code == 0
    outcome = carry_out.apply(some, there, ALL)
    assert [(event.what, event.note) for event in outcome.events] == [("skipped", ALREADY), ("done", "")]
    assert (tmp_path / "run/reboot-required").exists()
    carry_out.undo(there)
    assert not (tmp_path / "run/reboot-required").exists()


def test_a_plan_that_could_not_be_read_back_is_refused_and_blocks_nothing(tmp_path: Path) -> None:
    there = node(tmp_path)
    many = (Relief("x", "w", "t"),) * (MOST_STEPS + 1)
    for bad, why in ((replace(plan(drop_in()), relief=many), "relief"), (plan(*[drop_in()] * (MOST_STEPS + 1)), "steps")):
        with pytest.raises(UsageError, match=f"a plan's {why} must be a list of at most 1000"):
            carry_out.apply(bad, there, ALL)
    assert os.listdir(tmp_path) == []
    assert carry_out.apply(plan(drop_in()), there, ALL).exit_code == 0
    assert carry_out.undo(there).exit_code == 0


def test_no_plan_makes_undoable_what_its_kind_cannot_undo(tmp_path: Path, manager: FileManager) -> None:
    bold = Step("reboot", "node", "now", undoable=True)
    outcome = carry_out.apply(plan(bold), node(tmp_path / "root", manager=manager), YES)
    assert [event.what for event in outcome.events] == ["skipped"]
    assert manager.calls == []


def test_a_plan_for_a_manager_is_refused_whole_where_none_runs(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"stop-unit ecs.service needs a running systemd, and none runs in"):
        carry_out.apply(plan(drop_in(), stop_unit("ecs.service", "it loops")), node(tmp_path), ALL)
    assert os.listdir(tmp_path) == []


def test_what_changed_since_the_plan_was_made_stops_it_before_that_step(tmp_path: Path) -> None:
    there = node(tmp_path)
    config = tmp_path / OTHER[1:]
    config.parent.mkdir(parents=True)
    config.write_text("one\n")
    link = remove_link(f"/{UNITS}/no.service", "", "r")
    made = expected(plan(drop_in(), write_file(OTHER, b"two\n", "r"), link), there)
    config.write_text("three\n")
    outcome = carry_out.apply(made, there, ALL)
    assert [event.what for event in outcome.events] == ["done", "failed"]
    assert "has changed since the plan was made" in outcome.events[1].note
    assert outcome.exit_code == 2
    assert config.read_text() == "three\n"
    with pytest.raises(Refused, match=r"is stopped: resume or undo it"):
        carry_out.apply(made, there, ALL)
    config.write_text("one\n")
    assert [event.what for event in carry_out.resume(there).events] == ["done", "skipped"]
    assert config.read_text() == "two\n"
    with pytest.raises(UsageError, match="nothing to resume"):
        carry_out.resume(there)


def test_a_plan_that_stopped_before_it_changed_anything_blocks_nothing(tmp_path: Path) -> None:
    there = node(tmp_path)
    (tmp_path / OTHER[1:]).mkdir(parents=True)
    failed = carry_out.apply(plan(write_file(OTHER, b"", "r")), there, ALL)
    assert failed.events[0].note == f"{OTHER} is left alone: there is something else, not a file"
    assert carry_out.apply(plan(drop_in()), there, ALL).exit_code == 0
    assert carry_out.undo(there).exit_code == 0
    assert (tmp_path / OTHER[1:]).is_dir()
    with pytest.raises(UsageError, match="nothing to undo"):
        carry_out.undo(there)


def test_what_somebody_changed_since_is_kept_and_the_rest_is_undone(tmp_path: Path) -> None:
    there = node(tmp_path)
    other = tmp_path / OTHER[1:]
    other.parent.mkdir(parents=True)
    other.write_text("was\n")
    before = snapshot(tmp_path)
    carry_out.apply(plan(drop_in(), write_file(OTHER, b"is\n", "r")), there, ALL)
    (tmp_path / DROP_IN[1:]).write_text("[Service]\nRestart=on-failure\n")
    outcome = carry_out.undo(there)
    assert [event.what for event in outcome.events] == ["undone", "kept"]
    assert outcome.events[1].note == f"{DROP_IN} is left as it is: somebody changed it since it was written here"
    assert outcome.exit_code == 2
    assert other.read_text() == "was\n"
    assert (tmp_path / DROP_IN[1:]).read_text() == "[Service]\nRestart=on-failure\n"
    assert carry_out.history(there)[0].status == "partly undone"

    (tmp_path / DROP_IN[1:]).write_bytes(b"[Service]\nRestart=no\n")
    assert carry_out.undo(there).exit_code == 0
    assert snapshot(tmp_path) == before
    with pytest.raises(UsageError, match="undone already"):
        carry_out.undo(there, outcome.identity)


def test_a_directory_in_which_others_put_something_stays(tmp_path: Path) -> None:
    there = node(tmp_path)
    carry_out.apply(plan(drop_in()), there, ALL)
    (tmp_path / DROP_IN[1:]).with_name("theirs.conf").write_text("")
    outcome = carry_out.undo(there)
    assert outcome.exit_code == 0
    assert outcome.events[0].note == f"the directory /{UNITS}/ecs.service.d stays: there is something of others in it"
    assert os.listdir((tmp_path / DROP_IN[1:]).parent) == ["theirs.conf"]


def test_of_two_applications_the_later_is_undone_first(tmp_path: Path) -> None:
    there = node(tmp_path)
    first = carry_out.apply(plan(drop_in(b"one")), there, ALL)
    second = carry_out.apply(plan(drop_in(b"two")), there, ALL)
    assert first.identity < second.identity
    assert carry_out.undo(there, first.identity).exit_code == 2
    assert carry_out.undo(there).identity == second.identity
    assert (tmp_path / DROP_IN[1:]).read_bytes() == b"one"
    assert carry_out.undo(there).identity == first.identity
    assert snapshot(tmp_path) == {}


def test_units_are_started_again_after_the_manager_has_read_the_files_that_are_back(
    tmp_path: Path, manager: FileManager
) -> None:
    there = node(tmp_path / "root", manager=manager)
    mask = make_link(f"/{UNITS}/ecs.service", "/dev/null", "mask")
    for some in (
        plan(stop_unit("ecs.service", "r"), mask, reload("r")),
        plan(mask, reload("r"), stop_unit("ecs.service", "r")),
    ):
        manager.set(**{"ecs.service": "active"})
        carry_out.apply(some, there, ALL)
        assert manager.units() == {"ecs.service": "inactive"}
        assert carry_out.undo(there).exit_code == 0
        assert manager.calls[-3:] == ["reload", "reset ecs.service", "start ecs.service replace"]
        assert manager.units() == {"ecs.service": "active"}


def test_files_are_undone_where_no_manager_runs_any_more_and_the_rest_is_named(tmp_path: Path, manager: FileManager) -> None:
    root = tmp_path / "root"
    carry_out.apply(plan(stop_unit("ecs.service", "r"), drop_in(), reload("r")), node(root, manager=manager), ALL)
    outcome = carry_out.undo(node(root))
    assert [(event.step.kind, event.what) for event in outcome.events] == [
        ("write-file", "undone"),
        ("reload", "undone"),
        ("stop-unit", "kept"),
    ]
    assert not (root / DROP_IN[1:]).exists()
    assert carry_out.undo(node(root, manager=manager)).exit_code == 0
    assert manager.units() == {"ecs.service": "active"}


def test_a_file_that_came_back_late_is_read_again_too(tmp_path: Path, manager: FileManager) -> None:
    there = node(tmp_path / "root", manager=manager)
    carry_out.apply(plan(drop_in(), reload("r")), there, ALL)
    path = tmp_path / "root" / DROP_IN[1:]
    path.write_bytes(b"theirs")
    assert carry_out.undo(there).exit_code == 2
    path.write_bytes(drop_in().content)
    reloads = manager.calls.count("reload")
    assert carry_out.undo(there).exit_code == 0
    assert manager.calls.count("reload") == reloads + 1


def test_a_reboot_that_happened_is_not_asked_for_again(tmp_path: Path, manager: FileManager) -> None:
    root = tmp_path / "root"
    boot = root / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("first\n")
    there = node(root, manager=manager)
    with journal.lock(there, "test"), journal.begin(there) as (identity, book):
        told = {
            "schema": "exhume.plan/1",
            "target": "node",
            "why": "w",
            "steps": [{"kind": "reboot", "target": "node", "reason": "r"}],
        }
        book.add("plan", plan=told, by={}, irreversible=True)
        book.add("intent", step=0, before={"boot_id": "first"})
    boot.write_text("second\n")
    assert carry_out.resume(there, identity).exit_code == 0
    assert manager.calls == []
    assert carry_out.apply(plan(reboot("r")), there, ALL).exit_code == 0
    assert manager.calls == ["reboot"]


def test_history_tells_who_did_what_why_and_the_proof(tmp_path: Path) -> None:
    there = node(tmp_path)
    outcome = carry_out.apply(plan(drop_in()), there, ALL)
    carry_out.add_note(there, outcome.identity, "proof", {"health": "healthy"})
    (seen,) = carry_out.history(there)
    assert (seen.status, seen.plan.why, seen.by["uid"]) == ("applied", "a test", os.getuid())
    assert seen.notes == (("proof", {"health": "healthy"}),)
    assert seen.plan == plan(drop_in())


def test_a_damaged_journal_stops_everything_that_would_act(tmp_path: Path) -> None:
    there = node(tmp_path)
    outcome = carry_out.apply(plan(drop_in()), there, ALL)
    path = tmp_path / journal.DIRECTORY[1:] / f"{outcome.identity}.jsonl"
    path.write_bytes(path.read_bytes().replace(b"intent", b"intend"))
    for act in (carry_out.undo, carry_out.resume):
        with pytest.raises(ExhumeError, match=f"the journal {outcome.identity} is damaged: line 2"):
            act(there)
    assert (tmp_path / DROP_IN[1:]).exists()


def test_a_full_disk_is_a_failed_step_that_can_be_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = node(tmp_path)
    before = snapshot(tmp_path)
    monkeypatch.setattr(there.operations, "rename", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    outcome = carry_out.apply(plan(drop_in()), there, ALL)
    assert outcome.events[0].note == f"{DROP_IN}: No space left on device"
    monkeypatch.undo()
    assert carry_out.undo(there).exit_code == 0
    assert snapshot(tmp_path) == before


def test_what_a_journal_cannot_hold_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = node(tmp_path)
    large = tmp_path / UNITS / "large.service"
    large.parent.mkdir(parents=True)
    large.write_bytes(b"#" * 6000)
    monkeypatch.setattr(journal, "LARGEST", 12_000)
    mask = make_link(f"/{UNITS}/large.service", "/dev/null", "r", over_file=True)
    outcome = carry_out.apply(plan(drop_in(), mask), there, ALL)
    assert [event.what for event in outcome.events] == ["done", "failed"]
    assert "too much for a journal" in outcome.events[1].note
    assert large.exists()
    assert carry_out.undo(there).exit_code == 0


def test_events_are_told_as_they_happen(tmp_path: Path) -> None:
    told: list[Event] = []
    carry_out.apply(plan(drop_in()), node(tmp_path), ALL, told.append)
    carry_out.undo(node(tmp_path), on_event=told.append)
    assert [event.what for event in told] == ["begins", "done", "undone"]


BASE = f"/{UNITS}"
UNIT_PATHS = tuple(f"{BASE}/{name}" for name in ("a.service", "b.service", "l.service", "d\\xc3\\xa9.service"))
WANTS = tuple(f"{BASE}/{place}.target.wants/{name}.service" for place in ("x", "y") for name in ("a", "b"))
DROP_INS = tuple(f"{BASE}/{name}.service.d/{file}exhume.conf" for name in ("a", "b", "linked") for file in ("", "zz-"))
PATHS = (*UNIT_PATHS, *WANTS, *DROP_INS)
contents = st.sampled_from([b"", b"one\n", b"two", b"\xff\0"])
links = st.sampled_from(["/dev/null", "a.service", "../b", "/nowhere"])
steps = st.one_of(
    st.builds(write_file, st.sampled_from(DROP_INS), contents, st.just("r"), mode=st.sampled_from([None, 0o600, 0o755])),
    st.builds(make_link, st.sampled_from(UNIT_PATHS), st.just("/dev/null"), st.just("r"), over_file=st.booleans()),
    st.builds(remove_link, st.sampled_from((*UNIT_PATHS, *WANTS)), st.sampled_from(["", "a.service"]), st.just("r")),
)
trees = st.dictionaries(st.sampled_from(PATHS), contents | links.map(lambda link: (link,)), max_size=5)


def grow(root: Path, tree: dict[str, bytes | tuple[str]]) -> None:
    (root / "m").mkdir()
    (root / UNITS).mkdir(parents=True)
    (root / UNITS / "linked.service.d").symlink_to("/m")
    for path, held in tree.items():
        place = root / path[1:].replace(f"{UNITS}/linked.service.d", "m")
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(held, bytes):
            place.write_bytes(held)
        else:
            place.symlink_to(held[0])


@settings(max_examples=examples(150))
@given(tree=trees, some=st.lists(steps, max_size=6))
def test_applying_and_undoing_any_plan_changes_nothing(tree: dict[str, bytes | tuple[str]], some: list[Step]) -> None:
    with scratch() as root:
        grow(root, tree)
        before = snapshot(root)
        there = node(root)
        carry_out.apply(plan(*some), there, ALL)
        (seen,) = carry_out.history(there)
        if seen.begun:
            assert carry_out.undo(there).exit_code == 0
        assert snapshot(root) == before


@settings(max_examples=examples(150))
@given(tree=trees, some=st.lists(steps, max_size=6, unique_by=lambda step: step.target))
def test_applying_any_plan_twice_is_applying_it_once(tree: dict[str, bytes | tuple[str]], some: list[Step]) -> None:
    """Any that does not contradict itself: no step changes what another one did, or the directory that it did it in."""
    with scratch() as root:
        grow(root, tree)
        there = node(root)
        if carry_out.apply(plan(*some), there, ALL).exit_code:
            return  # a step that was refused; the test above undoes those
        once = snapshot(root)
        again = carry_out.apply(plan(*some), there, ALL)
        assert {event.what for event in again.events} <= {"skipped"}
        assert without_times(snapshot(root)) == without_times(once)
        assert json.dumps([event.note for event in again.events]) == json.dumps([ALREADY] * len(some))
