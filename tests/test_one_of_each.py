"""Concepts that are defined once."""

import re
from pathlib import Path

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
