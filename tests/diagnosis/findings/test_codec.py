"""Facts as JSON: every class is the same after writing and reading, a file with a wrong type is refused by the field's name,
and the schema describes what is written."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from exhume.diagnosis.findings.codec import MOST_ITEMS, decode, encode, encode_facts, json_schema
from exhume.diagnosis.findings.loops import CgroupChurn, Observation, RestartCount
from exhume.diagnosis.findings.model import Facts, evidence
from exhume.diagnosis.findings.registry import KINDS
from exhume.errors import UsageError

CLASSES: tuple[type[Facts], ...] = tuple(kind.facts for kind in KINDS)
every_class = pytest.mark.parametrize("facts", CLASSES, ids=lambda facts: facts.kind)

_SCALARS: Mapping[type, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    bool: st.booleans(),
    int: st.integers(-(2**63) + 1, 2**63 - 1),
    float: st.floats(-1e18, 1e18),
}
GARBAGE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


def instances(of: Any) -> st.SearchStrategy[Any]:
    """Of any type that a field may have."""
    if get_origin(of) in (Union, UnionType):
        return st.one_of([st.none() if one is type(None) else instances(one) for one in get_args(of)])
    if get_origin(of) is tuple:
        item, rest = get_args(of)
        assert rest is ..., of
        return st.lists(instances(item), max_size=2).map(tuple)
    if get_origin(of) is Literal:
        return st.sampled_from(get_args(of))
    if isinstance(of, type) and is_dataclass(of):
        hints = get_type_hints(of)
        return st.builds(of, **{field.name: instances(hints[field.name]) for field in fields(of)})
    return st.sampled_from(list(of)) if issubclass(of, Enum) else _SCALARS[of]


def written(value: Any) -> Any:
    """As a reader of the file has it."""
    return json.loads(json.dumps(encode(value), allow_nan=False))


@every_class
@given(data=st.data())
def test_facts_are_the_same_after_writing_and_reading(facts: type[Facts], data: st.DataObject) -> None:
    made = data.draw(instances(facts))
    assert decode(facts, written(made), "facts") == made
    assert encode_facts(made) == {name: value for name, value in encode(made).items() if name != "subject"}


@every_class
@given(data=st.data())
def test_what_is_written_fits_the_schema(facts: type[Facts], data: st.DataObject) -> None:
    validator = Draft202012Validator(json_schema(facts))
    assert list(validator.iter_errors(written(data.draw(instances(facts))))) == []


@every_class
def test_the_schema_is_valid(facts: type[Facts]) -> None:
    schema = json_schema(facts, without=frozenset({"subject"}))
    Draft202012Validator.check_schema(schema)
    assert set(schema["properties"]) == {field.name for field in fields(facts)} - {"subject"}


@every_class
@given(data=st.data())
def test_a_field_of_another_type_is_refused_by_its_name(facts: type[Facts], data: st.DataObject) -> None:
    document = written(data.draw(instances(facts)))
    for name, hint in get_type_hints(facts).items():
        if name == "kind":
            continue
        wrong = [5, ["x"], {}] if hint is str else ["no such word", math.inf, b"bytes"]
        wrong += [True] if hint in (int, float, str) else []
        wrong += [None] if type(None) not in get_args(hint) else []
        for value in wrong:
            with pytest.raises(UsageError, match=rf"facts\.{name}\b"):
                decode(facts, {**document, name: value}, "facts")


@every_class
def test_a_field_that_must_be_there_is_asked_for(facts: type[Facts]) -> None:
    with pytest.raises(UsageError, match="facts has no subject"):
        decode(facts, {}, "facts")


@every_class
@given(data=st.data())
def test_garbage_is_read_or_refused(facts: type[Facts], data: st.DataObject) -> None:
    """Anything in any place of a file that is otherwise well formed."""
    document = written(data.draw(instances(facts)))
    place = data.draw(st.sampled_from(list(places(document))))
    put(document, place, data.draw(GARBAGE))
    try:
        read = decode(facts, document, "facts")
    except UsageError:
        return
    assert decode(facts, written(read), "facts") == read


@every_class
@given(document=GARBAGE)
def test_garbage_instead_of_facts_is_refused(facts: type[Facts], document: object) -> None:
    with pytest.raises(UsageError):
        decode(facts, document, "facts")


@every_class
@given(data=st.data())
def test_facts_of_any_file_can_be_displayed(facts: type[Facts], data: st.DataObject) -> None:
    made = data.draw(instances(facts))
    evidence(made)
    assert isinstance(made.summary(), str)
    assert len(made.short()) == 2


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def put(document: Any, place: tuple[Any, ...], value: object) -> None:
    *path, last = place
    for key in path:
        document = document[key]
    document[last] = value


@dataclass(frozen=True, slots=True)
class Holder:
    one: Observation | None
    many: tuple[Observation, ...] = ()
    number: float = 0.0


COUNT = RestartCount(7, 2, waiting=True, active="activating")
CHURN = CgroupChurn(5, 10**9, containers=True, killed=1, removed=5, unreleased=4)


def test_one_of_several_classes_has_the_name_of_its_class() -> None:
    document = written(Holder(COUNT, (CHURN, COUNT)))
    assert document["one"] == {"type": "restart-count", "total": 7, "in_window": 2, "waiting": True, "active": "activating"}
    assert [one["type"] for one in document["many"]] == ["cgroup-churn", "restart-count"]
    assert decode(Holder, document, "h") == Holder(COUNT, (CHURN, COUNT))
    assert decode(Holder, written(Holder(None)), "h") == Holder(None)
    assert list(Draft202012Validator(json_schema(Holder)).iter_errors(document)) == []
    assert list(Draft202012Validator(json_schema(Holder)).iter_errors(written(Holder(None)))) == []


@pytest.mark.parametrize("tag", ["holder", "", None, 5, [], {}])
def test_an_unknown_class_is_refused(tag: object) -> None:
    document = written(Holder(COUNT))
    document["one"]["type"] = tag
    names = "restart-count, journal-restarts, cgroup-churn, process-starts"
    with pytest.raises(UsageError, match=rf"h\.one\.type must be one of {names}"):
        decode(Holder, document, "h")
    assert list(Draft202012Validator(json_schema(Holder)).iter_errors(document))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 10**400, True, "1", None, [1]])
def test_a_number_is_finite_and_fits_a_float(number: object) -> None:
    with pytest.raises(UsageError, match=r"h\.number must be of type number"):
        decode(Holder, {"one": None, "number": number}, "h")


def test_a_list_has_an_end() -> None:
    with pytest.raises(UsageError, match=r"h\.many must be a list of at most"):
        decode(Holder, {"one": None, "many": [written(COUNT)] * (MOST_ITEMS + 1)}, "h")


def test_members_that_are_not_known_are_left_out() -> None:
    """A newer version may write more."""
    assert decode(Holder, {"one": None, "later": 1}, "h") == Holder(None)
