"""A misspelt fact is an error of the type checker, not silence: shown by mutations of a small module."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RIGHT = """
from exhume.diagnosis.findings.kind import Judged, Rule
from exhume.diagnosis.findings.memcg_walk import MemcgWalk
from exhume.diagnosis.findings.model import Finding
from exhume.diagnosis.findings.zombie_memcgs import ZombieMemcgs
from exhume.recording.source_state import Gap, SourceState


def judge(zombies: Finding[ZombieMemcgs], walk: Finding[MemcgWalk]) -> Judged:
    if zombies.facts.zombies < 1000 or walk.facts.walker.process.comm == "kswapd0":
        return None
    return 0.9, f"{walk.facts.walked_ms:,} ms"


RULE = Rule(ZombieMemcgs, MemcgWalk, judge)


def blind(state: SourceState) -> bool:
    gap = state.find(Gap)
    return gap is not None and gap.gap_ms >= 500
"""
MUTATIONS = {
    "a misspelt field": ("zombies.facts.zombies", "zombies.facts.zombis", "attr-defined"),
    "another unit": ("walk.facts.walked_ms", "walk.facts.walked_ns", "attr-defined"),
    "a fact of another kind": ("zombies.facts.zombies", "zombies.facts.walked_ms", "attr-defined"),
    "a rule that joins other kinds": (
        "Rule(ZombieMemcgs, MemcgWalk, judge)",
        "Rule(MemcgWalk, ZombieMemcgs, judge)",
        "arg-type",
    ),
    "a number taken for text": (
        'walk.facts.walker.process.comm == "kswapd0"',
        "walk.facts.walker.process.comm == 7",
        "comparison-overlap",
    ),
    "a misspelt parameter of a reason": ("gap.gap_ms", "gap.gap", "attr-defined"),
}


@pytest.mark.ci
def test_mutations_of_typed_code_are_errors(tmp_path: Path) -> None:
    """One run of mypy for all of them: it is the import of exhume that takes the time."""
    made = {"right": RIGHT}
    for name, (old, new, _) in MUTATIONS.items():
        assert old in RIGHT
        made[name] = RIGHT.replace(old, new)
    files = {name: tmp_path / f"mutation_{number}.py" for number, name in enumerate(made)}
    for name, file in files.items():
        file.write_text(made[name])
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *map(str, files.values())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    errors = {name: [line for line in done.stdout.splitlines() if file.name in line] for name, file in files.items()}
    assert errors["right"] == []
    for name, (_, _, code) in MUTATIONS.items():
        assert any(f"[{code}]" in line for line in errors[name]), (name, done.stdout, done.stderr)
