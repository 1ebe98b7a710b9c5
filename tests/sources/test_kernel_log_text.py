"""The kernel's log by syslog(2): the same lines as /dev/kmsg has, only the new ones each time."""

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.kernel.klog import read_all
from exhume.recording.recording import Node, Recording
from exhume.sources.kernel_log import KernelLog, unescaped
from exhume.sources.kernel_log_text import TextLog

RESET = (
    b"ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). "
    b"Time since last napi 6596000 usec. napi scheduled: 1"
)


def line(priority: int, usec: int, text: bytes, caller: bytes = b"") -> bytes:
    return b"<%d>[%5d.%06d]%s %s\n" % (priority, usec // 10**6, usec % 10**6, caller, text)


class Buffer:
    def __init__(self) -> None:
        self.raw = b""

    def read(self) -> bytes:
        return self.raw


def test_records_are_as_the_device_has_them() -> None:
    buffer = Buffer()
    log = TextLog(buffer.read)
    buffer.raw = line(4, 12_000_345, b"a \\x41 b") + line(12, 13_000_000, b"by a program", b"[  T123]")
    assert list(log.new()) == [b"4,1,12000345,-;a \\x5cx41 b", b"12,2,13000000,-;by a program"]
    assert unescaped(b"a \\x5cx41 b") == "a \\x41 b"


def test_only_what_is_new_is_given_and_what_was_overwritten_is_a_gap() -> None:
    buffer = Buffer()
    log = TextLog(buffer.read)
    buffer.raw = line(6, 1, b"first")
    assert len(list(log.new())) == 1
    assert list(log.new()) == []
    buffer.raw += line(6, 2, b"second") + line(6, 2, b"second")
    assert list(log.new()) == [b"6,2,2,-;second", b"6,3,2,-;second"]
    buffer.raw = b"torn\n" + line(6, 9, b"after a flood")
    assert list(log.new()) == [b"6,5,9,-;after a flood"]


@given(st.lists(st.lists(st.tuples(st.integers(0, 10**9), st.binary(max_size=40)), max_size=8), max_size=8))
def test_each_line_is_given_once_whatever_it_holds(batches: list[list[tuple[int, bytes]]]) -> None:
    buffer = Buffer()
    log = TextLog(buffer.read)
    given_texts, moment = [], 0
    for batch in batches:
        for step, text in batch:
            moment += step + 1
            buffer.raw += line(6, moment, text.replace(b"\n", b" "))
        given_texts += list(log.new())
    assert len(given_texts) == sum(map(len, batches))


@given(st.binary(max_size=400))
def test_garbage_is_no_trouble(raw: bytes) -> None:
    try:
        records = list(TextLog(lambda: raw).new())
    except Unreadable:
        return
    assert all(isinstance(record, bytes) for record in records)


def test_a_log_without_times_is_not_taken() -> None:
    with pytest.raises(Unreadable, match=r"printk\.time"):
        TextLog(lambda: b"<6>no time\n").new()


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel's log needs root")
def test_the_real_log_is_the_same_both_ways() -> None:
    fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        device = []
        while True:
            try:
                device.append(os.read(fd, 16 << 10))
            except BlockingIOError:
                break
    finally:
        os.close(fd)
    plain = re.compile(rb"(\d+),\d+,(\d+),[^;]*;([^\n]*)")
    heads = [match.groups() for one in device if (match := plain.match(one)) and b"\\x" not in match[3]]
    by_call = {match.groups() for one in TextLog().new() if (match := plain.match(one))}
    newest = heads[-20:]
    assert newest
    assert set(newest) <= by_call


def test_a_node_whose_device_is_not_there_is_read_by_the_call(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """As in a container: the root is the host's, its /dev is not mounted."""
    monkeypatch.setattr(TextLog.__init__, "__defaults__", (lambda: line(4, 12_000_000, RESET),))
    monkeypatch.setattr(Root, "same_kernel", lambda self: True)
    recording = Recording(Node("node", "boot", "6.1", "v2", 2))
    KernelLog(Root(str(tmp_path))).read(recording, 20 * 10**9)
    (event,) = recording["events"].rows()
    assert (event["time"], event["subject"]) == (12 * 10**9, "eth0")


def test_another_machines_root_is_not_read_by_this_ones_call(tmp_path: object) -> None:
    with pytest.raises(Unreadable, match="/dev/kmsg is not there"):
        KernelLog(Root(str(tmp_path))).read(Recording(Node("node", "boot", "6.1", "v2", 2)), 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel's log needs root")
def test_the_whole_buffer_is_read() -> None:
    assert read_all().startswith(b"<")
