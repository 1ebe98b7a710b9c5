"""The reader of /dev/kmsg, on the real device and on trees that hold a plain file in its place."""

import errno
import gc
import os
import stat
import uuid
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import sentences
from exhume.sources import kernel_log
from exhume.sources.kernel_log import KernelLog
from tests.examples import examples

PAUSED = (
    "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). "
    "Time since last napi 6596000 usec. napi scheduled: 1"
)
INCIDENT = f"""\
6,100,5000000,-;docker0: port 3(veth1234567) entered blocking state
 SUBSYSTEM=net
 DEVICE=n5
3,101,6123456,-,caller=T42;{PAUSED}
 SUBSYSTEM=pci
 DEVICE=+pci:0000:20:03.0
3,102,6123460,-;ena 0000:20:03.0 eth0: napi handler hasn't been called for a long time but is scheduled
3,103,7000001,-;ena 0000:20:03.0: Device reset completed, status: 0, Driver info: Elastic Network Adapter (ENA) v2.13.1g\\x0a
"""


def recording() -> Recording:
    return Recording(Node("host", "boot", "6.18", "v1", 2))


def tree(path: Path, kmsg: str | bytes) -> Root:
    (path / "dev").mkdir(exist_ok=True)
    (path / "dev/kmsg").write_bytes(kmsg.encode() if isinstance(kmsg, str) else kmsg)
    return Root(str(path))


def last(seen: Recording, counter: str) -> int:
    series = seen.counter(counter)
    assert series is not None
    return series.last


def test_the_lines_of_an_incident_become_events_at_the_time_of_the_record(tmp_path: Path) -> None:
    seen = recording()
    note = sentences(KernelLog(tree(tmp_path, INCIDENT)).read(seen, 9_000_000_000))
    events = seen["events"]
    assert note == ""
    assert events.texts("kind") == ["nic-queue-paused", "nic-napi-late", "nic-reset-done"]
    assert list(events.ints("time")) == [6_123_456_000, 6_123_460_000, 7_000_001_000]
    assert events.texts("subject") == ["eth0", "eth0", "eth0"]
    assert events.texts("message")[0] == PAUSED
    assert dict(next(events.rows())["fields"])["napi_age_ms"] == "6596"


def test_all_records_of_the_kernel_are_counted(tmp_path: Path) -> None:
    seen = recording()
    text = "6,7,1,-;abc\n14,8,2,-;not the kernel's\n4,9,3,-;defgh\n K=v\n"
    KernelLog(tree(tmp_path, text)).read(seen, 5)
    assert last(seen, "printk_records") == 2
    assert last(seen, "printk_bytes") == len("abc") + len("defgh")
    assert last(seen, "printk_seq") == 10


def test_later_calls_read_only_what_is_new_and_counters_go_on(tmp_path: Path) -> None:
    seen = recording()
    reader = KernelLog(tree(tmp_path, INCIDENT))
    reader.read(seen, 1)
    reader.read(seen, 2)
    assert len(seen["events"]) == 3
    with (tmp_path / "dev/kmsg").open("a") as log:
        log.write(f"3,104,8000000,-;{PAUSED}\n")
    reader.read(seen, 3)
    assert len(seen["events"]) == 4
    series = seen.counter("printk_records")
    assert series is not None
    assert list(series.values) == [4, 4, 5]


def test_the_second_half_of_a_pair_in_the_next_call_finds_its_first(tmp_path: Path) -> None:
    seen = recording()
    lost = (
        "[1/2] Lost TX completions are above threshold (361 > 128), completion timeout: 5000 (msec), "
        "10052 msecs since interrupt, 10044 msecs since napi, qid: 4"
    )
    reader = KernelLog(tree(tmp_path, f"3,1,1,-;ena 0000:20:03.0 eth0: {lost}\n"))
    reader.read(seen, 1)
    with (tmp_path / "dev/kmsg").open("a") as log:
        log.write("3,2,2,-;ena 0000:20:03.0 eth0: [2/2] qid: 39, napi CPU: 4\n")
    reader.read(seen, 2)
    fields = [dict(row["fields"]) for row in seen["events"].rows()]
    assert (fields[1]["queue"], fields[1]["cpu"]) == ("4", "39")


