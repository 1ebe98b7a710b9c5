"""A mistake in the configuration is named by its place."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.config import load, section
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import UsageError


def written(tmp_path: Path, text: str) -> str:
    file = tmp_path / "exhume.toml"
    file.write_text(text)
    return str(file)


def test_thresholds_are_taken_from_the_file_and_the_rest_keeps_its_default(tmp_path: Path) -> None:
    thresholds = section(
        load(written(tmp_path, "[thresholds]\nzombies_floor = 50\nsteal_ratio = 0.5\n")), "thresholds", Thresholds
    )
    assert (thresholds.zombies_floor, thresholds.steal_ratio) == (50, 0.5)
    assert thresholds.zombies_per_live == Thresholds().zombies_per_live


def test_the_environment_names_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXHUME_CONFIG", written(tmp_path, "[thresholds]\nzombies_floor = 7\n"))
    assert section(load(), "thresholds", Thresholds).zombies_floor == 7


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[thresholds]\nzombie_floor = 1\n", "thresholds.zombie_floor"),
        ("[thresholds]\nzombies_floor = 'many'\n", "thresholds.zombies_floor"),
        ("[thresholds]\nzombies_floor = 1.5\n", "thresholds.zombies_floor"),
        ("[thresholds]\nzombies_floor = true\n", "thresholds.zombies_floor"),
        ("[thresholds]\nzombies_per_live = nan\n", "thresholds.zombies_per_live"),
        ("[thresholds]\nsteal_ratio = -1\n", "thresholds.steal_ratio"),
        ("[threshold]\n", "[threshold]"),
        ("thresholds = 3\n", "thresholds"),
        ("[thresholds]\nzombies_floor = \n", "line 2"),
    ],
)
def test_a_mistake_is_named_by_its_place(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(UsageError) as error:
        section(load(written(tmp_path, text)), "thresholds", Thresholds)
    assert named in str(error.value)


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not there"):
        load(str(tmp_path / "nowhere.toml"))


@given(st.binary(max_size=200))
def test_garbage_is_refused_in_a_sentence(raw: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(raw)
        file.flush()
        try:
            thresholds = section(load(file.name), "thresholds", Thresholds)
        except UsageError:
            return
        assert thresholds.zombies_floor >= 0
