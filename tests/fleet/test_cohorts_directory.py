"""A fleet read from a directory: the rule by which a node is sick, boots put together, and files of every kind."""

import contextlib
import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.fleet.directory import load
from exhume.fleet.directory_minutes import Life, merged
from exhume.fleet.model import Fleet, Node
from tests.examples import examples
from tests.fleet.test_engine import Parts

BEGIN = datetime(2025, 3, 1, tzinfo=UTC).replace(tzinfo=None)
MINUTE = timedelta(minutes=1)


def row(node: str, minute: int, boot: int = 0, **values: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {"live": 240, "dying": 3, "saturated_ms": 0, "stalls": 0, "stall_ms": 0, "resets": 0}
    return {"node": node, "time": BEGIN + minute * MINUTE, "booted": BEGIN + boot * MINUTE, **usual, **values}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(each, default=str) + "\n" for each in rows))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(rows), path)


def node(fleet: Fleet, name: str) -> Node:
    (found,) = (each for each in fleet.nodes if each.name == name)
    return found


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_every_kind_of_file_gives_the_same_fleet(tmp_path: Path, ending: str) -> None:
    write(
        tmp_path / f"nodes.{ending}",
        [{"node": "a", "zone": "x", "gpus": 8, "kernel": "5.10"}, {"node": "b", "zone": "y", "gpus": 4, "kernel": "5.4"}],
    )
    write(tmp_path / f"minutes.{ending}", [row("a", i, dying=10 * i) for i in range(200)] + [row("b", i) for i in range(200)])
    fleet = load(str(tmp_path))
    assert [each.name for each in fleet.nodes] == ["a", "b"]
    assert dict(node(fleet, "a").facts) == {"zone": "x", "gpus": 8.0, "kernel": "5.10"}
    a = node(fleet, "a")
    assert a.sick is True
    assert a.why == "1,990 zombies"
    assert (a.zombies, a.uptime_s, a.exposed_s) == (1990, 199 * 60, 199 * 60)
    assert a.leak_per_day == pytest.approx(14_400)
    assert node(fleet, "b").sick is False


@pytest.mark.parametrize(
    ("values", "minutes", "sick"),
    [
        ({"dying": 1200}, 5, True),
        ({"dying": 1200}, 4, False),
        ({"dying": 1199}, 100, False),
        ({"dying": 1000, "live": 100}, 5, True),
        ({"dying": 999, "live": 10}, 100, False),
        ({"dying": 1001, "live": None}, 5, True),
        ({"resets": 1}, 3, True),
        ({"resets": 1}, 2, False),
        ({"stall_ms": 1000}, 8, True),
        ({"stall_ms": 1000}, 7, False),
        ({"saturated_ms": 12_001}, 60, True),
        ({"saturated_ms": 12_000}, 60, False),
    ],
)
def test_the_rule_by_which_a_node_is_sick(tmp_path: Path, values: dict[str, Any], minutes: int, sick: bool) -> None:
    rows = [row("a", i, **(values if i < minutes else {})) for i in range(120)]
    write(tmp_path / "minutes.parquet", rows)
    assert node(load(str(tmp_path)), "a").sick is sick


def test_a_node_of_which_nothing_was_measured_is_neither_sick_nor_healthy(tmp_path: Path) -> None:
    write(tmp_path / "minutes.parquet", [{"node": "a", "time": BEGIN + i * MINUTE} for i in range(50)])
    found = node(load(str(tmp_path)), "a")
    assert found.sick is None
    assert found.uptime_s is None


def test_boots_are_told_apart_and_what_was_reached_before_a_reboot_counts(tmp_path: Path) -> None:
    rows = [row("a", i, boot=-1440, dying=8640 + 6 * i) for i in range(300)]
    rows += [row("a", i, boot=305, dying=6 * (i - 305)) for i in range(305, 500)]
    write(tmp_path / "minutes/1.parquet", rows[:100])
    write(tmp_path / "minutes/2.parquet", rows[100:])
    fleet = load(str(tmp_path))
    found = node(fleet, "a")
    assert found.sick is True
    assert (found.uptime_s, found.exposed_s) == (194 * 60, (1440 + 299) * 60)
    assert found.zombies == 6 * 194
    assert [(boot.zombies_from, boot.zombies) for boot in fleet.boots] == [(8640, 8640 + 6 * 299), (0, 6 * 194)]


def test_a_boot_whose_time_is_worked_out_anew_each_minute_is_one(tmp_path: Path) -> None:
    rows = [{**row("a", i), "booted": BEGIN - timedelta(seconds=59 + i % 7, microseconds=i)} for i in range(100)]
    write(tmp_path / "minutes.parquet", rows)
    assert len(load(str(tmp_path)).boots) == 1


def test_nodes_that_only_one_of_the_files_has_are_told_of(tmp_path: Path) -> None:
    write(tmp_path / "nodes.csv", [{"node": "silent", "zone": "x"}, {"node": "both", "zone": "y"}])
    write(tmp_path / "minutes.csv", [row(name, i) for name in ("both", "strange") for i in range(10)])
    fleet = load(str(tmp_path))
    assert [(each.name, each.sick) for each in fleet.nodes] == [("both", False), ("silent", None), ("strange", False)]
    assert len(fleet.troubles) == 2


