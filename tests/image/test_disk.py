"""Disk images made by the tools that make them say what the directory says; damaged ones bring a sentence or a tree."""

import os
import random
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.host.directory import Directory
from exhume.host.tree import LARGEST
from exhume.image.blocks import Raw
from exhume.image.opening import open_image
from exhume.image.partitions import Partition, partitions
from tests.image import archives


class Memory:
    """A disk in memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.size = len(content)

    def read(self, at: int, size: int) -> bytes:
        return self._content[at : at + size] if at >= 0 else b""


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            pytest.skip(f"needs {tool}")


def run(*command: str, text: str | None = None) -> None:
    path = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    subprocess.run(command, input=text, text=True, check=True, capture_output=True, env=path)


def make_file_system(root: Path, path: Path, *options: str, size: str = "16M") -> None:
    need("mke2fs")
    run("mke2fs", "-q", "-F", "-d", str(root), *options, str(path), size)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose directories and files have many blocks, with holes, and links too long for an inode."""
    top = tmp_path_factory.mktemp("disk") / "root"
    archives.make_root(top)
    for number in range(700):
        (top / "usr/lib/systemd/system" / f"unit-with-quite-a-long-name-{number:04}.service").write_bytes(b"%d" % number)
    (top / "etc/link").symlink_to("/" + "/".join(["usr/lib/systemd"] + ["../systemd"] * 20) + "/system/agent.service")
    with open(top / "etc/holes", "wb") as file:
        for part in range(0, 60, 3):
            file.seek(part * 9000)
            file.write(os.urandom(5000))
    (top / "etc/big").write_bytes(random.Random(1).randbytes(900_000))
    return top


