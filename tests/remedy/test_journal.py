"""The journal: what was written is read, what was torn is left out, what was altered is refused, one writer at a time."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import ExhumeError, Refused, UsageError
from exhume.remedy import journal
from exhume.remedy.application import application
from exhume.remedy.journal import DIRECTORY, decode, encode
from tests.remedy.nodes import node

texts = st.text(st.characters(), max_size=20)
entries = st.lists(
    st.fixed_dictionaries(
        {"record": texts}, optional={"step": st.integers(), "note": texts, "before": st.dictionaries(texts, texts)}
    ),
    max_size=5,
)


def lines(some: list[dict[str, object]]) -> list[bytes]:
    made, check = [], ""
    for entry in some:
        line, check = encode(entry, check)
        made.append(line)
    return made


@given(entries)
def test_what_is_written_is_read(some: list[dict[str, object]]) -> None:
    raw = b"".join(lines(some))
    assert decode(raw)[0] == some
    assert decode(raw)[2] == len(raw)


@given(entries.filter(bool), st.data())
def test_what_is_torn_off_the_end_is_the_last_line_at_most(some: list[dict[str, object]], data: st.DataObject) -> None:
    made = lines(some)
    whole = b"".join(made[:-1])
    cut = data.draw(st.integers(0, len(made[-1]) - 1))
    seen, _, end = decode(whole + made[-1][:cut])
    assert seen == some[:-1]
    assert end == len(whole)
    filled = whole + made[-1][:cut] + b"\0" * (len(made[-1]) - cut - 1) + b"\n"  # its length was on the disk, not its bytes
    if cut < len(made[-1]) - 1:
        assert decode(filled)[0] == some[:-1]


@given(entries.filter(lambda some: len(some) > 1), st.data())
def test_a_line_that_was_altered_dropped_or_moved_is_damage(some: list[dict[str, object]], data: st.DataObject) -> None:
    made = lines(some)
    place = data.draw(st.integers(0, len(made) - 2))
    kept = made[:place] + made[place + 1 :]
    altered = [*made[:place], made[place].replace(b'"record":"', b'"record":"x', 1), *made[place + 1 :]]
    for bad in ([*kept, made[-1]], altered):
        with pytest.raises(ExhumeError, match="is damaged: line"):
            decode(b"".join(bad))


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from([b"{", b"}", b'"entry"', b":", b"[]", b"\n", b'{"entry":{}}']), max_size=12).map(b"".join)
)
def test_garbage_is_no_entry(raw: bytes) -> None:
    try:
        assert decode(raw)[0] == []
    except ExhumeError as error:
        assert "is damaged" in str(error)  # noqa: PT017


def test_a_journal_that_was_torn_is_gone_on_with(tmp_path: Path) -> None:
    there = node(tmp_path)
    with journal.lock(there, "test"), journal.begin(there) as (identity, book):
        book.add("plan", note="\udcff")
        book.add("intent", step=0)
    path = tmp_path / DIRECTORY[1:] / f"{identity}.jsonl"
    path.write_bytes(path.read_bytes()[:-5])
    with journal.append_to(there, identity) as book:
        assert [entry["record"] for entry in book.entries] == ["plan"]
        book.add("ended")
    assert [entry["record"] for entry in journal.read(there, identity)] == ["plan", "ended"]
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    there = node(tmp_path)
    with journal.lock(there, "test"), journal.begin(there) as (identity, book):
        book.add("plan")
    directory = tmp_path / DIRECTORY[1:]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (directory, *directory.iterdir())}
    assert modes == {"exhume-remedy": 0o700, "lock": 0o600, f"{identity}.jsonl": 0o600}


def test_names_are_later_than_all_before_even_when_the_clock_is_not(tmp_path: Path) -> None:
    there = node(tmp_path)
    made = []
    for _ in range(3):
        with journal.lock(there, "test"), journal.begin(there) as (identity, book):
            book.add("plan")
            made.append(identity)
    (tmp_path / DIRECTORY[1:] / "29991231-235959.jsonl").touch()
    with journal.lock(there, "test"), journal.begin(there) as (identity, book):
        book.add("plan")
    assert made == sorted(set(made))
    assert identity == "30000101-000000"
    (tmp_path / DIRECTORY[1:] / "99999999-999999.jsonl").touch()
    (tmp_path / DIRECTORY[1:] / "notes.jsonl").touch()
    assert journal.known(there) == [*made, "29991231-235959", "30000101-000000"]


def test_two_cannot_act_at_once_and_the_second_is_told_who_does(tmp_path: Path) -> None:
    there = node(tmp_path)
    with (
        journal.lock(there, "fix ecs.service"),
        pytest.raises(Refused, match=rf"already, by process {os.getpid()} of .* \(fix ecs.service\)"),
        journal.lock(there, "undo"),
    ):
        pass
    with journal.lock(there, "undo"):
        assert (tmp_path / DIRECTORY[1:] / "lock").read_text().endswith("(undo)")


def test_the_lock_and_the_journal_are_not_followed_out_of_their_directory(tmp_path: Path) -> None:
    there = node(tmp_path)
    directory = tmp_path / DIRECTORY[1:]
    directory.mkdir(parents=True)
    directory.chmod(0o700)
    (tmp_path / "victim").write_text("precious")
    (directory / "lock").symlink_to(tmp_path / "victim")
    with pytest.raises(Refused, match="is a link, or no directory"), journal.lock(there, "test"):
        pass
    (directory / "20260101-000000.jsonl").symlink_to(tmp_path / "victim")
    with pytest.raises(Refused, match="is a link, or no directory"):
        journal.read(there, "20260101-000000")
    assert (tmp_path / "victim").read_text() == "precious"


def _one(root: Path) -> str:
    there = node(root)
    with journal.lock(there, "test"), journal.begin(there) as (identity, book):
        book.add("plan")
    return identity


@pytest.mark.parametrize("where", ["", "var", "var/lib", DIRECTORY[1:], f"{DIRECTORY[1:]}/JOURNAL"])
@pytest.mark.parametrize("how", ["another owner", "others may write", "the group may write"])
def test_a_journal_that_another_user_could_have_written_is_neither_read_nor_added_to(
    tmp_path: Path, where: str, how: str
) -> None:
    identity = _one(tmp_path)
    path = tmp_path / where.replace("JOURNAL", f"{identity}.jsonl")
    mode = stat.S_IMODE(path.stat().st_mode)
    if how == "another owner":
        if os.geteuid():
            pytest.skip("needs root")
        os.chown(path, 1000, 0)
    else:
        path.chmod(mode | (0o002 if how == "others may write" else 0o020))
    for act in (journal.read, lambda there, name: next(journal.append_to(there, name).gen)):
        with pytest.raises(Refused, match=r"not believed"):
            act(node(tmp_path), identity)
    os.chown(path, os.geteuid(), os.getegid())
    path.chmod(mode)
    assert [entry["record"] for entry in journal.read(node(tmp_path), identity)] == ["plan"]


def test_a_sticky_directory_above_is_no_reason_and_an_open_journal_is(tmp_path: Path) -> None:
    identity = _one(tmp_path)
    (tmp_path / "var").chmod(0o1777)
    assert journal.read(node(tmp_path), identity)
    (tmp_path / DIRECTORY[1:]).chmod(0o755)
    with pytest.raises(Refused, match=r"open to other users \(mode 0755\)"):
        journal.known(node(tmp_path))


@pytest.mark.parametrize("where", ["var", "var/lib", DIRECTORY[1:]])
def test_no_link_is_followed_on_the_way_to_the_journal(tmp_path: Path, where: str) -> None:
    root, other = tmp_path / "root", tmp_path / "other"
    root.mkdir()
    identity = _one(root)
    (root / where).rename(other)
    (root / where).symlink_to(other)
    with pytest.raises(Refused, match="is a link, or no directory"):
        journal.read(node(root), identity)
    with pytest.raises(Refused, match="is a link, or no directory"), journal.lock(node(root), "test"):
        pass


def test_a_journal_with_a_second_name_or_that_is_no_file_is_not_read(tmp_path: Path) -> None:
    identity = _one(tmp_path)
    path = tmp_path / DIRECTORY[1:] / f"{identity}.jsonl"
    os.link(path, tmp_path / "second")
    with pytest.raises(Refused, match="not a plain file with one name"):
        journal.read(node(tmp_path), identity)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(Refused, match="not a plain file with one name"):
        journal.read(node(tmp_path), identity)


def test_journals_in_the_agents_directory_are_not_read_and_it_is_said_how_to_take_them_over(tmp_path: Path) -> None:
    _one(tmp_path)
    former = tmp_path / journal.FORMER[1:]
    former.parent.mkdir()
    (tmp_path / DIRECTORY[1:]).rename(former)
    assert journal.known(node(tmp_path)) == []
    said = journal.former(node(tmp_path))
    assert said.startswith(f"1 journal of an earlier version in {tmp_path}{journal.FORMER} not read: the agent can write there")
    assert subprocess.run(["sh", "-c", said.partition("undo them: ")[2].replace("sudo ", "")]).returncode == 0
    assert len(journal.known(node(tmp_path))) == 1
    assert journal.former(node(tmp_path)) == ""


@pytest.mark.parametrize("name", ["", "x", "../../etc/passwd", "20260101-000000/..", "20261301-000000"])
def test_names_that_are_none_are_wrong_usage(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of an application"):
        journal.read(node(tmp_path), name)


def test_who_asked_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ann\x1b[31m")
    told = journal.who()
    assert told["uid"] == os.getuid()
    assert told["sudo_user"] == "ann\\x1b[31m"


PLAN = {"schema": "exhume.plan/1", "target": "t", "why": "w", "steps": [{"kind": "reload", "target": "systemd", "reason": "r"}]}
FIRST = {"record": "plan", "by": {}, "time_ns": 1, "plan": PLAN}


@given(
    st.lists(
        st.fixed_dictionaries(
            {"record": st.sampled_from("intent done skipped failed undone kept resumed undo ended note else".split()) | texts},
            optional={"step": st.integers(-1, 2) | texts, "before": st.just({}) | texts, "note": texts, "name": texts},
        ),
        max_size=8,
    ),
    st.sampled_from([FIRST, {"record": "plan"}, {"record": "x"}, {**FIRST, "plan": {"schema": 1}}]),
)
def test_any_order_of_records_is_told_or_refused(some: list[dict[str, object]], first: dict[str, object]) -> None:
    try:
        seen = application("20260101-000000", [first, *some])
    except ExhumeError as error:
        assert "the journal of 20260101-000000" in str(error)  # noqa: PT017
        return
    assert seen is not None
    assert len(seen.steps) == 1
    assert set(seen.begun) <= {0}
