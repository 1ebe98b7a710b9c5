"""The spool keeps whole profiles over restarts, in order and within its size; of anything else it keeps nothing."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.agent.spool import Parcel, Spool, read, written
from exhume.errors import ExhumeError
from tests.agent.push_receiver import parcel


def spool(path: Path, budget: int = 1 << 20) -> Spool:
    made = Spool(str(path / "rec.spool"), budget)
    made.prepare()
    return made


def test_what_was_added_is_there_for_the_next_agent_in_order(tmp_path: Path) -> None:
    first = spool(tmp_path)
    names = [first.add(parcel(number)) for number in (2, 0, 1)]
    later = spool(tmp_path)
    assert later.waiting() == sorted(names)
    assert [later.take(name) for name in later.waiting()] == [parcel(0), parcel(1), parcel(2)]


def test_it_is_for_root_alone(tmp_path: Path) -> None:
    os.makedirs(tmp_path / "rec.spool", mode=0o755)
    made = spool(tmp_path)
    name = made.add(parcel())
    assert stat.S_IMODE(os.stat(made.path).st_mode) == 0o700
    assert stat.S_IMODE(os.stat(os.path.join(made.path, name)).st_mode) == 0o600


def test_the_oldest_go_when_it_is_full(tmp_path: Path) -> None:
    made = spool(tmp_path, budget=5000)
    names = [made.add(parcel(number, b"x" * 1500)) for number in range(5)]
    assert made.trim() == 3
    assert made.waiting() == names[3:]
    assert made.trim() == 0


def test_the_same_window_made_twice_is_one_parcel(tmp_path: Path) -> None:
    made = spool(tmp_path)
    assert made.add(parcel(1)) == made.add(parcel(1))
    assert len(made.waiting()) == 1


@pytest.mark.parametrize("left", [0, 1, 50, -1])
def test_a_torn_file_is_dropped(tmp_path: Path, left: int) -> None:
    made = spool(tmp_path)
    name = made.add(parcel(0, b"x" * 300))
    file = Path(made.path, name)
    file.write_bytes(file.read_bytes()[:left])
    assert made.take(name) is None
    assert made.remove(name)
    assert made.waiting() == []


def test_what_is_gone_or_cannot_be_read_now_is_not_torn(tmp_path: Path) -> None:
    made = spool(tmp_path)
    with pytest.raises(FileNotFoundError):
        made.take("00000000000000000001-1.push")
    assert not made.remove("00000000000000000001-1.push")
    Path(made.path, "00000000000000000001-1.push").mkdir()
    for act in (made.take, made.remove):
        with pytest.raises(OSError, match="Is a directory"):
            act("00000000000000000001-1.push")


def test_what_a_crash_left_half_written_is_cleared_away_and_nothing_else(tmp_path: Path) -> None:
    made = spool(tmp_path)
    name = made.add(parcel())
    Path(made.path, f"tmp-{name}").write_bytes(b"half")
    Path(made.path, "somebody's.txt").write_text("keep")
    assert made.waiting() == [name]
    again = spool(tmp_path)
    assert sorted(os.listdir(again.path)) == sorted([name, "somebody's.txt"])


def test_links_are_not_followed(tmp_path: Path) -> None:
    made = spool(tmp_path)
    name = made.add(parcel())
    os.rename(os.path.join(made.path, name), tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", os.path.join(made.path, name))
    assert made.waiting() == []
    with pytest.raises(OSError, match="symbolic links"):
        made.take(name)
    assert (tmp_path / "elsewhere").exists()


def test_a_place_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    (tmp_path / "rec.spool").write_text("a file")
    with pytest.raises(ExhumeError, match="profiles cannot wait in"):
        spool(tmp_path)


def test_a_note_is_kept_until_it_is_taken_back(tmp_path: Path) -> None:
    made = spool(tmp_path)
    made.note("")
    assert made.noted() == ""
    made.note('{"begin": 1}')
    assert spool(tmp_path).noted() == '{"begin": 1}'
    made.note("")
    assert made.noted() == ""


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
parcels = st.builds(
    Parcel,
    st.sampled_from(("pprof", "otlp")),
    texts,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 1000),
    st.lists(st.tuples(texts, texts), max_size=4).map(tuple),
    st.binary(max_size=200),
)


@given(parcels)
def test_what_is_written_is_read(one: Parcel) -> None:
    assert read(written(one)) == one


@given(parcels, st.data())
def test_a_changed_or_shortened_file_is_not_taken_for_a_whole_one(one: Parcel, data: st.DataObject) -> None:
    raw = written(one)
    assert read(raw[: data.draw(st.integers(0, len(raw) - 1))]) is None
    if one.body:
        at = len(raw) - 1 - data.draw(st.integers(0, len(one.body) - 1))
        assert read(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]) is None


@given(st.binary(max_size=300) | st.binary(max_size=60).map(lambda raw: b'{"schema": "exhume.push/1", "kind": ' + raw + b"}\n"))
def test_garbage_is_no_parcel(raw: bytes) -> None:
    assert read(raw) is None


@given(
    st.dictionaries(
        st.sampled_from(["kind", "name", "start", "end", "hz", "labels", "size", "crc"]),
        st.none() | st.integers() | st.text(max_size=5) | st.lists(st.integers(), max_size=3) | st.booleans() | st.floats(),
        min_size=1,
    )
)
def test_a_head_with_values_of_other_kinds_is_refused_or_a_parcel(changes: dict[str, object]) -> None:
    import json

    line, _, body = written(parcel()).partition(b"\n")
    found = read(json.dumps({**json.loads(line), **changes}).encode() + b"\n" + body)
    if found is not None:
        assert isinstance(found.name, str)
        assert all(type(one) is int for one in (found.start_real, found.end_real, found.hz))
        assert found.body == body
