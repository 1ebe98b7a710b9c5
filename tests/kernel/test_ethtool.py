"""ethtool's ioctl on this kernel: the real network device, and a veth in a network namespace made for the test."""

import errno
import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.kernel import ethtool
from exhume.kernel.ethtool import Ethtool

needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2 to make a network namespace"
)


@pytest.fixture
def namespace() -> Iterator[str]:
    """The path of a network namespace with a pair of veths, exhume-v0 and exhume-v1."""
    name = f"exhume-test-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no network namespace can be made here: {made.stderr.strip()}")
    try:
        veth = ["ip", "-n", name, "link", "add", "exhume-v0", "type", "veth", "peer", "name", "exhume-v1"]
        made = subprocess.run(veth, capture_output=True, text=True)
        if made.returncode != 0:
            pytest.skip(f"no veth can be made here: {made.stderr.strip()}")
        yield f"/run/netns/{name}"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def hardware() -> str:
    for name in sorted(os.listdir("/sys/class/net")):
        if os.path.lexists(f"/sys/class/net/{name}/device"):
            return name
    pytest.skip("no network device with hardware is visible here")


def tool(*arguments: str) -> list[str]:
    """The lines of ethtool(8), which asks the same questions."""
    if shutil.which("ethtool") is None:
        pytest.skip("ethtool(8) is not installed")
    asked = subprocess.run(["ethtool", *arguments], capture_output=True, text=True)
    if asked.returncode != 0:
        pytest.skip(f"ethtool(8) says {asked.stderr.strip()}")
    return asked.stdout.splitlines()


def test_the_driver_is_what_ethtool_says() -> None:
    device = hardware()
    said = dict(line.split(": ", 1) for line in tool("-i", device) if ": " in line)
    with Ethtool() as asked:
        driver = asked.driver(device)
    assert (driver.name, driver.version, driver.bus) == (said["driver"], said["version"], said["bus-info"])


def test_the_statistics_have_the_names_and_order_of_ethtool_and_only_grow() -> None:
    device = hardware()
    with Ethtool() as asked:
        before = asked.statistics(device)
        said = [line.strip().rsplit(": ", 1) for line in tool("-S", device)[1:]]
        after = asked.statistics(device)
    assert list(before) == [name for name, _ in said]
    for name, value in said:
        assert before[name] <= int(value) <= after[name], name


def test_a_device_that_is_not_there_is_an_oserror() -> None:
    with Ethtool() as asked, pytest.raises(OSError) as failed:
        asked.driver("exhume-none")
    assert failed.value.errno == errno.ENODEV


@pytest.mark.parametrize("name", ["", "a-name-of-more-than-fifteen-bytes", "\udcff" * 16])
def test_a_name_no_device_can_have_is_not_passed_to_the_kernel(name: str) -> None:
    with Ethtool() as asked, pytest.raises(OSError) as failed:
        asked.statistics(name)
    assert failed.value.errno == errno.ENODEV


def test_a_device_without_statistics_has_none() -> None:
    with Ethtool() as asked:
        assert asked.statistics("lo") == {}


@needs_namespaces
def test_a_veth_in_another_namespace_is_seen_from_here(namespace: str) -> None:
    ours = os.readlink("/proc/thread-self/ns/net")
    with Ethtool(namespace) as asked:
        assert asked.driver("exhume-v0").name == "veth"
        statistics = asked.statistics("exhume-v0")
    assert statistics["peer_ifindex"] > 0
    assert os.readlink("/proc/thread-self/ns/net") == ours, "the thread that asks stays where it is"
    assert not os.path.exists("/sys/class/net/exhume-v0")


@needs_namespaces
def test_names_are_asked_for_once_and_again_when_their_number_changes(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ethtool(namespace) as asked:
        read: list[int] = []
        really = asked._read_names

        def counted(device: str, count: int) -> tuple[str, ...]:
            read.append(count)
            return really(device, count)

        monkeypatch.setattr(asked, "_read_names", counted)
        first = asked.statistics("exhume-v0")
        asked.statistics("exhume-v0")
        assert len(read) == 1
        # A veth has statistics for each receive queue.
        subprocess.run(["ip", "-n", Path(namespace).name, "link", "del", "exhume-v0"], check=True)
        add = "link add exhume-v0 numrxqueues 2 numtxqueues 2 type veth peer name exhume-v1 numrxqueues 2 numtxqueues 2"
        subprocess.run(["ip", "-n", Path(namespace).name, *add.split()], check=True)
        second = asked.statistics("exhume-v0")
    if len(second) == len(first):
        pytest.skip("this kernel's veth reports as many statistics with two queues")
    assert len(read) == 2
    assert set(first) < set(second)


def test_a_path_that_is_no_namespace_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "net").write_bytes(b"")
    with pytest.raises(OSError) as failed:
        Ethtool(str(tmp_path / "net"))
    assert failed.value.errno in (errno.EINVAL, errno.EPERM)


def test_a_fifo_in_place_of_a_namespace_does_not_hold_us(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "net")
    with pytest.raises(OSError):
        Ethtool(str(tmp_path / "net"))


class Kernel:
    """A driver that answers as told: how many statistics it says it has, then how many it gives out."""

    def __init__(self, asked: Ethtool, counts: list[int], given: list[int], names: list[bytes]) -> None:
        self._asked, self._counts, self._given, self._names = asked, counts, given, names

    def ioctl(self, _fd: int, _request: int, _ifreq: bytes) -> None:
        room = self._asked._room
        (command,) = struct.unpack_from("=I", room)
        if command == ethtool._GSSET_INFO:
            struct.pack_into("=QI", room, 8, 1 << 1, self._counts.pop(0))
        elif command == ethtool._GSTRINGS:
            struct.pack_into("=I", room, 8, len(self._names))
            for i, name in enumerate(self._names):
                room[12 + 32 * i : 44 + 32 * i] = name.ljust(32, b"\0")[:32]
        else:
            given = self._given.pop(0)
            struct.pack_into(f"=I{given}Q", room, 4, given, *range(given))


def driver(monkeypatch: pytest.MonkeyPatch, counts: list[int], given: list[int], names: list[bytes]) -> Ethtool:
    asked = Ethtool()
    monkeypatch.setattr(fcntl, "ioctl", Kernel(asked, counts, given, names).ioctl)
    return asked


def test_a_driver_that_has_more_statistics_a_moment_later_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with driver(monkeypatch, [1, 3], [3, 3], [b"a", b"b", b"c"]) as asked:
        assert asked.statistics("eth0") == {"a": 0, "b": 1, "c": 2}


def test_a_newer_kernel_that_gives_out_nothing_when_the_number_changed_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with driver(monkeypatch, [2, 2], [0, 2], [b"a", b"b"]) as asked:
        assert asked.statistics("eth0") == {"a": 0, "b": 1}


def test_a_driver_that_never_settles_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    with driver(monkeypatch, [1, 1, 1], [2, 2, 2], [b"a"]) as asked, pytest.raises(OSError) as failed:
        asked.statistics("eth0")
    assert failed.value.errno == errno.EAGAIN


def test_too_many_statistics_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with driver(monkeypatch, [8193], [], []) as asked, pytest.raises(OSError) as failed:
        asked.statistics("eth0")
    assert failed.value.errno == errno.EOVERFLOW


def test_hostile_names_are_carried_as_data(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [b"\x1b[31mred", b"\xff\xfe", b"x" * 32]
    with driver(monkeypatch, [3], [3], names) as asked:
        assert list(asked.statistics("eth0")) == ["\x1b[31mred", "\\xff\\xfe", "x" * 32]
