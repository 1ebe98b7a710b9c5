"""The scramble test: with every display string replaced by random text at import, no judgement changes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.cases import FILES
from tests.golden.test_golden import FAMILIES

ROOT = Path(__file__).resolve().parents[2]
EVERY_DAY = "scenes"


@pytest.mark.parametrize("family", [pytest.param(one, marks=[] if one == EVERY_DAY else [pytest.mark.ci]) for one in FAMILIES])
def test_a_judgement_does_not_depend_on_any_sentence(family: str) -> None:
    assert set(FAMILIES[family]) <= set(FILES)
    command = [sys.executable, "-m", "tests.golden.scramble", "1", *FAMILIES[family]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    scrambled = int(done.stdout.split()[-4])
    assert scrambled > 1000