def test_an_inventory_that_says_who_is_sick_needs_no_minutes(tmp_path: Path) -> None:
    write(
        tmp_path / "nodes.csv",
        [{"node": f"n{i}", "kernel": "5.4", "sick": str(i < 3).lower(), "uptime_s": i} for i in range(9)],
    )
    fleet = load(str(tmp_path))
    assert [each.sick for each in fleet.nodes] == [True] * 3 + [False] * 6
    assert fleet.nodes[4].uptime_s == 4.0
    assert all(set(each.facts) == {"kernel"} for each in fleet.nodes)


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("nodes.parquet", b"PAR1 no", "cannot be read"),
        ("nodes.csv", b"name,zone\na,b\n", "has no column `node`"),
        ("minutes.jsonl", b"{broken", "cannot be read"),
        ("other.txt", b"", "it is no fleet"),
    ],
)
def test_what_is_no_fleet_is_said_in_a_sentence(tmp_path: Path, name: str, content: bytes, complaint: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ExhumeError, match=complaint):
        load(str(tmp_path))


def test_a_path_that_is_no_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="is not a directory"):
        load(str(tmp_path / "none"))


@given(
    st.lists(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), min_size=3, max_size=3), max_size=8),
    st.binary(max_size=60),
)
@settings(max_examples=examples(25))
def test_an_inventory_of_anything_is_read_or_refused_in_a_sentence(
    tmp_path_factory: Any, rows: list[list[str]], tail: bytes
) -> None:
    root = tmp_path_factory.mktemp("hostile")
    with (root / "nodes.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["node", "zone", "a'; DROP"], *rows])
    with (root / "nodes.csv").open("ab") as raw:
        raw.write(tail)
    with contextlib.suppress(ExhumeError):  # anything else is a bug
        fleet = load(str(root))
        assert len(fleet.nodes) <= len(rows) + tail.count(b"\n") + tail.count(b"\r") + 1


SOME_LIFE = st.builds(
    lambda node, booted, first, length, count: Life(
        node,
        None if booted is None else float(booted),
        1,
        float(first),
        float(first + length),
        count,
        count,
        count,
        240,
        count,
        0,
        0,
        1,
        0,
        None if count is None else float(first),
        None if count is None else float(first + length),
    ),
    st.sampled_from(["a", "b"]),
    st.none() | st.integers(0, 3).map(lambda i: i * 10_000),
    st.integers(0, 50_000),
    st.integers(0, 1000),
    st.none() | st.integers(0, 100),
)


@given(st.lists(SOME_LIFE, max_size=8), st.randoms(use_true_random=False))
def test_parts_of_a_boot_are_put_together_whatever_their_order(rows: list[Life], random: Any) -> None:
    shuffled = random.sample(rows, len(rows))
    one, other = merged(rows), merged(shuffled)

    def told(lives: list[Life]) -> list[tuple[object, ...]]:
        return [(each.node, each.booted, each.minutes, each.first, each.last, each.resets, each.zombies_most) for each in lives]

    assert told(one) == told(other)
    assert sum(each.minutes for each in one) == len(rows)
    assert len({(each.node, each.booted) for each in one}) == len(one)


def test_zombies_are_counted_from_when_they_are_known_whichever_file_they_are_in(tmp_path: Path) -> None:
    """In one file the count is not known at first; in the other, whose minutes lie between, it is."""
    unknown = [row("a", i, dying=None if i < 200 else 6 * i) for i in range(0, 400, 2)]
    known = [row("a", i, dying=6 * i) for i in range(1, 400, 2)]
    write(tmp_path / "minutes/0.parquet", unknown)
    write(tmp_path / "minutes/1.parquet", known)
    whole = load(str(tmp_path))
    assert load(str(tmp_path), engine=Parts(2)) == whole
    assert (whole.boots[0].zombies_from, whole.boots[0].zombies) == (6, 6 * 399)
    write(tmp_path / "late/minutes/0.parquet", unknown)
    assert load(str(tmp_path / "late")).nodes[0].leak_per_day == pytest.approx(6 * 1440)


def test_the_pass_agrees_with_a_count_by_hand(tmp_path: Path) -> None:
    """Against DuckDB's own plain aggregates, over nodes whose rows are spread over files."""
    rows = [
        row(f"n{i % 7}", i // 7, dying=(i * 37) % 3000, resets=int(i % 41 == 0), stall_ms=(i * 13) % 1500) for i in range(2100)
    ]
    for part in range(3):
        write(tmp_path / f"minutes/{part}.parquet", rows[part::3])
    fleet = load(str(tmp_path))
    counted = duckdb.execute(
        f"SELECT node, sum(resets), last(dying ORDER BY time) FROM '{tmp_path}/minutes/*.parquet' GROUP BY node ORDER BY node"
    ).fetchall()
    assert [(each.name, each.resets, each.zombies) for each in fleet.nodes] == counted
