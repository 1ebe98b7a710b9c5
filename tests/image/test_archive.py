"""A tar archive of a root says what the root itself says; no archive, whatever is in it, brings anything but a sentence."""

import gzip
import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume import budget
from exhume.errors import ExhumeError
from exhume.host.directory import Directory
from exhume.host.tree import LARGEST, Entry
from exhume.image.archive import Pass
from exhume.image.folders import Budget, Names
from exhume.image.kept import Kept
from exhume.image.opening import open_image
from exhume.image.streams import Damaged, Unpacked, zstd
from exhume.image.tar import BLOCK, is_header, members
from tests.examples import examples
from tests.image import archives
from tests.image.archives import UNIT, directory, link, member, tar


class Bytes:
    """A source in memory."""

    def __init__(self, content: bytes) -> None:
        self._file = io.BytesIO(content)

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def skip(self, size: int) -> int:
        return len(self._file.read(size))


def kept(content: bytes, most: int = 1 << 20, most_names: int = 1000) -> Kept:
    troubles: list[str] = []
    return Kept("archive", Pass(Budget(troubles, most, most_names)).read(Bytes(content)).root, troubles)


@pytest.mark.parametrize("how", ["", "gz", "bz2", "xz"])
def test_an_archive_says_what_the_directory_says(tmp_path: Path, how: str) -> None:
    root = tmp_path / "root"
    archives.make_root(root)
    archives.pack(root, tmp_path / "image", how)
    unread = ("/usr/bin/",)
    with Directory(str(root)) as whole, open_image(str(tmp_path / "image")) as tree:
        assert archives.everything(tree, unread) == archives.everything(whole, unread)
        assert tree.read("/etc/systemd/system/outside.service") == (root / "opt/agent/unit").read_bytes()
        assert tree.troubles == []
        assert not tree.live


@pytest.mark.parametrize("form", ["v7", "oldgnu", "gnu", "ustar", "pax"])
def test_what_the_tar_tool_writes_is_read_sparse_files_and_all(tmp_path: Path, form: str) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    with open(root / "etc" / "sparse", "wb") as file:
        for part in range(40):
            file.seek(part << 16)
            file.write(b"x")
    (root / "etc" / "z.service").write_bytes(UNIT)
    long = "deep" * (10 if form in ("v7", "ustar") else 60)
    (root / "etc" / long).write_text("long")
    sparse = [] if form in ("v7", "ustar") else ["--sparse"]
    subprocess.run(
        ["tar", *sparse, "--sort=name", f"--format={form}", "-cf", str(tmp_path / "a"), "-C", str(root), "."], check=True
    )
    with open_image(str(tmp_path / "a")) as tree:
        assert tree.names("/etc") == sorted(["sparse", "z.service", long])
        assert tree.read("/etc/z.service") == UNIT
        assert tree.read(f"/etc/{long}") == b"long"


def test_a_file_that_is_too_large_is_cut_and_said() -> None:
    tree = kept(tar([member("etc/big", bytes(LARGEST + 1))]), most=16 << 20)
    assert tree.read("/etc/big") == bytes(LARGEST)
    assert tree.entry("/etc/big") == Entry("file", 0o644, LARGEST + 1)
    assert tree.troubles == ["/etc/big has 1.000001 MiB; its first 1.000000 MiB were read."]


def test_content_that_does_not_matter_is_not_kept_and_that_is_said_when_asked() -> None:
    tree = kept(tar([member("usr/bin/agent", b"ELF", mode=0o755), member("dev/sda", kind=tarfile.BLKTYPE)]))
    assert tree.entry("/usr/bin/agent") == Entry("file", 0o755)
    assert tree.entry("/dev/sda") == Entry("other", 0o600)
    assert tree.read("/dev/sda") is None
    assert tree.troubles == []
    assert tree.read("/usr/bin/agent") is None
    assert tree.troubles == ["/usr/bin/agent is there, but its content was not kept."]


def test_hard_links_have_the_content_of_the_other_name() -> None:
    tree = kept(tar([member("etc/a", b"same"), member("etc/b", kind=tarfile.LNKTYPE, target="./etc/a")]))
    assert tree.read("/etc/b") == b"same"


def test_a_hard_link_to_a_place_that_is_not_kept_brings_another_pass(tmp_path: Path) -> None:
    hard = member("etc/systemd/system/x.service", kind=tarfile.LNKTYPE, target="opt/blob")
    (tmp_path / "a").write_bytes(tar([directory("etc"), member("opt/blob", UNIT), hard]))
    with open_image(str(tmp_path / "a")) as tree:
        assert tree.read("/etc/systemd/system/x.service") == UNIT


