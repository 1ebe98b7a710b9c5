"""Whose sockets are whose: the kernel's tables, and a node made of files. The real thing is in tests/cli/test_audit_live.py."""

import os
import socket
import struct
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from exhume.host.mounts import Mount
from exhume.host.root import Root
from exhume.sources.unit_life import life
from exhume.sources.unit_sockets import read_sockets
from exhume.sources.unit_sockets_model import Endpoint, Sockets
from exhume.sources.unit_sockets_mounts import shared
from exhume.sources.unit_sockets_owner import systemd_path
from exhume.sources.unit_sockets_peers import parse_peers, unix_peers
from exhume.sources.unit_sockets_tables import Inet, Unix, parse_inet, parse_unix

HEAD = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
POD = "kubepods-besteffort-pod11111111_2222_3333_4444_555555555555.slice"


def row(local: str, remote: str, state: str, inode: int) -> bytes:
    return f"   0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 100 0\n".encode()


def address(host: str, port: int) -> str:
    return f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}"


@given(st.binary(max_size=300))
def test_garbage_makes_no_row_and_no_error(raw: bytes) -> None:
    for text in (raw, HEAD + raw, b"h\n0: 0100007F:1F90 00000000:0000 0A " + raw, b"h\n0: 00000002 0 00010000 0001 01 " + raw):
        assert all(isinstance(one, Inet) and one.inode > 0 for one in parse_inet(text, "tcp"))
        assert all(isinstance(one, Unix) and one.inode > 0 for one in parse_unix(text))
        assert isinstance(systemd_path(text), str)
        assert all(isinstance(inode, int) for inode in parse_peers(text)[0])


@given(st.binary(max_size=120), st.integers(0, 64))
def test_a_hostile_netlink_answer_ends(attributes: bytes, length: int) -> None:
    message = struct.pack("=IHHII", length, 20, 0, 1, 0) + attributes
    found, _ = parse_peers(message * 3)
    assert len(found) <= 3


def test_addresses_are_read_in_the_machines_own_order() -> None:
    six = "".join(f"{word:08X}" for word in struct.unpack("=4I", socket.inet_pton(socket.AF_INET6, "::1")))
    mapped = "".join(f"{word:08X}" for word in struct.unpack("=4I", socket.inet_pton(socket.AF_INET6, "::ffff:10.0.0.9")))
    raw = HEAD + row(address("127.0.0.1", 8080), address("0.0.0.0", 0), "0A", 7) + row(f"{six}:0050", f"{mapped}:C350", "01", 8)
    one, two = parse_inet(raw, "tcp")
    assert one == Inet("tcp", ("127.0.0.1", 8080), ("0.0.0.0", 0), True, False, 7)
    assert two == Inet("tcp", ("::1", 80), ("10.0.0.9", 50000), False, True, 8)


def test_the_kernels_own_answer_names_both_ends_of_a_unix_socket() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        peers = unix_peers(None)
        left, right = (os.fstat(end.fileno()).st_ino for end in (one, other))
        assert (peers[left], peers[right]) == (right, left)


