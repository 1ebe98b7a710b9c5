"""The state of a source: its reasons keep their types on disk, and every recording that has none stays readable."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.recording.folder import Folder
from exhume.recording.pseudonymised import pseudonymised
from exhume.recording.pseudonyms import Pseudonyms
from exhume.recording.recording import Recording
from exhume.recording.source_state import (
    BLIND_MS,
    CODES,
    Absent,
    Bug,
    ContainerOnly,
    Failed,
    Gap,
    Imported,
    Limit,
    Note,
    NotNamed,
    NotRequested,
    Reason,
    Reasons,
    SourceState,
    Text,
    Timeout,
    Weaker,
    as_json,
    decoded,
    encoded,
    sentence,
)
from tests.recording.made import BEGIN, NODE, SECOND, second, writer

GOLDEN = Path(__file__).parents[1] / "golden" / "recordings"
SENTENCES: list[tuple[Reason, str]] = [
    (Text("as it was written"), "as it was written"),
    (Note("counted by cgroup.stat"), "counted by cgroup.stat"),
    (Limit("7 events could not be understood"), "7 events could not be understood"),
    (Imported("perf.data"), "imported: perf.data"),
    (ContainerOnly("hierarchy"), "only this container's part of the hierarchy is visible"),
    (ContainerOnly("processes"), "only this container's processes are visible"),
    (ContainerOnly("devices"), "sees this container's devices only"),
    (
        ContainerOnly("hierarchy", "zombies elsewhere on the node are not counted"),
        "only this container's part of the hierarchy is visible: zombies elsewhere on the node are not counted",
    ),
    (NotNamed("because BPF needs root"), "not named, because BPF needs root"),
    (Weaker("/proc/PID/schedstat", "no BTF"), "weaker, from /proc/PID/schedstat: no BTF"),
    (Gap(1512), "looked 1,512 ms apart at worst: a stall shorter than that may have been missed"),
    (Failed("/proc/pressure is not there"), "/proc/pressure is not there"),
    (Absent("systemd is not running here"), "systemd is not running here"),
    (Timeout(2500), "no answer within 2.5 s"),
    (NotRequested(), "not asked for"),
    (Bug("ZeroDivisionError in read, cpu.py:7"), "a bug in exhume, please report it: ZeroDivisionError in read, cpu.py:7"),
]
texts = st.text(st.characters(exclude_categories=["Cs"]))


def parameter(kind: Any) -> st.SearchStrategy[Any]:
    """Any value that a parameter of this type may have."""
    known: dict[Any, st.SearchStrategy[Any]] = {int: st.integers(0, 2**63 - 1), str: texts}
    return known[kind] if kind in known else st.sampled_from(get_args(kind))


def reasons() -> st.SearchStrategy[Any]:
    """Any reason with any parameters."""
    made = [st.builds(kind, **{one.name: parameter(one.type) for one in fields(kind)}) for kind in CODES.values()]
    return st.one_of(*made)


def row(state: str, reason: str, stored: str) -> SourceState:
    recording = Recording(NODE)
    recording["sources"].add(1, "cpu", state, reason, 7, stored)
    found = recording.source("cpu")
    assert found is not None
    return found


@pytest.mark.parametrize(("reason", "expected"), SENTENCES, ids=lambda value: getattr(value, "code", ""))
def test_every_reason_has_its_sentence(reason: Reason, expected: str) -> None:
    assert sentence(reason) == expected


def test_the_sentences_are_of_every_code() -> None:
    assert {reason.code for reason, _ in SENTENCES} == CODES.keys()


@pytest.mark.parametrize(
    ("notes", "state"),
    [
        ((), "on"),
        ((Note("counted by cgroup.stat"),), "on"),
        ((Imported("perf.data"),), "on"),
        ((Note("named"), Limit("not to its end")), "partial"),
        ((ContainerOnly("processes"),), "partial"),
        ((NotNamed("because it takes root"), Note("counted")), "partial"),
        ((Weaker("/proc", "no BTF"),), "partial"),
        ((Gap(BLIND_MS - 1),), "on"),
        ((Gap(BLIND_MS),), "partial"),
    ],
)
def test_a_note_that_limits_what_is_seen_makes_the_source_partial(notes: Reasons, state: str) -> None:
    read = SourceState.read(notes)
    assert read.state == state
    assert read.up


def test_a_recording_gives_the_last_state_of_a_source() -> None:
    recording = Recording(NODE)
    recording.add_source(1, "memcg", SourceState("on"), 10)
    recording.add_source(2, "memcg", SourceState.read((ContainerOnly("hierarchy"),)), 20)
    recording.add_source(2, "units", SourceState.off(Timeout(2500)))
    assert recording.source("memcg") == SourceState("partial", (ContainerOnly("hierarchy"),))
    assert recording.sources()["memcg"].cost_ns == 20
    assert recording.on("memcg")
    assert recording.why_partial("memcg") == recording.reason("memcg") == sentence(ContainerOnly("hierarchy"))
    assert not recording.on("units")
    assert recording.why_partial("units") == ""
    assert recording.why_off("units") == "no answer within 2.5 s"
    assert recording.source("nic") is None
    assert recording.why_off("nic") == "nic was not read"
    recording.add_source(3, "memcg", SourceState.off(NotRequested()))
    assert recording.source("memcg") == SourceState.off(NotRequested())


def test_every_code_keeps_its_parameters_on_disk_in_open_and_sealed_segments(tmp_path: Path) -> None:
    """Also in segments that only carry what was said before them."""
    states = {f"source-{i}": SourceState.read((reason,)) for i, (reason, _) in enumerate(SENTENCES)}
    states["several"] = SourceState.read((Weaker("/proc/PID/schedstat", "no BTF"), Gap(512)))
    states["off"] = SourceState.off(Timeout(2500))
    store = writer(tmp_path / "r")
    first = second(0, names=True)
    for name, state in states.items():
        first.add_source(BEGIN, name, state, 3)
    store.append(first)
    assert {name: Folder(str(tmp_path / "r")).load().source(name) for name in states} == states
    for at in range(1, 35):
        store.append(second(at))
    store.close()
    folder = Folder(str(tmp_path / "r"))
    assert len(folder.segments) > 1
    late = folder.load(BEGIN + 32 * SECOND, BEGIN + 33 * SECOND)
    for loaded in (folder.load(), late):
        assert {name: loaded.source(name) for name in states} == states
        assert {name: loaded.reason(name) for name in states} == {name: state.reason for name, state in states.items()}


@given(st.lists(reasons(), max_size=4).map(tuple))
def test_any_reasons_survive_the_column(several: Reasons) -> None:
    state = SourceState.read(several)
    assert decoded(state.reason, encoded(several)) == several
    assert json.loads(encoded(several)) == as_json(state)["reasons"]


def test_reports_have_the_code_and_the_parameters_by_name() -> None:
    assert as_json(SourceState.read((Weaker("/proc/PID/schedstat", "no BTF"), Gap(512)))) == {
        "state": "partial",
        "reason": "weaker, from /proc/PID/schedstat: no BTF; "
        "looked 512 ms apart at worst: a stall shorter than that may have been missed",
        "reasons": [
            {"code": "weaker", "instead": "/proc/PID/schedstat", "because": "no BTF"},
            {"code": "gap", "gap_ms": 512},
        ],
    }
    assert as_json(SourceState("on")) == {"state": "on", "reason": "", "reasons": []}


@pytest.mark.parametrize("path", sorted(GOLDEN.iterdir()), ids=lambda path: path.name)
def test_recordings_without_the_column_have_their_sentences_and_states(path: Path) -> None:
    loaded = Folder(str(path)).load()
    assert set(loaded["sources"].texts("reasons")) == {""}
    last = {one["name"]: one for one in loaded["sources"].rows()}
    assert last
    for name, one in last.items():
        expected = (Text(one["reason"]),) if one["reason"] else ()
        assert loaded.source(name) == SourceState(one["state"], expected)
        assert loaded.reason(name) == one["reason"]


@pytest.mark.parametrize(
    "stored",
    [
        "{",
        "null",
        "7",
        '"gap"',
        "{}",
        "[7]",
        "[[]]",
        "[" * 100_000,
        '[{"code":7}]',
        '[{"code":"from a newer exhume","text":"x"}]',
        '[{"code":"gap"}]',
        '[{"code":"gap","gap_ms":"512"}]',
        '[{"code":"gap","gap_ms":true}]',
        '[{"code":"gap","gap_ms":-1}]',
        '[{"code":"gap","gap_ms":512.0}]',
        '[{"code":"gap","gap_ms":NaN}]',
        '[{"code":"gap","gap_ms":' + "9" * 5_000 + "}]",
        '[{"code":"container-only","visible":"everything","consequence":""}]',
        '[{"code":"weaker","instead":null,"because":"x"}]',
        '[{"code":"gap","gap_ms":512},{"code":"?"}]',
    ],
)
def test_reasons_that_cannot_be_read_leave_the_sentence(stored: str) -> None:
    assert row("off", "why", stored) == SourceState("off", (Text("why"),))
    assert row("on", "", stored) == SourceState("on")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
parameters = st.sampled_from(sorted({field.name for kind in CODES.values() for field in fields(kind)}))
entries = st.builds(
    lambda code, given: {"code": code, **given},
    st.sampled_from(sorted(CODES)) | json_values,
    st.dictionaries(parameters, json_values, max_size=3),
)


@given(
    st.sampled_from(["on", "partial", "off", "", "broken"]),
    st.text(),
    st.text() | st.lists(entries | json_values).map(json.dumps),
)
def test_any_row_is_read_and_can_be_written_again(state: str, reason: str, stored: str) -> None:
    found = row(state, reason, stored)
    assert found.state == (state if state in ("on", "partial", "off") else "off")
    assert isinstance(found.reason, str)
    again = Recording(NODE)
    again.add_source(1, "cpu", found)
    if found.reason:
        assert again.source("cpu") == found


def test_half_of_a_character_in_a_parameter_can_be_written_again() -> None:
    found = row("on", "x", r'[{"code":"note","text":"\ud800"}]')
    assert found == SourceState("on", (Note(r"\ud800"),))
    assert encoded(found.reasons).encode()


def test_pseudonyms_reach_the_parameters_and_leave_the_codes() -> None:
    recording = Recording(NODE)
    recording["units"].add(
        1, "secret-agent.service", "active", "running", 0, "success", "enabled", 1, "/secret-agent.service", "?"
    )
    hidden = "secret-agent.service did not answer"
    recording.add_source(1, "nic", SourceState.read((Limit(hidden), Gap(512))))
    recording["sources"].add(1, "old", "off", hidden, 0, "")
    recording["sources"].add(1, "broken", "off", hidden, 0, f'[{{"code":"?","text":"{hidden}"}}]')
    made = pseudonymised(recording, Pseudonyms(b"key"))
    nic = made.source("nic")
    assert nic is not None
    assert nic.state == "partial"
    assert nic.find(Gap) == Gap(512)
    limit = nic.find(Limit)
    assert limit is not None
    assert limit.text.endswith(" did not answer")
    assert made["sources"].texts("reason")[0] == nic.reason
    assert "secret" not in json.dumps(list(made["sources"].rows()))
    old = made.source("old")
    assert old == SourceState("off", (Text(limit.text),))
    assert made.source("broken") == old
