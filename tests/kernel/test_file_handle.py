"""Opening by inode number: layouts are learnt from the file system itself, and what does not fit opens nothing."""

import array
import fcntl
import os
import struct
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.kernel.file_handle import FileSystem, Handle, Layout, handle_of

_FS_IOC_GETVERSION = 0x80087601  # include/uapi/linux/fs.h: the generation of an inode


def device(path: str) -> tuple[int, int]:
    told = os.stat(path)
    return os.major(told.st_dev), os.minor(told.st_dev)


@pytest.fixture
def file_system() -> FileSystem:
    if os.geteuid() != 0:
        pytest.skip("needs CAP_DAC_READ_SEARCH")
    try:
        return FileSystem(tempfile.gettempdir(), device(tempfile.gettempdir()))
    except Unreadable as reason:
        pytest.skip(str(reason))


def test_a_file_is_opened_by_its_number_and_generation_alone(file_system: FileSystem) -> None:
    with file_system, tempfile.NamedTemporaryFile() as file:
        generation = array.array("L", [0])
        fcntl.ioctl(file.fileno(), _FS_IOC_GETVERSION, generation)
        ino = os.fstat(file.fileno()).st_ino
        fd = file_system.open(ino, generation[0] & 0xFFFFFFFF)
        try:
            assert os.path.samestat(os.fstat(fd), os.fstat(file.fileno()))
            assert not os.get_inheritable(fd)
        finally:
            os.close(fd)
        with pytest.raises(Unreadable, match="Stale"):
            file_system.open(ino, (generation[0] + 1) & 0xFFFFFFFF)


def test_directories_are_not_opened(file_system: FileSystem) -> None:
    handle = handle_of(tempfile.gettempdir())
    if handle.kind != 1:
        pytest.skip("the file system's handles have another layout")
    ino, generation = struct.unpack("=II", handle.raw)
    with file_system, pytest.raises(Unreadable, match="another's"):
        file_system.open(ino, generation)


def test_a_mount_of_another_device_is_told_apart() -> None:
    with pytest.raises(Unreadable, match="covered"):
        FileSystem(tempfile.gettempdir(), (4095, 1))


def test_a_file_system_that_needs_more_than_a_number_is_declined() -> None:
    if not os.path.ismount("/dev/shm"):
        pytest.skip("/dev/shm is not mounted")
    with pytest.raises(Unreadable, match="inode number"):
        FileSystem("/dev/shm", device("/dev/shm"))


def test_a_path_that_is_not_there_is_said() -> None:
    with pytest.raises(Unreadable, match="No such file"):
        FileSystem("/does/not/exist", (0, 0))
    with pytest.raises(Unreadable, match="No such file"):
        handle_of("/does/not/exist")


@pytest.mark.parametrize(
    ("handle", "ino", "layout"),
    [
        (Handle(1, struct.pack("=II", 2, 0)), 2, Layout.INO32),
        (Handle(0x81, struct.pack("=QI", 1 << 40, 7)), 1 << 40, Layout.XFS64),
        (Handle(1, struct.pack("=III", 77, 2, 0)), 2, None),
        (Handle(1, struct.pack("=II", 3, 0)), 2, None),
        (Handle(0x4D, bytes(20)), 256, None),
    ],
    ids=["ext4", "xfs", "tmpfs", "another inode", "btrfs"],
)
def test_layouts(handle: Handle, ino: int, layout: Layout | None) -> None:
    assert handle.layout(ino) is layout


@given(st.integers(-(1 << 70), 1 << 70), st.integers(-(1 << 40), 1 << 40), st.sampled_from(Layout))
def test_numbers_that_fit_no_handle_are_declined(ino: int, generation: int, layout: Layout) -> None:
    try:
        assert Handle(layout.value[0], layout.pack(ino, generation)).layout(ino) is layout
    except Unreadable:
        assert not (0 <= ino < 1 << (32 if layout is Layout.INO32 else 64) and 0 <= generation < 1 << 32)


@given(st.integers(-5, 300), st.binary(max_size=40), st.integers(0, 1 << 64))
def test_garbage_has_no_layout_but_by_its_number(kind: int, raw: bytes, ino: int) -> None:
    layout = Handle(kind, raw).layout(ino)
    assert layout is None or layout.value[0] == kind
