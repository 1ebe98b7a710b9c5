"""Concepts that several commands judge by have one definition, and give one answer wherever they are asked."""

import re
from pathlib import Path

import pytest

from exhume.diagnosis.findings import zombie_memcgs
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.fleet import directory, inventory
from exhume.fleet.sick import Figures, sick
from exhume.remedy import criteria_count
from exhume.remedy.proof_checklist import Known
from tests.diagnosis.findings import made
from tests.fleet.test_cohorts_directory import row, write

SOURCE = Path(__file__).resolve().parent.parent / "src" / "exhume"


def places(pattern: str) -> list[str]:
    expression = re.compile(pattern)
    return [
        str(file.relative_to(SOURCE)) for file in sorted(SOURCE.rglob("*.py")) for _ in expression.findall(file.read_text())
    ]


def test_a_recording_gets_its_anchors_in_one_place() -> None:
    assert places(r'\["anchors"\]\.add\(') == ["recording/recording.py"]


def test_readers_are_driven_in_one_place() -> None:
    """Apart from readers that ask another for a number of theirs."""
    assert places(r"\breader\.read\(") == ["recorder/readers.py"]


@pytest.mark.parametrize(
    ("zombies", "live", "many"),
    [(999, 10, False), (1000, 10, True), (1000, 200, True), (1000, 201, False), (1199, 240, False), (1200, 240, True)],
)
def test_many_zombies_are_many_in_finding_proof_checklist_and_fleet(
    tmp_path: Path, zombies: int, live: int, many: bool
) -> None:
    limits = Thresholds()
    it = made.recording()
    for second in range(3):
        it["memcg"].add(second * made.SECOND, "/", live, zombies, live + zombies, "proc-cgroups", "node", 1)
    (finding,) = zombie_memcgs.detect(it, limits).findings
    assert limits.many_zombies(zombies, live) is many
    assert finding.serious is many
    assert bool(criteria_count.many(it, limits)) is many
    assert Known(zombies=zombies, live=live).many is many
    assert sick(Figures(zombies=zombies, live=live), limits).sick is many
    write(tmp_path / "minutes.parquet", [row("a", i, dying=zombies, live=live) for i in range(30)])
    (node,) = directory.load(str(tmp_path)).nodes
    assert node.sick is many


def test_a_node_is_as_sick_by_its_minutes_as_by_the_same_figures_of_any_other_source(tmp_path: Path) -> None:
    minutes = [row("a", i, dying=20_000, resets=int(i < 4), stall_ms=100, saturated_ms=9000) for i in range(60)]
    write(tmp_path / "minutes.parquet", minutes)
    (by_minutes,) = directory.load(str(tmp_path)).nodes
    figures = Figures(zombies=20_000, live=240, resets=4, stall_s=6.0, saturated_s=540.0, seen_s=3600.0)
    judged = sick(figures)
    assert (by_minutes.sick, by_minutes.why) == (True, judged.why)
    assert by_minutes.badness == pytest.approx(judged.badness)
    (tmp_path / "nodes.csv").write_text("node,zombies,live,resets\na,20000,240,4\n")
    (by_inventory,) = inventory.load(str(tmp_path / "nodes.csv")).nodes
    assert by_inventory.badness == pytest.approx(sick(Figures(zombies=20_000, live=240, resets=4)).badness)


def test_a_day_of_many_zombies_is_sick_although_the_last_boot_has_none_or_tells_nothing() -> None:
    leaking = sick(Figures(zombies=500, live=240, leak_per_day=8_640))
    for now in (None, 0.0):
        judged = sick(Figures(zombies=now, live=240, most_zombies=50_000, zombies_s=86_400, resets=0))
        assert judged.sick
        assert judged.badness > leaking.badness
    assert sick(Figures(health="warning", cause="steal", subject="node")).badness > leaking.badness
