"""Nodes ranked by how bad, as text, as JSON and as an exit code."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli.fleet_status_text import beside_the_table, render
from exhume.cli.main import main
from exhume.cli.terminal import Style
from exhume.fleet.model import Fleet, Node
from exhume.fleet.sick import Figures, pain_in, sick
from exhume.fleet.status import as_json, status

CAPTURE = pytest.CaptureFixture[str]
HEAD = "node,zone,zombies,live,leak_per_day,resets,uptime_s,health\n"
SICK = "sick-1,b,68680,240,8640,5,691200,critical\n"
WORSE = "sick-2,b,90000,240,8640,9,891200,critical\n"
LEAKING = "leaks,a,900,240,8640,0,9000,healthy\n"
WELL = "well,a,4,240,0,0,999999,healthy\n"


def inventory(tmp_path: Path, *rows: str) -> str:
    (tmp_path / "fleet.csv").write_text(HEAD + "".join(rows))
    return str(tmp_path / "fleet.csv")


def test_the_worst_is_first_and_those_that_will_be_sick_follow(tmp_path: Path, capsys: CAPTURE) -> None:
    assert main(["fleet", "status", inventory(tmp_path, WELL, LEAKING, SICK, WORSE)]) == 2
    printed = capsys.readouterr().out
    assert printed.startswith("CRITICAL  2 of 4 nodes are sick, 1 leak and will hurt within a week")
    assert printed.index("sick-2") < printed.index("sick-1") < printed.index("leaks")
    assert "well" not in printed
    assert "\x1b" not in printed
    (row,) = [line for line in printed.splitlines() if "sick-1" in line]
    assert row.split() == ["sick-1", "sick", "68,680", "+8,640", "now", "5", "8", "d"]
    (row,) = [line for line in printed.splitlines() if "leaks" in line]
    assert row.split() == ["leaks", "leaking", "900", "+8,640", "2", "d", "5", "h", "0", "2", "h", "30", "min"]


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [
        ((WELL,), 0, "HEALTHY  None of 1 node is sick"),
        ((WELL, LEAKING), 1, "WARNING  None of 2 nodes is sick, 1 leak"),
        ((WELL, SICK), 2, "CRITICAL  1 of 2 nodes is sick"),
        (("x,a,,,,,,\n",), 3, "UNKNOWN  Nothing says of any of 1 node"),
        ((WELL, "x,a,,,,,,\n"), 0, "HEALTHY  None of 2 nodes is sick, of 1 nothing says"),
    ],
)
def test_the_exit_code_says_it_to_scripts(tmp_path: Path, capsys: CAPTURE, rows: tuple[str, ...], code: int, said: str) -> None:
    assert main(["fleet", "status", inventory(tmp_path, *rows)]) == code
    assert capsys.readouterr().out.startswith(said)


def test_json_has_every_node_or_the_top(tmp_path: Path, capsys: CAPTURE) -> None:
    path = inventory(tmp_path, WELL, LEAKING, SICK)
    assert main(["fleet", "status", path, "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "exhume.fleet-status/1"
    assert (found["nodes"], found["sick"], found["leaking"], found["healthy"], found["unknown"]) == (3, 1, 1, 1, 0)
    assert [each["node"] for each in found["ranked"]] == ["sick-1", "leaks", "well"]
    first = found["ranked"][0]
    assert (first["zombies"], first["leak_per_day"], first["days_to_pain"], first["resets"]) == (68680, 8640, 0, 5)
    assert first["facts"] == {"zone": "b"}
    assert found["ranked"][1]["days_to_pain"] == pytest.approx(19_100 / 8640, abs=0.01)
    main(["fleet", "status", path, "--json", "--top", "1"])
    assert len(json.loads(capsys.readouterr().out)["ranked"]) == 1


@pytest.mark.parametrize(
    ("why", "shown"),
    [
        (
            "critical: memcg-leak of /system.slice/ecs.service; 85,896 zombies; 4 NIC resets",
            "critical: memcg-leak of /system.slice/ecs.service",
        ),
        ("10,954 zombies", ""),
        ("33 NIC resets; polls late 1.7% of the time", "polls late 1.7% of the time"),
        ("68,680 zombies beside 240 live memory cgroups", "68,680 zombies beside 240 live memory cgroups"),
        ("the disk is full; polls late 1.7% of the time", "the disk is full; polls late 1.7% of the time"),
    ],
)
def test_what_the_row_says_is_not_said_again_below_it(why: str, shown: str) -> None:
    assert beside_the_table(why) == shown


def test_thresholds_of_the_configuration_are_what_nodes_are_judged_by(tmp_path: Path, capsys: CAPTURE) -> None:
    path = inventory(tmp_path, "few,a,1500,10,0,0,9999,\n", "fewer,b,4,240,0,0,9999,\n")
    settings = tmp_path / "exhume.toml"
    settings.write_text("[thresholds]\nzombies_floor = 5000\n")
    assert main(["fleet", "status", path]) == 2
    assert main(["fleet", "status", path, "--config", str(settings)]) == 0
    assert main(["fleet", "cohorts", path]) == 1
    assert main(["fleet", "cohorts", path, "--config", str(settings)]) == 0
    assert "none of 2 nodes is sick" in capsys.readouterr().out
    fix = ["fleet", "fix", path, "x.service", "--exec", "true {node}", "--journal", str(tmp_path / "j")]
    main([*fix, "--config", str(settings)])
    assert "No node is sick" in capsys.readouterr().out


def test_two_sources_are_joined_by_node(tmp_path: Path, capsys: CAPTURE) -> None:
    (tmp_path / "more.jsonl").write_text('{"node": "sick-1.example.com", "image": "base-7"}\n')
    assert main(["fleet", "status", inventory(tmp_path, SICK), str(tmp_path / "more.jsonl"), "--json"]) == 2
    (row,) = json.loads(capsys.readouterr().out)["ranked"]
    assert row["facts"] == {"zone": "b", "image": "base-7"}


def test_wrong_usage_and_sources_that_are_none(tmp_path: Path, capsys: CAPTURE) -> None:
    assert main(["fleet", "status", "/nowhere"]) == 64
    assert "a fleet is one of:" in capsys.readouterr().err
    assert main(["fleet", "status", inventory(tmp_path, WELL), "--top", "0"]) == 64


def test_days_to_pain() -> None:
    assert pain_in(68_680, 0) == 0
    assert pain_in(2000, 1800) == pytest.approx(10)
    assert pain_in(2000, 0) is None
    assert pain_in(None, 1000) is None
    assert pain_in(2000, None) is None


def test_a_node_is_judged_by_figures_and_by_who_looked_at_it() -> None:
    assert sick(Figures()).sick is None
    assert sick(Figures(zombies=900, live=10)).sick is False
    assert sick(Figures(zombies=1100, live=240)).sick is False
    assert sick(Figures(zombies=1300, live=240)).sick is True
    assert sick(Figures(resets=1)).sick is False
    assert sick(Figures(resets=3)).why == "3 NIC resets"
    assert sick(Figures(stall_s=10, seen_s=600)).why == "polls late 1.7% of the time"
    assert sick(Figures(saturated_s=10, seen_s=600)).sick is False
    assert sick(Figures(health="warning")).why == "warning: cause not visible"
    leaking = Figures(
        health="critical", zombies=68_000.0, live=80.0
    )  # a leak makes no incident by default, so no verdict names it
    assert sick(leaking).why == "critical: 68,000 zombies"


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False, min_value=-1e12, max_value=1e12)


@given(
    st.lists(
        st.builds(
            Node,
            st.text(max_size=80),
            st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
            st.sampled_from([True, False, None]),
            st.floats(0, 1e6),
            st.text(max_size=300),
            numbers,
            numbers,
            numbers,
            numbers,
            st.floats(0, 1e9),
        ),
        max_size=6,
    ),
    st.integers(1, 8),
)
def test_hostile_names_are_shown_safely_and_everything_is_json(nodes: list[Node], top: int) -> None:
    found = status(Fleet("x", tuple(nodes), ("t",)))
    printed = render(found, Style(io.StringIO()), 100, top)
    assert all(line.isprintable() for line in printed.split("\n"))
    assert len(as_json(found)["ranked"]) == len(nodes)
    json.dumps(as_json(found), allow_nan=False)
    states = [row.state for row in found.rows]
    assert states == sorted(states, key=["sick", "leaking", "unknown", "healthy"].index)
