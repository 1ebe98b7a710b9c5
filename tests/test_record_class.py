"""A record is a frozen dataclass in all that code can see of it."""

import pickle
from dataclasses import FrozenInstanceError, fields, replace

import pytest

from exhume.record import record


@record(frozen=True, slots=True)
class Point:
    x: int
    y: int = 0


@record(frozen=True, slots=True, kw_only=True)
class Named(Point):
    name: str = ""

    @property
    def label(self) -> str:
        return f"{self.name}:{self.x}"


def test_fields_are_given_by_place_or_by_name_and_have_defaults() -> None:
    assert (Point(1), Point(1, 2), Point(y=2, x=1)) == (Point(1, 0), Point(1, y=2), Point(1, 2))
    assert Named(3, name="a").label == "a:3"
    assert [field.name for field in fields(Named)] == ["x", "y", "name"]


@pytest.mark.parametrize("given", [{}, {"x": 1, "z": 2}])
def test_a_missing_or_an_unknown_field_is_an_error(given: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point"):
        Point(**given)


def test_more_values_than_fields_are_an_error() -> None:
    with pytest.raises(TypeError, match="Point"):
        Point(1, 2, 3)  # type: ignore[call-arg]


def test_it_cannot_be_changed() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert not hasattr(point, "__dict__")


def test_records_of_one_class_are_equal_by_value() -> None:
    assert {Point(1): "a"}[Point(1)] == "a"
    assert Point(1) != Point(2)
    assert Named(1) != Point(1)
    assert repr(Point(1, 2)) == "Point(x=1, y=2)"


def test_it_can_be_replaced_pickled_and_matched() -> None:
    assert replace(Named(1, name="a"), y=5) == Named(1, 5, name="a")
    assert pickle.loads(pickle.dumps(Named(1, name="a"))) == Named(1, name="a")
    match Point(1, 2):
        case Point(x, y):
            assert (x, y) == (1, 2)
