"""Facts as JSON and back, and their JSON Schema: all by the types of the fields, so that a new class needs no code here.

A field has a scalar type, an enum, a Literal, a dataclass, or a tuple of one of these; or it is a union of one of these with
None, or of several dataclasses, whose objects have a member `type` with the name of the class.
"""

import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

from exhume.diagnosis.findings.model import Facts, shown_fields
from exhume.errors import UsageError
from exhume.text import printable

T = TypeVar("T")
MOST_ITEMS: Final = 10_000
LARGEST_NUMBER: Final = 1 << 63
_TAG: Final = "type"
_SCALARS: Mapping[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def encode(value: Any) -> dict[str, Any]:
    """A dataclass as an object with all its fields, a tuple as a list, an enum as its value. Numbers are not rounded: the
    sentences that are made of them would change.
    """
    hints = _hints(type(value))
    return {field.name: _encode(hints[field.name], getattr(value, field.name)) for field in fields(value)}


def _encode(kind: Any, value: Any) -> Any:
    if isinstance(value, tuple):
        item = get_args(_present(kind)[0])[0]
        return [_encode(item, one) for one in value]
    if isinstance(value, Enum):
        return value.value
    if not is_dataclass(value):
        return value
    return {_TAG: _tag(type(value)), **encode(value)} if len(_present(kind)) > 1 else encode(value)


def encode_facts(facts: Facts) -> dict[str, Any]:
    """Without the subject, which a report has beside them."""
    encoded = encode(facts)
    del encoded["subject"]
    return encoded


_known_hints: dict[type[Any], Mapping[str, Any]] = {}


def _hints(kind: type[Any]) -> Mapping[str, Any]:
    """Without their annotations."""
    if kind not in _known_hints:
        _known_hints[kind] = get_type_hints(kind)
    return _known_hints[kind]


def _present(kind: Any) -> tuple[Any, ...]:
    """What a field may have other than None: one type, or the classes of a union."""
    if get_origin(kind) not in (Union, types.UnionType):
        return (kind,)
    return tuple(one for one in get_args(kind) if one is not type(None))


def _is_class(kind: Any) -> TypeGuard[type[Any]]:
    return isinstance(kind, type) and is_dataclass(kind)


def _optional(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType) and type(None) in get_args(kind)


def _tag(kind: type[Any]) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


def decode(kind: type[T], document: object, where: str) -> T:
    """The inverse of `encode`. A file may be anyone's: UsageError names the first field that has another type than it must."""
    document = mapping(document, where)
    made: dict[str, Any] = {}
    hints = _hints(kind)
    for field in fields(kind):  # type: ignore[arg-type]
        if field.name in document:
            made[field.name] = _decode(hints[field.name], document[field.name], f"{where}.{field.name}")
        elif field.default is MISSING and field.default_factory is MISSING:
            raise UsageError(f"the report cannot be read: {printable(where)} has no {field.name}")
    return kind(**made)


def mapping(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise UsageError(f"the report cannot be read: {printable(where)} must be an object")
    return value


def items(fields: Mapping[str, object], name: str, most: int = MOST_ITEMS) -> list[object]:
    """A list that may be absent."""
    value = fields.get(name, [])
    if not isinstance(value, list) or len(value) > most:
        raise UsageError(f"the report cannot be read: {printable(name)} must be a list of at most {most:,}")
    return value


def text(fields: Mapping[str, object], name: str) -> str:
    """A string that may be absent or null."""
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"the report cannot be read: {printable(name)} must be a string")
    return value or ""


def number(fields: Mapping[str, object], name: str) -> float:
    """A number that may be absent."""
    value = fields.get(name, 0.0)
    if not _is_number(value):
        raise UsageError(f"the report cannot be read: {printable(name)} must be a number")
    return float(value)


def _decode(kind: Any, value: object, where: str) -> Any:
    if value is None and _optional(kind):
        return None
    inner, *others = _present(kind)
    if others:
        return _decode_tagged((inner, *others), value, where)
    origin, arguments = get_origin(inner), get_args(inner)
    if origin is tuple:
        if isinstance(value, list) and len(value) <= MOST_ITEMS:
            return tuple(_decode(arguments[0], one, f"{where}[{i}]") for i, one in enumerate(value))
    elif origin is Literal:
        if any(_same(value, one) for one in arguments):
            return value
    elif _is_class(inner):
        return decode(inner, value, where)
    elif issubclass(inner, Enum):
        for member in inner:
            if _same(value, member.value):
                return member
    elif inner is float:
        if _is_number(value):
            return float(value)
    elif type(value) is inner and (inner is not int or _is_number(value)):
        return value
    raise UsageError(f"the report cannot be read: {printable(where)} must be {_expected(inner)}")


def _decode_tagged(kinds: tuple[Any, ...], value: object, where: str) -> Any:
    document = mapping(value, where)
    for kind in kinds:
        if document.get(_TAG) == _tag(kind):
            return decode(kind, document, where)
    raise UsageError(f"the report cannot be read: {printable(where)}.{_TAG} must be one of {', '.join(map(_tag, kinds))}")


def _same(value: object, known: object) -> bool:
    """Of the same type, too: True == 1."""
    return type(value) is type(known) and value == known


def _is_number(value: object) -> TypeGuard[int | float]:
    """Bounded: NaN and the infinities are no JSON, and arithmetic with the largest numbers overflows."""
    return not isinstance(value, bool) and isinstance(value, int | float) and abs(value) < LARGEST_NUMBER


def _expected(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return f"a list of at most {MOST_ITEMS:,}"
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(str, get_args(kind)))
    if issubclass(kind, Enum):
        return "one of " + ", ".join(str(member.value) for member in kind)
    return f"of type {_SCALARS[kind]}"


def json_schema(kind: type[Any], without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Of a class of facts, or of a group in one. Every field is there; one that may be None may be null."""
    shown = dict(shown_fields(kind))
    hints = _hints(kind)
    properties: dict[str, Any] = {}
    for field in fields(kind):
        if field.name in without:
            continue
        found = _schema(hints[field.name])
        if field.name in shown and shown[field.name].label:
            unit = f", {shown[field.name].unit}" if shown[field.name].unit else ""
            found = {**found, "description": f"{shown[field.name].label}{unit}"}
        properties[field.name] = found
    return {
        "title": kind.__name__,
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _schema(kind: Any) -> dict[str, Any]:
    inner, *others = _present(kind)
    found = [_tagged_schema(one) for one in (inner, *others)] if others else [_schema_of(inner)]
    if _optional(kind):
        found.append({"type": "null"})
    return found[0] if len(found) == 1 else {"anyOf": found}


def _schema_of(kind: Any) -> dict[str, Any]:
    if get_origin(kind) is tuple:
        return {"type": "array", "items": _schema(get_args(kind)[0])}
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind))}
    if _is_class(kind):
        return json_schema(kind)
    if issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    return {"type": _SCALARS[kind]}


def _tagged_schema(kind: type[Any]) -> dict[str, Any]:
    schema = json_schema(kind)
    return {
        **schema,
        "properties": {_TAG: {"const": _tag(kind)}, **schema["properties"]},
        "required": [_TAG, *schema["required"]],
    }