@pytest.mark.parametrize(
    "options",
    [
        ("-t", "ext4"),
        ("-t", "ext4", "-b", "1024", "-I", "128"),
        ("-t", "ext4", "-O", "64bit,metadata_csum,^has_journal"),
        ("-t", "ext4", "-O", "inline_data"),
        ("-t", "ext3", "-b", "1024"),
        ("-t", "ext2", "-b", "4096"),
        ("-t", "ext2", "-r", "0", "-b", "1024"),
    ],
    ids=" ".join,
)
def test_a_file_system_says_what_the_directory_says(root: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    make_file_system(root, tmp_path / "disk", *options)
    with Directory(str(root)) as whole, open_image(str(tmp_path / "disk")) as tree:
        expected, said = archives.everything(whole), archives.everything(tree)
        made_by_the_tool = said.pop("/lost+found")
        assert made_by_the_tool
        top, other = said.pop("/"), expected.pop("/")
        assert isinstance(top, tuple)
        assert isinstance(other, tuple)
        assert set(top[2]) == {*other[2], "lost+found"}
        if "inline_data" in options:  # mke2fs 1.47.0 cuts a file with holes after a block of it
            del said["/usr/bin/agent"], expected["/usr/bin/agent"], said["/etc/holes"], expected["/etc/holes"]
        assert said == expected
        assert tree.troubles == []


LAYOUTS = {
    "gpt": "label: gpt\nstart=2048, size=2048, type=uefi\nstart=4096, size=32768, type=linux\n",
    "mbr": "label: dos\nstart=2048, size=1024, type=c\nstart=4096, size=32768, type=83\n",
    "logical": "label: dos\nstart=1024, size=1000, type=83\nstart=2048, type=5\nstart=3072, size=500\nstart=4096, size=32768\n",
}


@pytest.mark.parametrize(
    ("layout", "form"),
    [(layout, "raw") for layout in LAYOUTS] + [("gpt", form) for form in ("qcow2", "qcow2 compressed", "qcow2 old")],
)
def test_the_root_is_found_on_its_partition(root: Path, tmp_path: Path, layout: str, form: str) -> None:
    need("sfdisk", "qemu-img")
    make_file_system(root, tmp_path / "part", "-t", "ext4")
    with open(tmp_path / "disk", "wb") as file:
        file.truncate(24 << 20)
        file.seek(4096 * 512)
        file.write((tmp_path / "part").read_bytes())
    run("sfdisk", "-q", str(tmp_path / "disk"), text=LAYOUTS[layout])
    path = str(tmp_path / "disk")
    if form != "raw":
        options = {"qcow2": [], "qcow2 compressed": ["-c"], "qcow2 old": ["-o", "compat=0.10,cluster_size=4k"]}[form]
        run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", *options, path, path + ".qcow2")
        path += ".qcow2"
    with open_image(path) as tree:
        assert tree.read("/lib/systemd/system/agent.service") == archives.UNIT
        assert tree.read("/etc/big") == (root / "etc/big").read_bytes()
        assert len(tree.names("/lib/systemd/system")) == 701
        assert tree.troubles == []


def refused(path: Path) -> str:
    with pytest.raises(ExhumeError) as told, open_image(str(path)):
        pass
    start = f"{path} cannot be read as an image: "
    assert str(told.value).startswith(start)
    return str(told.value).removeprefix(start)


def test_a_backing_file_is_never_opened(tmp_path: Path) -> None:
    need("qemu-img")
    (tmp_path / "secret").write_bytes(bytes(1 << 20))
    run("qemu-img", "create", "-f", "qcow2", "-b", str(tmp_path / "secret"), "-F", "raw", str(tmp_path / "disk"))
    said = refused(tmp_path / "disk")
    assert said == "it is a qcow2 image that stands on a backing file; make it a plain one by qemu-img convert -O raw."


@pytest.mark.parametrize(
    ("at", "mark", "name"),
    [
        (0, b"XFSB", "XFS"),
        (65600, b"_BHRfS_M", "Btrfs"),
        (512, b"LABELONE", "an LVM physical volume"),
        (0, b"hsqs", "SquashFS"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_to_do(tmp_path: Path, at: int, mark: bytes, name: str) -> None:
    disk = bytearray(1 << 20)
    disk[at : at + len(mark)] = mark
    (tmp_path / "disk").write_bytes(disk)
    said = refused(tmp_path / "disk")
    what = f"no ext file system with a root is on it (the whole of it is {name})"
    assert said == f"{what}; mount it read-only and give the directory as --root."


@pytest.mark.parametrize("content", [b"", b"hello\n", bytes(1 << 16), b"\x7fELF" + bytes(9000)])
def test_what_is_no_image_at_all_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert refused(tmp_path / "file") == "it is no directory, no archive and no disk image that is known here."


def test_a_journal_that_was_not_replayed_is_said(root: Path, tmp_path: Path) -> None:
    make_file_system(root, tmp_path / "disk", "-t", "ext4")
    with open(tmp_path / "disk", "r+b") as file:
        file.seek(1024 + 0x60)
        (features,) = struct.unpack("<I", file.read(4))
        file.seek(1024 + 0x60)
        file.write(struct.pack("<I", features | 4))
    with open_image(str(tmp_path / "disk")) as tree:
        assert tree.troubles == ["Its journal holds writes that are not in their places yet; they were not read."]
        assert tree.read("/etc/os-release") == b'PRETTY_NAME="A node"\n'


def test_a_disk_that_is_cut_off_is_said(root: Path, tmp_path: Path) -> None:
    make_file_system(root, tmp_path / "disk", size="16M")
    with open_image(str(tmp_path / "disk")) as tree:
        assert not tree.troubles
    os.truncate(tmp_path / "disk", 15 << 20)
    with open_image(str(tmp_path / "disk")) as tree:
        assert tree.troubles == ["Its end cannot be read: the disk is smaller than the file system that is on it."]


def test_a_sparse_file_of_ten_gigabytes_on_a_disk_is_cut(tmp_path: Path) -> None:
    (tmp_path / "root/etc").mkdir(parents=True)
    with open(tmp_path / "root/etc/sparse.service", "wb") as file:
        file.truncate(10 << 30)
    make_file_system(tmp_path / "root", tmp_path / "disk", "-t", "ext4")
    with open_image(str(tmp_path / "disk")) as tree:
        assert tree.read("/etc/sparse.service") == bytes(LARGEST)
        assert tree.troubles == ["/etc/sparse.service has 10 GiB; its first 1 MiB were read."]


@pytest.mark.parametrize("kind", ["ext2", "ext4"])
def test_a_damaged_file_system_brings_a_tree_or_a_sentence(tmp_path: Path, kind: str) -> None:
    archives.make_root(tmp_path / "root")
    make_file_system(tmp_path / "root", tmp_path / "disk", "-t", kind, "-b", "1024", "-O", "^has_journal", size="1M")
    whole = (tmp_path / "disk").read_bytes()
    used = [at for at in range(0, len(whole), 64) if any(whole[at : at + 64])]
    dice = random.Random(10)
    read = damaged = 0
    for _ in range(100):
        disk = bytearray(whole)
        for _ in range(dice.randint(1, 40)):
            at = dice.choice(used) + dice.randrange(64)
            disk[at] = dice.choice((0, 255, dice.randrange(256)))
        (tmp_path / "disk").write_bytes(disk[: dice.choice((len(disk), dice.randrange(len(disk))))])
        try:
            with open_image(str(tmp_path / "disk")) as tree:
                paths = ["/"]
                for path in paths:
                    tree.entry(path)
                    tree.read(path)
                    paths += [path.rstrip("/") + "/" + name for name in tree.names(path)[: 300 - len(paths)]]
                read += 1
                damaged += bool(tree.troubles)
        except ExhumeError:
            continue
    assert read > 15
    assert damaged > 5


def test_an_extent_tree_that_goes_round_in_circles_ends(tmp_path: Path) -> None:
    """A node that names itself is not one level below itself; an indirect block may name itself as often as it likes."""
    archives.make_root(tmp_path / "root")
    (tmp_path / "root/etc/many").write_bytes(random.Random(3).randbytes(900_000))
    make_file_system(tmp_path / "root", tmp_path / "disk", "-t", "ext2", "-b", "1024")
    content = bytearray((tmp_path / "disk").read_bytes())
    data = (tmp_path / "root/etc/many").read_bytes()
    third = content.find(data[12 * 1024 : 13 * 1024]) // 1024
    indirect = next(at for at in range(0, len(content), 1024) if content[at : at + 4] == struct.pack("<I", third))
    content[indirect : indirect + 1024] = struct.pack("<I", indirect // 1024) * 256
    (tmp_path / "disk").write_bytes(content)
    with open_image(str(tmp_path / "disk")) as tree:
        found = tree.read("/etc/many")
        assert found is not None
        assert len(found) == 900_000
        assert found[: 12 * 1024] == data[: 12 * 1024]
        assert found[12 * 1024 : 13 * 1024] != data[12 * 1024 : 13 * 1024]


@given(st.binary(max_size=4096), st.binary(min_size=64, max_size=64), st.booleans())
def test_any_partition_table_brings_parts_of_the_disk(garbage: bytes, table: bytes, gpt: bool) -> None:
    sector = (garbage.ljust(446, b"\0")[:446] + table + b"\x55\xaa").ljust(512, b"\0")
    disk = Memory(sector + (b"EFI PART" if gpt else b"") + garbage * 20)
    for part in partitions(disk):
        assert 0 < part.begin < disk.size
        assert part.size > 0


def test_a_chain_of_logical_partitions_that_bites_its_tail_ends() -> None:
    entry = struct.pack("<4xB3xII", 0x83, 1, 5) + struct.pack("<4xB3xII", 0x05, 0, 9)
    first = bytes(446) + struct.pack("<4xB3xII", 0x05, 2, 90).ljust(64, b"\0") + b"\x55\xaa"
    disk = Memory(first + bytes(512) + bytes(446) + entry.ljust(64, b"\0") + b"\x55\xaa" + bytes(1 << 16))
    assert partitions(disk) == [Partition(5, 3 * 512, 5 * 512)]


def test_a_damaged_qcow2_brings_a_sentence_or_a_tree(tmp_path: Path) -> None:
    need("qemu-img")
    archives.make_root(tmp_path / "root")
    make_file_system(tmp_path / "root", tmp_path / "disk", "-t", "ext2", "-b", "1024", size="1M")
    run("qemu-img", "convert", "-c", "-f", "raw", "-O", "qcow2", str(tmp_path / "disk"), str(tmp_path / "q"))
    whole = (tmp_path / "q").read_bytes()
    dice = random.Random(4)
    read = 0
    for _ in range(100):
        disk = bytearray(whole)
        for _ in range(dice.randint(1, 10)):
            disk[dice.choice((dice.randrange(112), dice.randrange(len(disk))))] = dice.randrange(256)
        disk[:4] = whole[:4]
        (tmp_path / "q").write_bytes(disk)
        try:
            with open_image(str(tmp_path / "q")) as tree:
                tree.read("/etc/os-release")
                tree.names("/etc")
                read += 1
        except ExhumeError:
            continue
    assert read > 5


def test_reading_behind_the_end_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "disk").write_bytes(b"abc")
    with open(tmp_path / "disk", "rb") as file:
        raw = Raw(file.fileno())
        assert [raw.read(at, 2) for at in (-1, 0, 2, 3, 1 << 70)] == [b"", b"ab", b"c", b"", b""]
