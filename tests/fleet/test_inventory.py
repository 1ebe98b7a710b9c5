"""Tables that people keep, as they keep them: CSV, JSON lines, Parquet, and damage."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import ExhumeError, UsageError
from exhume.fleet import inventory, sources
from exhume.fleet.model import Node


def loaded(tmp_path: Path, name: str, raw: bytes) -> dict[str, Node]:
    (tmp_path / name).write_bytes(raw)
    return {node.name: node for node in sources.open(str(tmp_path / name)).nodes}


def test_csv_has_facts_of_the_right_kind_and_figures_are_judged(tmp_path: Path) -> None:
    raw = (
        b"\xef\xbb\xbfNode,zone,kernel,cpus,batch,gpu,zombies,live,leak_per_day,resets,note\r\n"
        b'a,"zone, b",5.10,96,007,true,68680,240,8640,4,\r\n'
        b"b,zone-a,5.4,48,012,false,3,240,0,0,n/a\r\n"
    )
    found = loaded(tmp_path, "fleet.csv", raw)
    a, b = found["a"], found["b"]
    assert a.facts == {"zone": "zone, b", "kernel": "5.10", "cpus": 96.0, "batch": "007", "gpu": True}
    assert (a.sick, a.zombies, a.leak_per_day, a.resets) == (True, 68680, 8640, 4)
    assert a.why == "68,680 zombies; 4 NIC resets"
    assert (b.sick, b.why, b.badness) == (False, "", 0.0)
    assert a.badness > b.badness


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters(tmp_path: Path, delimiter: str) -> None:
    found = loaded(tmp_path, "list", delimiter.join(["host", "zone"]).encode() + b"\n" + delimiter.join("ab").encode() + b"\n")
    assert found["a"].facts == {"zone": "b"}


def test_json_lines_with_damage_are_read_as_far_as_they_can_be(tmp_path: Path) -> None:
    good = b'{"node": "a", "sick": true, "zone": "z", "n": {"x": 1}}'
    raw = good + b'\n{"node": \n[1]\n{"zone": "y"}\n{"node": "b", "sick": false}\n{"node": "b"}'
    (tmp_path / "x.jsonl").write_bytes(raw)
    fleet = sources.open(str(tmp_path / "x.jsonl"))
    assert [(node.name, node.sick, node.why) for node in fleet.nodes] == [("a", True, "the inventory says so"), ("b", None, "")]
    assert fleet.nodes[0].facts == {"zone": "z", "n": '{"x": 1}'}
    assert "3 rows without the name of a node" in fleet.troubles[0]
    assert "1 row of nodes that were there before" in fleet.troubles[1]


def test_a_json_array_and_parquet_are_read_too(tmp_path: Path) -> None:
    assert loaded(tmp_path, "x.json", json.dumps([{"name": "a", "cpus": 4}]).encode())["a"].facts == {"cpus": 4.0}
    pq.write_table(pa.table({"node": ["p", "q"], "cpus": [1, None], "gpu": [True, False]}), tmp_path / "x.parquet")
    nodes = sources.open(str(tmp_path / "x.parquet")).nodes
    assert [node.facts for node in nodes] == [{"cpus": 1.0, "gpu": True}, {"gpu": False}]


@pytest.mark.parametrize(
    ("name", "raw", "said"),
    [
        ("x.csv", b"", "has no nodes"),
        ("x.csv", b"zone\na\n", "has no nodes: a row for each, with its name in a column node"),
        ("x.parquet", b"PAR1", "is not Parquet that can be read"),
        ("x.json", b"[[[", "has no nodes"),
    ],
)
def test_what_is_no_inventory_is_said_in_a_sentence(tmp_path: Path, name: str, raw: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(ExhumeError, match=said):
        sources.open(str(tmp_path / name))


@pytest.mark.parametrize("text", ["/nowhere/at-all", "ftp://x/y", "gopher://x"])
def test_what_is_no_source_is_told_with_all_that_are(text: str) -> None:
    with pytest.raises(UsageError, match="k8s:CONTEXT"):
        sources.open(text)


@given(st.binary(max_size=300), st.sampled_from(["x.csv", "x.jsonl", "x.tsv", "x.json", "x"]))
def test_garbage_is_rows_or_a_sentence(raw: bytes, name: str) -> None:
    try:
        nodes = inventory.fleet(inventory.rows_of(raw, name), name).nodes
    except ExhumeError:
        nodes = ()
    assert all(node.name for node in nodes)
    assert all(isinstance(value, str | float | bool) for node in nodes for value in node.facts.values())


cells = st.text(st.characters(exclude_characters='\r\n",;\t\0', exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(st.dictionaries(cells.map(str.strip).filter(bool), cells, min_size=1, max_size=6))
def test_what_was_written_is_read(zones: dict[str, str]) -> None:
    raw = "node,zone\n" + "".join(f'"{name}","{zone}"\n' for name, zone in zones.items())
    fleet = inventory.fleet(inventory.rows_of(raw.encode(), "x.csv"), "x")
    assert [node.name for node in fleet.nodes] == list(zones)
    for node in fleet.nodes:
        kept = node.facts.get("zone")
        assert kept is None or str(kept).lower() == zones[node.name].strip().lower() or isinstance(kept, float)
