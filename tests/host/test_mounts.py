"""mountinfo by device number: real, and garbage."""

import os

from hypothesis import given
from hypothesis import strategies as st

from exhume.host.mounts import Mount, mounts, parse_mounts
from exhume.host.root import Root


def test_the_root_is_mounted_with_the_device_number_of_its_files() -> None:
    told = os.stat("/")
    (last,) = [mount for mount in mounts(Root()) if mount.point == "/"][-1:]
    if last.kind != "btrfs":
        assert last.device == (os.major(told.st_dev), os.minor(told.st_dev))


def test_escaped_names_and_bind_mounts() -> None:
    raw = b"36 35 98:0 /sub /mnt\\040two rw,noatime shared:1 - ext4 /dev/root rw\n37 35 0:5 / /x rw - tmpfs\n"
    assert parse_mounts(raw) == (Mount((98, 0), "ext4", "/sub", "/mnt two"), Mount((0, 5), "tmpfs", "/", "/x"))


@given(st.binary(max_size=400))
def test_garbage_is_passed_over(raw: bytes) -> None:
    for mount in parse_mounts(raw + b"\n36 35 8:1 / /z rw - xfs x rw"):
        assert "\0" not in mount.point
