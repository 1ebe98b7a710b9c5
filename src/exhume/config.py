"""The configuration file: one TOML file, checked key by key, so that a mistake is named by its place."""

import os
import tomllib
from dataclasses import Field, fields
from typing import Any, TypeVar

from exhume.errors import UsageError

PATH = "/etc/exhume/exhume.toml"
SECTIONS = ("thresholds", "record", "agent")

T = TypeVar("T")


def load(path: str | None = None) -> dict[str, Any]:
    """The file that was asked for, else EXHUME_CONFIG, else the usual one if it is there. Empty if there is none."""
    asked = path or os.environ.get("EXHUME_CONFIG")
    name = asked or PATH
    try:
        with open(name, "rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError:
        if asked:
            raise UsageError(f"configuration file {name} is not there") from None
        return {}
    except OSError as error:
        raise UsageError(f"configuration file {name} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"configuration file {name} is not TOML: {error}") from None
    for key in document:
        if key not in SECTIONS:
            raise UsageError(f"{name}: [{key}] is not a section; there are {', '.join(f'[{s}]' for s in SECTIONS)}")
    return document


def section(document: dict[str, Any], name: str, into: type[T]) -> T:
    """One section as a dataclass of numbers; a key that is not known or has no sense is named by its path."""
    values = document.get(name, {})
    if not isinstance(values, dict):
        raise UsageError(f"{name} must be a section, [{name}]")
    known: dict[str, Field[Any]] = {field.name: field for field in fields(into)}  # type: ignore[arg-type]
    for key, value in values.items():
        if key not in known:
            from difflib import get_close_matches

            near = get_close_matches(key, known, 1)
            raise UsageError(f"{name}.{key} is not known" + (f", did you mean {near[0]}?" if near else ""))
        whole = known[key].type in (int, "int")
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise UsageError(f"{name}.{key} must be {'a whole number' if whole else 'a number'}, not {value!r}")
        if not 0 <= value < 1e15:  # also refuses nan, which compares with nothing
            raise UsageError(f"{name}.{key} must not be {value!r}")
        if key.endswith(("_ratio", "_share")) and value > 1:
            raise UsageError(f"{name}.{key} is a share and must be between 0 and 1, not {value!r}")
    return into(**values)
