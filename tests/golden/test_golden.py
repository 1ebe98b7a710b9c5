"""The oracle: no judgement changes unnoticed, and every threshold is noticed by a case."""

import json
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from exhume.diagnosis.findings.thresholds import Thresholds
from tests.golden import cases
from tests.golden.dump import changes, dumps
from tests.golden.proofs import RECORDINGS

HERE = Path(__file__).parent
KNOWN_WRONG: dict[str, dict[str, str]] = json.loads((HERE / "known_wrong.json").read_text())
"""By golden file and case: the truth, where the golden judgement is known to be wrong."""
SMALL, ALL_SMALL = 150 << 10, 2 << 20
"""Bytes of a recording, and of all of them."""


@cache
def kept(file: str) -> dict[str, Any]:
    path = HERE / f"{file}.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def compare(file: str) -> None:
    now = cases.FILES[file]()
    if found := changes(file, kept(file), json.loads(dumps(now)), KNOWN_WRONG.get(file, {})):
        pytest.fail(f"judgements changed:\n\n{found}\n\nif that is intended: python -m tests.golden {file}", pytrace=False)
    assert (HERE / f"{file}.json").read_text() == dumps(now), f"only the form differs: python -m tests.golden {file}"


# One test per family: reports and the plans made from them are in one process, also with pytest-xdist.
FAMILIES = {
    family: [file for file in cases.FILES if file.removesuffix("_plans") == family]
    for family in cases.FILES
    if not family.endswith("_plans")
}


@pytest.mark.parametrize("family", FAMILIES)
def test_no_judgement_has_changed(family: str) -> None:
    for file in FAMILIES[family]:
        compare(file)


def test_every_golden_file_belongs_to_cases() -> None:
    assert {path.stem for path in HERE.glob("*.json")} == {*cases.FILES, "known_wrong"}


@pytest.mark.parametrize("file", KNOWN_WRONG)
def test_every_known_wrong_case_exists(file: str) -> None:
    gone = [case for case in KNOWN_WRONG[file] if case not in kept(file)]
    assert gone == [], "remove the mark, or bring the case back"


def test_every_number_has_a_stable_key() -> None:
    lines = {line.strip() for file in cases.FILES for line in dumps(kept(file)).splitlines()}
    assert sorted(line for line in lines if line.startswith('"? ')) == [], "add a key to tests/golden/numbers.py"


def test_the_recordings_are_small_and_do_not_name_the_machine() -> None:
    sizes = {name: sum(file.stat().st_size for file in (RECORDINGS / name).rglob("*")) for name in cases.recordings()}
    assert len(sizes) >= 10
    assert max(sizes.values()) <= SMALL
    assert sum(sizes.values()) <= ALL_SMALL
    for chapter in RECORDINGS.glob("*/*/chapter.json"):
        assert json.loads(chapter.read_text())["node"]["hostname"] == "node"


# Per threshold: a factor, and the case that notices when the threshold is multiplied by it.
NOTICED: dict[str, tuple[float, str, str]] = {
    **{name: (2, "edges", name) for name in cases.SCENES["edges"]},
    "empty_dirs_ratio": (0.5, "edges", "empty_dirs_ratio"),
    "irq_share": (0.5, "edges", "irq_share"),
    "others_kernel_ratio": (0.5, "edges", "others_kernel_ratio"),
    "memcg_walk_stretch_ms": (0.5, "edges", "memcg_walk_stretch_ms"),
    "crash_hasty_s": (0.5, "edges", "crash_hasty_s"),
    "core_saturated_warning_ratio": (2, "edges", "core_saturated_ms"),
    "recent_s": (0.5, "trees", "the_incident_an_hour_ago"),
}
# Only the findings show the change of these; the verdict is the same.
VERDICT_STAYS = {
    "leak_share", "leak_per_minute", "leak_fewest", "zombies_baseline", "memcg_walk_ms", "napi_stall_ms", "throttled_ratio",
    "throttled_periods", "throttled_warning_ratio", "throttled_warning_periods", "steal_ratio", "steal_wait_ratio",
    "steal_core_ratio", "direct_reclaim_pages", "stretch_s", "minor_faults",
}  # fmt: skip
JUDGEMENT = ("health", "cause", "subject", "confidence", "chain", "culprits", "remedies")


def test_every_threshold_has_a_case_that_notices_it() -> None:
    assert {field.name for field in fields(Thresholds)} == set(NOTICED)


@pytest.mark.parametrize("name", NOTICED)
def test_a_changed_threshold_changes_its_case(name: str) -> None:
    factor, file, case = NOTICED[name]
    usual = getattr(Thresholds(), name)
    other = replace(Thresholds(), **{name: type(usual)(usual * factor)})
    golden, now = kept(file)[case], json.loads(dumps({case: cases.report(file, case, other)}))[case]
    differs = [key for key in golden if golden[key] != now[key]]
    assert differs != [], f"{case} is the same with {name} multiplied by {factor}"
    assert name in VERDICT_STAYS or set(differs) & set(JUDGEMENT), f"only the findings of {case} change"