def test_what_is_written_through_a_link_lands_where_it_leads() -> None:
    tree = kept(tar([directory("usr/lib"), link("lib", "usr/lib"), member("lib/systemd/system/a.service", UNIT)]))
    assert tree.real("/lib/systemd/system/a.service") == "/usr/lib/systemd/system/a.service"
    assert tree.read("/usr/lib/systemd/system/a.service") == UNIT


def test_the_last_of_a_name_counts() -> None:
    infos = [
        member("etc/a", b"1"),
        member("etc/a", b"2"),
        member("opt/b"),
        directory("opt/b"),
        link("c", "etc"),
        member("c", b""),
    ]
    tree = kept(tar(infos))
    assert tree.read("/etc/a") == b"2"
    assert [tree.entry(path, follow=False) for path in ("/opt/b", "/c")] == [Entry("directory", 0o755), Entry("file", 0o644)]
    assert tree.names("/") == ["c", "etc", "opt"]


def test_names_that_lead_out_are_left_out_and_said() -> None:
    hostile = ["../../etc/passwd", "etc/../../x", "..", "a" * 300, "b/" * 2100 + "c"]
    infos = [member(name, b"x") for name in hostile]
    absolute = member("/etc/absolute", b"x")
    with_nul = member("etc/nul", b"x")
    with_nul.pax_headers = {"path": "etc/n\0ul"}
    tree = kept(tar([*infos, absolute, with_nul, member("./etc//new\nline", b"x")], tarfile.PAX_FORMAT))
    assert tree.names("/") == ["etc"]
    assert tree.names("/etc") == ["absolute", "new\nline"]
    assert [trouble.split(" and were")[0] for trouble in tree.troubles] == [
        *["It has names that lead out of it"] * 3,
        *["It has names that are longer than any file system has them"] * 2,
        "It has names that have a NUL in them",
    ]


def test_too_many_names_are_cut_and_leave_room_for_others() -> None:
    infos = [member(f"etc/systemd/system/{number:04}.service", UNIT) for number in range(300)]
    tree = kept(tar([*infos, member("etc/crontab", b"cron")]), most_names=100)
    assert len(tree.names("/etc/systemd/system")) == 100
    assert tree.read("/etc/crontab") == b"cron"
    assert tree.troubles == ["/etc/systemd/system holds more than 100 names; the first of the archive were read."]


@pytest.mark.ci
def test_what_does_not_matter_leaves_half_of_the_room_to_what_does() -> None:
    infos = [member(f"srv/{number:05}", b"") for number in range(20_000)]
    tree = kept(tar([*infos, member("etc/crontab", b"cron")]), most=100_000)
    assert tree.read("/etc/crontab") == b"cron"
    assert 1000 < len(tree.names("/srv")) < 20_000
    assert tree.troubles == ["It holds more names than 97.7 KiB of memory keep; the rest was left out."]


def test_too_much_that_matters_is_said() -> None:
    tree = kept(tar([member(f"etc/{number}", bytes(50_000)) for number in range(100)]), most=1 << 20)
    assert 15 < sum(tree.read(f"/etc/{number}") is not None for number in range(100)) < 21
    assert "It holds more files that matter than 1 MiB of memory keep; the rest was left out." in tree.troubles


@pytest.mark.parametrize("cut", [100, 10, 600, 1023, 1100])
def test_a_cut_archive_is_refused(tmp_path: Path, cut: int) -> None:
    whole = tar([member("etc/a", bytes(600)), member("etc/b", bytes(600))])
    (tmp_path / "a").write_bytes(whole[: 1536 + cut] if cut != 100 else gzip.compress(whole)[:-20])
    with pytest.raises(ExhumeError, match=r"cannot be read as an image: it.* ends in"), open_image(str(tmp_path / "a")):
        pass


def test_zstd_is_read_or_what_is_missing_is_said(tmp_path: Path) -> None:
    whole = tar([member("etc/a.service", UNIT)])
    (tmp_path / "tar").write_bytes(whole)
    try:
        subprocess.run(["zstd", "-q", str(tmp_path / "tar"), "-o", str(tmp_path / "a")], check=True)
    except FileNotFoundError:
        pytest.skip("needs zstd")
    try:
        zstd()
    except ExhumeError:
        with (
            pytest.raises(ExhumeError, match=r"install backports\.zstd, or unpack it by zstd -d"),
            open_image(str(tmp_path / "a")),
        ):
            pass
    else:
        with open_image(str(tmp_path / "a")) as tree:
            assert tree.read("/etc/a.service") == UNIT


