"""/proc/net/softnet_stat of old and new kernels, with cores missing, and of this node."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.source_state import sentences
from exhume.sources.softnet import Softnet, parse_softnet

# A 5.4 kernel: eleven columns, none names the core.
OLD = (
    "0000272d 00000000 00000001 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000\n"
    "000034d9 00000002 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000007 00000003\n"
)


def new(cpu: int, processed: int = 0, dropped: int = 0, squeezed: int = 0, backlog: int = 0) -> str:
    """A line of a 6.4 kernel."""
    columns = [processed, dropped, squeezed, 0, 0, 0, 0, 0, 0, 0, 0, backlog, cpu, backlog, 0]
    return " ".join(f"{column:08x}" for column in columns) + "\n"


def recording() -> Recording:
    return Recording(Node("node", "boot", "6.18", "v2", 2))


def node(tmp_path: Path, softnet: str, online: str | None = None) -> Root:
    (tmp_path / "proc/net").mkdir(parents=True, exist_ok=True)
    (tmp_path / "proc/net/softnet_stat").write_text(softnet)
    if online is not None:
        (tmp_path / "sys/devices/system/cpu").mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys/devices/system/cpu/online").write_text(online)
    return Root(str(tmp_path))


def values(kept: Recording, name: str) -> dict[str, int]:
    return {dict(at)["cpu"]: series.last for at, series in kept.counters(name).items()}


def test_this_node_has_a_row_for_each_core_online() -> None:
    kept = recording()
    assert sentences(Softnet(Root()).read(kept, 1)) == ""
    online = os.sysconf("SC_NPROCESSORS_ONLN")
    assert len(kept.counters("softnet_processed")) == online
    assert sum(values(kept, "softnet_processed").values()) > 0


def test_another_root_is_read_as_its_init_sees_it(tmp_path: Path) -> None:
    root = node(tmp_path, new(0, processed=1))
    (tmp_path / "proc/1/net").mkdir(parents=True)
    (tmp_path / "proc/1/net/softnet_stat").write_text(new(0, processed=2))
    kept = recording()
    Softnet(root).read(kept, 1)
    assert values(kept, "softnet_processed") == {"0": 2}


def test_the_row_names_its_core_where_the_kernel_does(tmp_path: Path) -> None:
    cores = [core for core in range(96) if core != 39]
    kept = recording()
    root = node(tmp_path, "".join(new(core, core + 1, squeezed=core, backlog=2) for core in cores))
    assert sentences(Softnet(root).read(kept, 1)) == ""
    assert values(kept, "softnet_processed") == {str(core): core + 1 for core in cores}
    assert values(kept, "softnet_squeezed")["95"] == 95
    assert values(kept, "softnet_backlog")["40"] == 2


def test_older_rows_belong_to_the_cores_online_in_order(tmp_path: Path) -> None:
    kept = recording()
    assert sentences(Softnet(node(tmp_path, OLD, "0,2\n")).read(kept, 1)) == ""
    assert values(kept, "softnet_processed") == {"0": 0x272D, "2": 0x34D9}
    assert values(kept, "softnet_dropped") == {"0": 0, "2": 2}
    assert values(kept, "softnet_squeezed") == {"0": 1, "2": 0}
    assert values(kept, "softnet_received_rps") == {"0": 0, "2": 7}
    assert values(kept, "softnet_flow_limit") == {"0": 0, "2": 3}
    assert values(kept, "softnet_backlog") == {}


def test_rows_that_fit_no_core_are_not_guessed(tmp_path: Path) -> None:
    kept = recording()
    assert "2 rows for 3 cores" in sentences(Softnet(node(tmp_path, OLD, "0-2\n")).read(kept, 1))
    assert len(kept["counters"]) == 0


def test_without_a_list_of_cores_the_rows_are_numbered_and_the_note_says_so(tmp_path: Path) -> None:
    kept = recording()
    assert "in order" in sentences(Softnet(node(tmp_path, OLD)).read(kept, 1))
    assert set(values(kept, "softnet_processed")) == {"0", "1"}


def test_only_what_changed_is_added(tmp_path: Path) -> None:
    kept = recording()
    reader = Softnet(node(tmp_path, new(0, 10) + new(1, 20)))
    reader.read(kept, 1)
    rows = len(kept["counters"])
    reader.read(kept, 2)
    assert len(kept["counters"]) == rows
    node(tmp_path, new(0, 10) + new(1, 25, squeezed=1))
    reader.read(kept, 3)
    assert [(row["name"], row["labels"], row["value"]) for row in kept["counters"].rows()][rows:] == [
        ("softnet_processed", labels(cpu=1), 25),
        ("softnet_squeezed", labels(cpu=1), 1),
    ]


def test_a_count_that_went_round_goes_on_and_a_backlog_that_shrank_does_not(tmp_path: Path) -> None:
    kept = recording()
    reader = Softnet(node(tmp_path, new(0, processed=0xFFFF_FFF0, backlog=9)))
    reader.read(kept, 1)
    node(tmp_path, new(0, processed=0x10, backlog=2))
    reader.read(kept, 2)
    node(tmp_path, new(0, processed=0x11, backlog=3))
    reader.read(kept, 3)
    series = kept.counter("softnet_processed", labels(cpu=0))
    assert series is not None
    assert series.delta == 0x21
    assert series.last == (1 << 32) + 0x11
    assert values(kept, "softnet_backlog") == {"0": 3}


def test_a_line_that_was_cut_off_is_not_taken_for_a_small_number(tmp_path: Path) -> None:
    whole = new(0, 0x12345678) + new(1, 0x12345678)
    kept = recording()
    Softnet(node(tmp_path, whole[:-1])).read(kept, 1)
    assert set(values(kept, "softnet_processed")) == {"0"}


def test_a_node_without_the_file_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="softnet_stat is not there"):
        Softnet(Root(str(tmp_path))).read(recording(), 1)


@pytest.mark.parametrize("text", ["", "\n", "not hex at all, but nine words long it is\n", "-1 " * 9 + "\n"])
def test_a_file_without_a_row_is_unreadable(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unreadable, match="no line"):
        Softnet(node(tmp_path, text)).read(recording(), 1)


@given(st.binary(max_size=400) | st.text("0123456789abcdef \n", max_size=400).map(str.encode))
def test_garbage_never_breaks_the_parser(raw: bytes) -> None:
    for row in parse_softnet(raw):
        assert 9 <= len(row) <= 64
        assert all(0 <= column < 1 << 32 for column in row)