@pytest.mark.parametrize("priority", [8, 14, 30, 191])
def test_what_a_program_wrote_is_not_believed_but_told(tmp_path: Path, priority: int) -> None:
    seen = recording()
    text = f"{priority},1,1,-;{PAUSED}\n{priority},2,2,-;hello\n3,3,3,-;{PAUSED}\n"
    note = sentences(KernelLog(tree(tmp_path, text)).read(seen, 5))
    assert list(seen["events"].ints("time")) == [3000]
    assert note == "1 lines that look like the kernel's were written by a program: not believed"


def test_escapes_are_undone_byte_by_byte(tmp_path: Path) -> None:
    seen = recording()
    path = "/pod-\\xc3\\xa9\\x5c\\x0aena 0000:20:03.0 eth0: Trigger reset is on\\xff"
    KernelLog(tree(tmp_path, f"4,1,1,-;cgroup: fork rejected by pids controller in {path}\n")).read(seen, 5)
    assert seen["events"].texts("kind") == ["fork-rejected"]
    assert seen["events"].texts("subject") == ["/pod-é\\\nena 0000:20:03.0 eth0: Trigger reset is on\\xff"]


def test_the_tab_before_the_stalled_cpu_is_an_escape_as_well(tmp_path: Path) -> None:
    seen = recording()
    KernelLog(tree(tmp_path, "3,1,1,-;\\x0939-....: (20999 ticks this GP) idle=64a\n")).read(seen, 5)
    assert seen["events"].texts("subject") == ["cpu39"]


def test_a_line_that_an_old_kernel_gives_out_in_pieces_is_put_together(tmp_path: Path) -> None:
    seen = recording()
    text = "4,1,1000,c;cgroup: fork rejected by pids controller in \n4,2,1001,+;/kubepods\n4,3,1002,+;/pod1\n4,4,1003,-;x\n"
    KernelLog(tree(tmp_path, text)).read(seen, 5)
    assert seen["events"].texts("subject") == ["/kubepods/pod1"]
    assert list(seen["events"].ints("time")) == [1_000_000]


def test_a_gap_in_the_sequence_numbers_is_told_and_counted(tmp_path: Path) -> None:
    seen = recording()
    note = sentences(KernelLog(tree(tmp_path, "6,10,1,-;a\n6,1511,2,-;b\n")).read(seen, 5))
    assert note == "1,500 records were overwritten before they could be read"
    assert last(seen, "printk_records") == 2
    assert last(seen, "printk_seq") == 1512


def test_two_logs_one_after_the_other_lose_nothing(tmp_path: Path) -> None:
    assert sentences(KernelLog(tree(tmp_path, "6,10,1,-;a\n6,11,2,-;b\n6,0,1,-;a\n6,1,2,-;b\n")).read(recording(), 5)) == ""


def test_a_file_without_a_last_newline_loses_no_record(tmp_path: Path) -> None:
    seen = recording()
    KernelLog(tree(tmp_path, INCIDENT.rstrip("\n"))).read(seen, 5)
    assert len(seen["events"]) == 3


def test_a_record_of_many_kilobytes_is_cut_and_stays_one(tmp_path: Path) -> None:
    seen = recording()
    long = "3,1,1,-;cgroup: fork rejected by pids controller in /" + "x" * 3_000_000
    note = sentences(KernelLog(tree(tmp_path, f"{long}\n3,2,2,-;{PAUSED}\n")).read(seen, 5))
    assert note == ""
    assert seen["events"].texts("kind") == ["fork-rejected", "nic-queue-paused"]