def test_all_streams_of_a_command_draw_on_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(bytes(64 << 20))
    monkeypatch.setenv(budget.VARIABLE, "0.1")  # 107 MB
    budget.begin()
    assert Unpacked(Bytes(bomb), "gzip").skip(128 << 20) == 64 << 20
    with pytest.raises(budget.Exhausted, match=r"unpacks to more than 102 MiB.* EXHUME_BUDGET=1 allows ten times as much"):
        Unpacked(Bytes(bomb), "gzip").skip(128 << 20)
    monkeypatch.delenv(budget.VARIABLE)
    budget.begin()
    assert Unpacked(Bytes(bomb), "gzip").skip(128 << 20) == 64 << 20


def test_a_directory_of_many_names_is_searched_in_constant_time_and_keeps_the_last_of_a_name() -> None:
    names = Names()
    for i in range(20_000):
        names.add(b"%d" % i, b"f")
    names.add(b"7", b"-")
    assert (names.get(b"7"), names.get(b"19999"), names.get(b"20000"), names.get(b"")) == (b"-", b"f", b"", b"")
    assert max(map(len, names._runs)) < 16 << 10
    assert dict(names)[b"7"] == b"-"
    assert len(dict(names)) == 20_000


def test_an_archive_that_is_cut_off_anywhere_is_not_a_smaller_one() -> None:
    raw = tar([member("a", b"x" * 700), member("b", b""), member("c" * 150, b"y")], tarfile.GNU_FORMAT)
    end = len(raw.rstrip(b"\0")) + -len(raw.rstrip(b"\0")) % BLOCK  # where the zeros begin that end it
    assert len(list(members(Bytes(raw[: end + BLOCK])))) == 3
    for length in range(0, end + 1, BLOCK // 4):
        with pytest.raises(Damaged):
            list(members(Bytes(raw[:length])))


def test_a_header_of_gigabytes_is_refused() -> None:
    info = member("././@LongLink", kind=b"L")
    info.size = 10 << 30
    with pytest.raises(Damaged, match="it has a header of 10,737,418,240 bytes"):
        list(members(Bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(4096))))


NAMES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=60), min_size=1, max_size=4
)
MEMBERS = st.lists(
    st.tuples(
        NAMES.map("/".join),
        st.sampled_from(
            [tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]
        ),
        st.binary(max_size=1200),
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=150),
    ),
    max_size=6,
)


@given(MEMBERS, st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
def test_members_are_those_that_tarfile_reads(made: list[tuple[str, bytes, bytes, str]], form: int) -> None:
    infos = []
    for name, kind, content, target in made:
        regular = kind in (tarfile.REGTYPE, tarfile.AREGTYPE)
        infos.append(member(name, content if regular else b"", kind, "" if regular else target))
    raw = tar(infos, form)
    kinds = {tarfile.LNKTYPE: "hard", tarfile.SYMTYPE: "link", tarfile.DIRTYPE: "directory", tarfile.FIFOTYPE: "other"}
    expected = []
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        for info in archive:
            file = archive.extractfile(info) if info.isreg() else None
            content = file.read() if file else b""
            expected.append((info.name.rstrip("/"), kinds.get(info.type, "file"), info.mode, content, info.linkname))
    found = []
    for one in members(Bytes(raw)):
        target = one.target.decode()
        found.append((one.name.decode().rstrip("/"), one.kind, one.mode, one.data.read(one.size), target))
    assert [one for one in found if one[4]] == [one for one in expected if one[4]]
    assert found == expected


@settings(max_examples=examples(300))
@given(MEMBERS, st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(0, 255)), max_size=8), st.integers(0, 1 << 14))
def test_damaged_archives_bring_a_sentence_or_a_tree(
    made: list[tuple[str, bytes, bytes, str]], changes: list[tuple[int, int]], cut: int
) -> None:
    raw = bytearray(tar([member(*one[:1], one[2], one[1], one[3]) for one in made], tarfile.PAX_FORMAT))
    headers = [at for at in range(0, len(raw), 512) if is_header(bytes(raw[at : at + 512]))]
    for at, value in changes:
        raw[at % len(raw)] = value
    for at in headers:  # their sums are put right, so that what is changed is read
        raw[at + 148 : at + 156] = b" " * 8
        raw[at + 148 : at + 156] = b"%06o\0 " % sum(raw[at : at + 512])
    try:
        tree = kept(bytes(raw[: max(cut, 512)]))
    except ExhumeError:
        return
    for path in archives.everything(tree):
        assert ".." not in path.split("/")


@settings(max_examples=examples(100))
@given(st.sampled_from(["gzip", "bzip2", "xz"]), st.binary(max_size=400))
def test_garbage_that_calls_itself_packed_brings_a_sentence(how: str, garbage: bytes) -> None:
    magic = {"gzip": b"\x1f\x8b\x08\x00", "bzip2": b"BZh9", "xz": b"\xfd7zXZ\x00\x00\x04"}[how]
    with pytest.raises(Damaged, match=f"its {how} stream"):
        Unpacked(Bytes(magic + garbage), how).read(1 << 16)
