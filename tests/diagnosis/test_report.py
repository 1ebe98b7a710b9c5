"""The report as JSON: read back it is the same, and a file that is no report is refused with a sentence."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnosis.findings.registry import KINDS
from exhume.diagnosis.report import MOST_LINKS, SCHEMA, Report, as_json, from_json
from exhume.errors import UsageError
from tests.diagnosis import made
from tests.diagnosis.findings.facts import finding
from tests.golden import cases

FAMILIES: dict[str, Callable[[], list[str]]] = {
    **{family: lambda family=family: list(cases.SCENES[family]) for family in cases.SCENES},  # type: ignore[misc]
    "recordings": cases.recordings,
}
EVERY_KIND = [finding(kind.facts) for kind in KINDS]
GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def written(report: Report) -> dict[str, Any]:
    """As a reader of the file has it."""
    document: dict[str, Any] = json.loads(json.dumps(as_json(report), allow_nan=False))
    return document


@pytest.mark.parametrize("family", FAMILIES)
def test_a_report_is_the_same_after_writing_and_reading(family: str) -> None:
    for name in FAMILIES[family]():
        report, _ = cases.diagnosed(family, name)
        document = as_json(report)
        assert as_json(from_json(json.loads(json.dumps(document)))) == document, name


def test_a_report_with_every_kind_of_finding_is_the_same_after_writing_and_reading() -> None:
    document = written(made.report(*EVERY_KIND, cause="memcg-leak", culprits=("a.service", "b.service", "c.service")))
    assert [one["kind"] for one in document["findings"]] == [kind.facts.kind for kind in KINDS]
    assert written(from_json(document)) == document


def test_findings_are_meant_by_their_id_or_their_kind() -> None:
    report = from_json(written(made.report(*EVERY_KIND)))
    assert report.find("f1") == report.find("memcg-leak") == report.findings[:1]
    assert report.find("f99") == report.find("nonsense") == ()


@pytest.mark.parametrize("schema", ["exhume.report/1", "exhume.report/3"])
def test_a_report_of_another_schema_is_refused(schema: str) -> None:
    document = {**written(made.report()), "schema": schema}
    with pytest.raises(UsageError, match=rf"schema {schema}, and this exhume reads {SCHEMA}: make it again"):
        from_json(document)


def test_a_chain_has_no_thousands_of_links() -> None:
    document = written(made.report(EVERY_KIND[0], chain=EVERY_KIND[:1] * (MOST_LINKS + 1)))
    with pytest.raises(UsageError, match="chain must be a list of at most 100"):
        from_json(document)


@pytest.mark.parametrize("document", [None, [], 1, "x", {}, {"schema": 1}, {"schema": "exhume.plan/1"}, {"schema": [SCHEMA]}])
def test_another_document_is_refused(document: object) -> None:
    with pytest.raises(UsageError, match=r"no report of exhume check or diagnose|must be an object"):
        from_json(document)


@given(st.dictionaries(st.sampled_from(sorted(as_json(made.report()))), GARBAGE), st.booleans())
def test_any_json_is_a_report_or_a_sentence(document: dict[str, object], of_schema: bool) -> None:
    read({**document, "schema": SCHEMA} if of_schema else document)


@cache
def whole() -> str:
    """A document in which every field is there."""
    report, _ = cases.diagnosed("scenes", "as_published")
    return json.dumps(as_json(report))


@given(st.data())
def test_a_report_with_anything_in_the_place_of_a_field_is_a_report_or_a_sentence(data: st.DataObject) -> None:
    document = data.draw(st.sampled_from([whole(), json.dumps(as_json(made.report(*EVERY_KIND)))]).map(json.loads))
    places = list(_places(document))
    container, key = data.draw(st.sampled_from(places))
    container[key] = data.draw(GARBAGE)
    read(document)


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every member of every object and list."""
    for key, value in list(document.items() if isinstance(document, dict) else enumerate(document)):
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)


def read(document: object) -> None:
    """UsageError is all that may come of it; what is read can be written, displayed, and read again."""
    try:
        report = from_json(document)
    except UsageError:
        return
    for one in report.findings:
        assert all(isinstance(text, str) for text in (*one.facts.short(), one.facts.unit, *one.facts.cgroup_paths))
        assert all(isinstance(item.text, str) for item in one.evidence)
    again = written(report)
    assert written(from_json(again)) == again


def test_a_report_that_was_cut_is_refused() -> None:
    """Otherwise `exhume fix f2` would act on another finding than the file shows as f2."""
    report, _ = cases.diagnosed("scenes", "as_published")
    document = as_json(report)
    del document["findings"][0]
    with pytest.raises(UsageError, match="another id than f1"):
        from_json(document)


@pytest.mark.parametrize("huge", [10**400, -(10**400), 1e308, float("inf")])
def test_numbers_that_overflow_are_refused(huge: float) -> None:
    report, _ = cases.diagnosed("scenes", "as_published")
    document = as_json(report)
    for place, one in enumerate(document["findings"]):
        for name, value in one["facts"].items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                changed = {**one, "facts": {**one["facts"], name: huge}}
                found = [*document["findings"][:place], changed, *document["findings"][place + 1 :]]
                with pytest.raises(UsageError):
                    from_json({**document, "findings": found})
