"""/proc/softirqs with 96 cores and with CPUs that do not exist, and of this node."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.source_state import sentences
from exhume.sources.interrupts import CpuTable
from exhume.sources.softirqs import Softirqs


def recording() -> Recording:
    return Recording(Node("node", "boot", "6.18", "v2", 2))


def softirqs(tmp_path: Path, cpus: list[int], **vectors: list[int]) -> Root:
    """As show_softirqs() prints it."""
    text = " " * 20 + "".join(f"CPU{cpu:<8d}" for cpu in cpus) + "\n"
    for vector, counts in vectors.items():
        text += f"{vector:>12}:" + "".join(f" {count:10d}" for count in counts) + "\n"
    (tmp_path / "proc").mkdir(exist_ok=True)
    (tmp_path / "proc/softirqs").write_text(text)
    return Root(str(tmp_path))


def test_this_node_counts_timer_and_net_rx() -> None:
    kept = recording()
    assert sentences(Softirqs(Root()).read(kept, 1)) == ""
    vectors = {dict(at)["vector"] for at in kept.counters("softirqs")}
    assert {"TIMER", "RCU"} <= vectors
    assert all(series.last > 0 for series in kept.counters("softirqs").values())


def test_a_cell_is_a_core_and_a_vector_and_zeros_are_left_out(tmp_path: Path) -> None:
    cpus = list(range(128))  # 96 that exist; the others are possible, so they have a column
    root = softirqs(tmp_path, cpus, NET_RX=[cpu + 1 if cpu < 96 else 0 for cpu in cpus], HI=[0] * 128)
    kept = recording()
    Softirqs(root).read(kept, 1)
    found = kept.counters("softirqs")
    assert len(found) == 96
    assert found[labels(cpu=39, vector="NET_RX")].last == 40


def test_only_what_changed_is_added_and_what_was_zero_starts_at_zero(tmp_path: Path) -> None:
    kept = recording()
    reader = Softirqs(softirqs(tmp_path, [0, 1], NET_RX=[5, 0], TIMER=[7, 7]))
    reader.read(kept, 10)
    softirqs(tmp_path, [0, 1], NET_RX=[5, 3], TIMER=[8, 7])
    reader.read(kept, 20)
    net_rx = kept.counters("softirqs")[labels(cpu=1, vector="NET_RX")]
    assert (net_rx.times.tolist(), net_rx.values.tolist(), net_rx.delta) == ([10, 20], [0, 3], 3)
    assert kept.counters("softirqs")[labels(cpu=0, vector="TIMER")].delta == 1
    assert len(kept["counters"]) == 3 + 2 + 1


@pytest.mark.parametrize("text", [b"", b"\n", b"CPU0", b"CPUx CPU1\nHI: 1 2\n", b"HI: 1 2\n", b"\xff\x00\n\n"])
def test_a_file_without_a_header_is_unreadable(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/softirqs").write_bytes(text)
    with pytest.raises(Unreadable, match="names no CPU"):
        Softirqs(Root(str(tmp_path))).read(recording(), 1)


def test_lines_that_are_short_or_no_numbers_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    head = b"   CPU0   CPU1\n"
    (tmp_path / "proc/softirqs").write_bytes(head + b"HI: 1\nX: a b\n: 1 2\nBIG: 1 9999999999999999999\nTIMER: 1 2\nRCU: 1 2")
    kept = recording()
    Softirqs(Root(str(tmp_path))).read(kept, 1)
    assert {(at, series.last) for at, series in kept.counters("softirqs").items()} == {
        (labels(cpu=0, vector="TIMER"), 1),
        (labels(cpu=1, vector="TIMER"), 2),
        (labels(cpu=0, vector="BIG"), 1),
    }


LINES = st.lists(st.sampled_from([b"HI", b":", b" ", b"1", b"23", b"-", b"\n", b"\x1b", b"CPU0", b"x" * 300]), max_size=60)


@given(st.lists(st.binary(max_size=300) | LINES.map(lambda parts: b" CPU0 CPU1\n" + b"".join(parts)), max_size=4))
def test_garbage_never_breaks_the_table(readings: list[bytes]) -> None:
    table = CpuTable("proc/softirqs")
    for raw in readings:
        try:
            for _, cells in table.changes(raw):
                assert all(int(now) >= 0 and was != now for _, was, now in cells)
        except Unreadable:
            pass
