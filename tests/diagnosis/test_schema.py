"""The published JSON Schema and the page of kinds are made from the classes, and every report follows the schema."""

import json

import pytest
from jsonschema import Draft202012Validator

from exhume.diagnosis.findings.registry import KINDS
from exhume.diagnosis.report import as_json
from exhume.diagnosis.schema import PAGE, PUBLISHED, page, report_schema
from tests.golden.cases import SCENES, diagnosed, recordings


def test_the_published_schema_is_that_of_the_classes() -> None:
    assert json.loads(PUBLISHED.read_text()) == report_schema(), "python -m exhume.diagnosis.schema"


def test_the_page_of_kinds_is_that_of_the_classes() -> None:
    assert PAGE.read_text() == page(), "python -m exhume.diagnosis.schema"
    assert all(f"### {kind.facts.kind}\n" in page() for kind in KINDS)


def test_the_schema_itself_is_valid() -> None:
    Draft202012Validator.check_schema(report_schema())


@pytest.mark.parametrize("family", [*SCENES, "recordings"])
def test_every_golden_report_follows_the_schema(family: str) -> None:
    validator = Draft202012Validator(json.loads(PUBLISHED.read_text()))
    for name in recordings() if family == "recordings" else SCENES[family]:
        report, _ = diagnosed(family, name)
        assert [error.message for error in validator.iter_errors(json.loads(json.dumps(as_json(report))))] == [], name