def test_a_record_above_8_kib_is_read_whole(tmp_path: Path) -> None:
    seen = recording()
    path = "/" + "x" * 10_000
    KernelLog(tree(tmp_path, f"3,1,1,-;cgroup: fork rejected by pids controller in {path}\n")).read(seen, 5)
    assert seen["events"].texts("subject") == [path]


def test_one_call_takes_so_many_records_and_the_next_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_MOST", 2)
    seen = recording()
    reader = KernelLog(tree(tmp_path, INCIDENT))
    assert sentences(reader.read(seen, 1)) == "stopped after 2 records, the rest comes next"
    assert seen["events"].texts("kind") == ["nic-queue-paused"]
    reader.read(seen, 2)
    assert sentences(reader.read(seen, 3)) == ""
    assert len(seen["events"]) == 3
    assert last(seen, "printk_records") == 4


def test_what_was_in_the_buffer_before_is_not_counted_as_new_however_long_it_takes_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_log, "_MOST", 2)
    seen = recording()
    reader = KernelLog(tree(tmp_path, INCIDENT))  # all of it from before the eighth second
    for second in (10, 11, 12):
        reader.read(seen, second * 10**9)
    with (tmp_path / "dev/kmsg").open("a") as log:
        log.write("6,104,12500000,-;something new\n")
    reader.read(seen, 13 * 10**9)
    series = seen.counter("printk_records")
    assert series is not None
    assert list(series.values) == [0, 0, 0, 1]
    assert last(seen, "printk_bytes") == len("something new")
    assert len(seen["events"]) == 3


def test_records_that_cannot_be_understood_are_told(tmp_path: Path) -> None:
    seen = recording()
    text = b"\x00\xff\n6,1\n99999999999,1,1,-;x\n6,1,99999999999999999999,-;x\n6,1,1,-;good\n6,2,2,-"
    note = sentences(KernelLog(tree(tmp_path, text)).read(seen, 5))
    assert note == "5 records could not be understood"
    assert last(seen, "printk_records") == 1


def test_an_empty_log_is_no_error(tmp_path: Path) -> None:
    seen = recording()
    assert sentences(KernelLog(tree(tmp_path, "")).read(seen, 5)) == ""
    assert last(seen, "printk_records") == 0
    assert seen.counter("printk_seq") is None


def test_a_node_without_the_device_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="/dev/kmsg is not there"):
        KernelLog(Root(str(tmp_path))).read(recording(), 1)


def test_a_directory_in_its_place_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "dev/kmsg").mkdir(parents=True)
    with pytest.raises(Unreadable, match="/dev/kmsg cannot be read"):
        KernelLog(Root(str(tmp_path))).read(recording(), 1)


