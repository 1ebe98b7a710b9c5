"""The netdev family of netlink: asked on this kernel, and given garbage."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.kernel.netdev import Napi, NapiQueue, Netdev, attributes, messages, parse_napi, parse_queue, raise_error


def attribute(kind: int, value: int, width: str = "=I") -> bytes:
    return struct.pack("=HH", 4 + struct.calcsize(width), kind) + struct.pack(width, value)


def test_this_kernel_tells_the_queues_of_devices_that_are_up() -> None:
    try:
        netdev = Netdev()
    except OSError as error:
        pytest.skip(f"no netdev family here: {error.strerror}")
    try:
        try:
            napis, queues = netdev.napis(), netdev.queues()
        except OSError as error:
            pytest.skip(f"this kernel does not tell queues: {error.strerror}")
    finally:
        netdev.close()
    here = {
        int((device / "ifindex").read_text()): device.name for device in Path("/sys/class/net").iterdir() if device.is_dir()
    }
    assert {queue.ifindex for queue in queues} <= set(here)
    assert {napi.ifindex for napi in napis} <= set(here)
    for queue in queues:
        assert os.path.isdir(f"/sys/class/net/{here[queue.ifindex]}/queues/{queue.side}-{queue.number}")
    assert {queue.napi for queue in queues} - {None} <= {napi.id for napi in napis}


def test_a_namespace_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "net").write_bytes(b"")
    with pytest.raises(OSError, match=r"Invalid argument|not permitted"):
        Netdev(str(tmp_path / "net"))


def test_a_napi_has_its_interrupt_and_its_thread_where_there_are_any() -> None:
    bare = attribute(1, 4) + attribute(2, 8193)
    assert parse_napi(bare) == Napi(4, 8193, None, None, None)
    assert parse_napi(bare + attribute(3, 61) + attribute(4, 977) + attribute(8, 1)) == Napi(4, 8193, 61, 977, True)
    assert parse_napi(attribute(2, 8193)) is None


def test_a_queue_is_of_one_direction() -> None:
    assert parse_queue(attribute(1, 5) + attribute(2, 4) + attribute(3, 1) + attribute(4, 8193)) == NapiQueue(4, "tx", 5, 8193)
    assert parse_queue(attribute(1, 5) + attribute(2, 4) + attribute(3, 0)) == NapiQueue(4, "rx", 5, None)
    assert parse_queue(attribute(1, 5) + attribute(2, 4) + attribute(3, 7)) is None


def test_an_error_is_raised_and_an_acknowledgement_is_not() -> None:
    raise_error(struct.pack("=i", 0))
    with pytest.raises(FileNotFoundError):
        raise_error(struct.pack("=i", -2))
    with pytest.raises(OSError, match="Protocol error"):
        raise_error(b"")


@given(st.binary(max_size=300))
def test_garbage_never_breaks_the_parsers(raw: bytes) -> None:
    assert sum(len(value) for value in attributes(raw).values()) <= len(raw)
    for kind, message in messages(raw):
        assert 0 <= kind < 1 << 16
        assert len(message) <= len(raw)
    napi, queue = parse_napi(raw), parse_queue(raw)
    assert napi is None or napi.ifindex >= 0
    assert queue is None or queue.side in ("rx", "tx")


@given(st.lists(st.tuples(st.integers(0, 0x3FFF), st.binary(max_size=40)), unique_by=lambda pair: pair[0], max_size=20))
def test_attributes_are_read_back(pairs: list[tuple[int, bytes]]) -> None:
    raw = b"".join(struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4) for kind, value in pairs)
    assert attributes(raw) == dict(pairs)
