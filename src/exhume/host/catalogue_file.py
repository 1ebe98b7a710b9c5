"""Reading agents/*.toml: every key is known, every value of its kind, and a mistake is named by its file and its path."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, cast

from exhume import budget
from exhume.errors import UsageError
from exhume.host.catalogue import Agent, Harm, Off, Severity, is_glob
from exhume.host.needs import CLOUDS, HARDWARE, VOCABULARY, Condition
from exhume.host.quantities import size

_TEXTS = ("id", "name", "purpose", "source")
LARGEST = 4 << 20
_LISTS = ("units", "packages", "executables", "images", "files", "sockets")
_OTHERS = ("needed_if", "harm", "off", "protected")
_SEVERITIES = ("info", "warning", "critical")
_CHOICES = {"cloud": CLOUDS, "hardware": HARDWARE}


def read(more: Iterable[str] = ()) -> Iterator[Agent]:
    for file in sorted(files("exhume.host").joinpath("agents").iterdir(), key=lambda file: file.name):
        if file.name.endswith(".toml"):
            yield from agents(file.read_bytes(), file.name)
    for path in more:
        try:
            text = budget.read(path, LARGEST)
        except OSError as error:
            raise UsageError(f"the catalogue {path} cannot be read: {error.strerror}") from None
        if len(text) > LARGEST:
            raise UsageError(f"the catalogue {path} is larger than {size(LARGEST)}")
        yield from agents(text, path)


def agents(text: bytes, name: str) -> list[Agent]:
    try:
        document = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{name} is not TOML: {error}") from None
    _known(document, ("agent",), name, "")
    tables = document.get("agent", [])
    if not isinstance(tables, list):
        raise UsageError(f"{name}: agent must be a list of tables, [[agent]]")
    found: dict[str, Agent] = {}
    for number, table in enumerate(tables, 1):
        agent = _agent(_table(table, name, f"agent[{number}]"), name, f"agent[{number}]")
        if agent.id in found:
            raise UsageError(f"{name}: agent[{number}].id: {agent.id} is there twice")
        found[agent.id] = agent
    return list(found.values())


def _agent(table: dict[str, Any], name: str, place: str) -> Agent:
    identifier = _text(table, "id", name, place)
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", identifier):
        raise UsageError(f"{name}: {place}.id must be of small letters, digits and hyphens, not {identifier!r}")
    place = f"agent {identifier}"
    _known(table, (*_TEXTS, *_LISTS, *_OTHERS), name, place + ".")
    lists = {key: _list(table, key, name, place) for key in _LISTS}
    if not any(lists[key] for key in ("units", "packages", "executables", "images", "files")):
        raise UsageError(f"{name}: {place} has nothing by which it could be recognised")
    for key, patterns in lists.items():
        for pattern in patterns:
            if len(pattern.strip("*?/")) < 2:
                raise UsageError(f"{name}: {place}.{key}: {pattern!r} would match almost anything")
    protected = table.get("protected", False)
    if not isinstance(protected, bool):
        raise UsageError(f"{name}: {place}.protected must be true or false")
    off = _off(table, lists, name, place)
    if protected and "off" in table:
        raise UsageError(f"{name}: {place} is protected and says how to turn it off")
    conditions = tuple(
        _condition(_table(one, name, f"{place}.needed_if[{number}]"), name, f"{place}.needed_if[{number}]")
        for number, one in enumerate(_rows(table, "needed_if", name, place), 1)
    )
    harm = tuple(
        _harm(_table(one, name, f"{place}.harm[{number}]"), name, f"{place}.harm[{number}]")
        for number, one in enumerate(_rows(table, "harm", name, place), 1)
    )
    return Agent(
        id=identifier,
        name=_text(table, "name", name, place),
        group=name.rpartition("/")[2].removesuffix(".toml"),
        purpose=_text(table, "purpose", name, place),
        source=_text(table, "source", name, place),
        **lists,
        needed_if=conditions,
        needless="needed_if" in table and not conditions,
        harm=harm,
        off=Off() if protected else off,
        protected=protected,
    )


def _off(table: dict[str, Any], lists: dict[str, tuple[str, ...]], name: str, place: str) -> Off:
    """What is not said is plain: the units that are named in full, and the packages."""
    said = _table(table.get("off", {}), name, f"{place}.off")
    place = f"{place}.off"
    _known(said, ("units", "config", "packages"), name, place + ".")
    plain = {key: tuple(one for one in lists[key] if not is_glob(one)) for key in ("units", "packages")}
    return Off(
        units=_list(said, "units", name, place) if "units" in said else plain["units"],
        config=_text(said, "config", name, place) if "config" in said else "",
        packages=_list(said, "packages", name, place) if "packages" in said else plain["packages"],
    )


def _condition(table: dict[str, Any], name: str, place: str) -> Condition:
    _known(table, tuple(VOCABULARY), name, place + ".")
    if not table or ("contains" in table and "path" not in table):
        raise UsageError(f"{name}: {place} needs a word of the vocabulary, and `contains` a `path`")
    words = []
    for key, value in table.items():
        if key == "kubernetes":
            if value is not True:
                raise UsageError(f"{name}: {place}.kubernetes can only be true")
            value = "true"
        value = _text(table, key, name, place) if value != "true" else value
        if key in _CHOICES and value not in _CHOICES[key]:
            raise UsageError(f"{name}: {place}.{key} must be one of {', '.join(_CHOICES[key])}, not {value!r}")
        if key in ("path", "filled") and not value.startswith("/"):
            raise UsageError(f"{name}: {place}.{key} must begin with a slash")
        if key == "contains":
            try:
                re.compile(value)
            except re.error as error:
                raise UsageError(f"{name}: {place}.contains is no regular expression: {error}") from None
        words.append((key, value))
    return tuple(words)


def _harm(table: dict[str, Any], name: str, place: str) -> Harm:
    _known(table, ("severity", "text", "source"), name, place + ".")
    severity = _text(table, "severity", name, place)
    if severity not in _SEVERITIES:
        raise UsageError(f"{name}: {place}.severity must be one of {', '.join(_SEVERITIES)}, not {severity!r}")
    return Harm(cast(Severity, severity), _text(table, "text", name, place), _text(table, "source", name, place))


def _known(table: dict[str, Any], keys: tuple[str, ...], name: str, place: str) -> None:
    for key in table:
        if key not in keys:
            near = get_close_matches(key, keys, 1)
            raise UsageError(f"{name}: {place}{key} is not known" + (f", did you mean {near[0]}?" if near else ""))


def _table(value: Any, name: str, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name}: {place} must be a table")
    return value


def _rows(table: dict[str, Any], key: str, name: str, place: str) -> list[Any]:
    value = table.get(key, [])
    if not isinstance(value, list):
        raise UsageError(f"{name}: {place}.{key} must be a list of tables")
    return value


def _text(table: dict[str, Any], key: str, name: str, place: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{name}: {place}.{key} must be a text that is not empty")
    return value


def _list(table: dict[str, Any], key: str, name: str, place: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
        raise UsageError(f"{name}: {place}.{key} must be a list of texts")
    return tuple(value)