def test_dev_null_in_its_place_is_not_taken_for_a_silent_kernel(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    try:
        os.mknod(tmp_path / "dev/kmsg", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("a device can be made by root alone")
    with pytest.raises(Unreadable, match="some other device"):
        KernelLog(Root(str(tmp_path))).read(recording(), 1)


def test_a_fifo_in_its_place_does_not_hold_the_reader(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    reader = KernelLog(Root(str(tmp_path)))
    assert sentences(reader.read(recording(), 1)) == ""
    writer = os.open(tmp_path / "dev/kmsg", os.O_WRONLY)
    try:
        assert sentences(reader.read(recording(), 2)) == ""
    finally:
        os.close(writer)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
def test_without_permission_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Unreadable, match=r"run as root, or .* kernel\.dmesg_restrict=0"):
        KernelLog(Root(str(tmp_path))).read(recording(), 1)


def open_on(file: Path) -> int:
    """How many descriptors of ours lead to that file, whatever else is open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.path.samestat(os.fstat(int(name)), file.stat())
        except OSError:  # the one that the listing itself used
            continue
    return found


def test_the_descriptor_goes_with_the_reader(tmp_path: Path) -> None:
    reader = KernelLog(tree(tmp_path, INCIDENT))
    reader.read(recording(), 1)
    log = tmp_path / "dev/kmsg"
    assert open_on(log) == 1
    del reader
    gc.collect()
    assert open_on(log) == 0


def real_device() -> KernelLog:
    try:
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"/dev/kmsg: {error.strerror}")
    return KernelLog(Root())


def test_the_ring_buffer_of_this_kernel_is_read_once() -> None:
    reader = real_device()
    seen = recording()
    reader.read(seen, 1)
    at_first = last(seen, "printk_records")
    assert last(seen, "printk_seq") >= at_first > 0
    reader.read(seen, 2)
    assert last(seen, "printk_records") - at_first < at_first


def answering(monkeypatch: pytest.MonkeyPatch, *answers: bytes | OSError) -> None:
    """Has read(2) give these answers: to overwrite the ring buffer of this machine for a test would be rude."""
    left = list(answers)

    def read(_fd: int, _size: int) -> bytes:
        answer = left.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(os, "read", read)


@pytest.mark.parametrize("number", [errno.EPIPE, errno.EINVAL])
def test_overwritten_records_are_passed_over_and_told(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    reader = real_device()
    seen = recording()
    with monkeypatch.context() as patch:
        answering(patch, b"3,1,1,-;a\n", OSError(number, ""), f"3,42,2,-;{PAUSED}\n".encode(), BlockingIOError())
        note = sentences(reader.read(seen, 5))
    assert note == "40 records were overwritten before they could be read"
    assert seen["events"].texts("kind") == ["nic-queue-paused"]


def test_what_was_read_before_the_device_failed_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = real_device()
    seen = recording()
    with monkeypatch.context() as patch:
        answering(patch, f"3,1,1,-;{PAUSED}\n".encode(), OSError(errno.EIO, ""))
        with pytest.raises(Unreadable, match="/dev/kmsg cannot be read"):
            reader.read(seen, 5)
    assert seen["events"].texts("kind") == ["nic-queue-paused"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write to /dev/kmsg")
def test_a_real_impostor_cannot_speak_as_the_kernel() -> None:
    reader = real_device()
    before = recording()
    reader.read(before, 1)
    mark = f"exhume test {uuid.uuid4()}, nothing is wrong"
    try:
        with open("/dev/kmsg", "wb", buffering=0) as log:
            # Asks for facility 0, as the kernel's own lines have it; without the newline it would wait to be continued.
            log.write(f"<3>{PAUSED} ({mark})\n".encode())
    except OSError as error:
        pytest.skip(f"/dev/kmsg cannot be written: {error.strerror}")
    copy = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    try:
        written = [record for record in kernel_log._of_device(copy) if mark.encode() in record]
    finally:
        os.close(copy)
    if not written:
        pytest.skip("the kernel dropped the line: printk_devkmsg is off, or limits the rate")
    seen = recording()
    note = sentences(reader.read(seen, 2))
    assert not [message for message in seen["events"].texts("message") if mark in message]
    assert "written by a program: not believed" in note


RECORDS = st.lists(
    st.one_of(
        st.binary(max_size=80),
        st.builds(
            lambda priority, seq, usec, flag, text: b"%d,%d,%d,%s;%s" % (priority, seq, usec, flag, text),
            st.integers(0, 1 << 40),
            st.integers(0, 1 << 70),
            st.integers(0, 1 << 70),
            st.sampled_from([b"-", b"c", b"+", b"", b"-,caller=T1"]),
            st.one_of(st.binary(max_size=60), st.sampled_from([PAUSED.encode(), b"INFO: task \\xff:1 blocked for more"])),
        ),
    ),
    max_size=12,
).map(b"\n".join)


@settings(max_examples=examples(200))
@given(RECORDS)
def test_no_bytes_whatever_raise(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    seen = recording()
    KernelLog(tree(tmp_path_factory.mktemp("root"), raw)).read(seen, 1)
    seen["events"].ints("time")
    for name in ("printk_records", "printk_bytes"):
        last(seen, name)