def node(tmp_path: Path) -> Root:
    """An exporter (100) that a local agent (200), a pod (300) and two other machines talk to; the agent calls out as well."""
    files = {
        "proc/1/net/tcp": HEAD
        + row(address("0.0.0.0", 9100), address("0.0.0.0", 0), "0A", 11)
        + row(address("127.0.0.1", 9100), address("127.0.0.1", 40001), "01", 12)
        + row(address("127.0.0.1", 40001), address("127.0.0.1", 9100), "01", 21)
        + row(address("10.0.0.1", 9100), address("10.0.0.8", 50000), "01", 13)
        + row(address("10.0.0.1", 9100), address("10.0.0.9", 50000), "01", 14)
        + row(address("10.0.0.1", 9100), address("10.0.0.9", 50001), "01", 15)
        + row(address("10.0.0.1", 40002), address("10.0.0.77", 443), "01", 22),
        "proc/1/net/unix": b"Num       RefCount Protocol Flags    Type St Inode Path\n"
        b"0: 00000002 00000000 00010000 0001 01 16 /run/exporter/a b.sock\n"
        b"0: 00000002 00000000 00010000 0001 01 17 @abstract\n",
        "proc/1/mountinfo": b"21 1 0:20 / /run rw - tmpfs tmpfs rw\n",
        "proc/100/cgroup": b"0::/system.slice/exporter.service\n",
        "proc/200/cgroup": b"4:memory:/elsewhere\n1:name=systemd:/system.slice/agent.service\n",
        "proc/300/cgroup": f"0::/kubepods.slice/{POD}/cri-containerd-{'a' * 64}.scope\n".encode(),
        "proc/300/mountinfo": b"90 1 0:20 /exporter /host/exporter rw - tmpfs tmpfs rw\n",
        "var/log/pods/ml_train-0_11111111-2222-3333-4444-555555555555/log": b"",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for pid, inodes in {1: (11,), 100: (11, 12, 13, 14, 15, 16, 17), 200: (21, 22), 300: ()}.items():
        (tmp_path / f"proc/{pid}/fd").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"proc/{pid}/ns").mkdir(parents=True)
        (tmp_path / f"proc/{pid}/ns/mnt").symlink_to(f"mnt:[{1 if pid < 300 else pid}]")
        for number, inode in enumerate(inodes):
            (tmp_path / f"proc/{pid}/fd/{number}").symlink_to(f"socket:[{inode}]")
    return Root(str(tmp_path))


def test_who_listens_who_is_connected_and_who_could_be(tmp_path: Path) -> None:
    found, note = read_sockets(node(tmp_path))
    assert note == "who is connected to Unix sockets was not told by the kernel"
    assert found["exporter.service"] == Sockets(
        (
            Endpoint("tcp", "0.0.0.0:9100", 4, ("agent.service",), 2),
            Endpoint("unix", "/run/exporter/a b.sock"),
            Endpoint("unix", "@abstract"),
        ),
        0,
        (),
        ("pod ml/train-0",),
    )
    assert found["agent.service"] == Sockets((), 1, ("exporter.service",))


def test_a_mount_is_followed_back_to_the_nodes_own_path() -> None:
    ours = [Mount((0, 20), "tmpfs", "/", "/run"), Mount((8, 1), "ext4", "/", "/"), Mount((8, 1), "ext4", "/data", "/mnt")]
    wanted = {"/run/docker.sock", "/run/containerd/containerd.sock", "/var/lib/x/x.sock"}
    for theirs, expected in (
        (Mount((0, 20), "tmpfs", "/docker.sock", "/var/run/docker.sock"), {"/run/docker.sock"}),
        (Mount((0, 20), "tmpfs", "/containerd", "/c"), {"/run/containerd/containerd.sock"}),
        (Mount((0, 20), "tmpfs", "/", "/host/run"), set()),  # all of /run is mounted for many reasons
        (Mount((8, 1), "ext4", "/var/lib/x", "/x"), {"/var/lib/x/x.sock"}),
        (Mount((0, 99), "tmpfs", "/docker.sock", "/x"), set()),
    ):
        assert shared(ours, [theirs], wanted) == expected


def test_what_systemd_does_not_say_of_a_service_stays_unknown() -> None:
    told = life("x.service", "active", "running", {"CPUUsageNSec": (1 << 64) - 1, "NRestarts": "seven"}, 10**9)
    assert (told.cpu_s, told.restarts, told.since_s, told.result) == (-1.0, -1, -1.0, "")
    known = {"CPUUsageNSec": 2_500_000_000, "StateChangeTimestampMonotonic": 4_000_000, "NRestarts": 3, "Result": "success"}
    told = life("x.service", "active", "running", known, 10_000_000)
    assert (told.cpu_s, told.restarts, told.since_s, told.result) == (2.5, 3, 6.0, "success")
