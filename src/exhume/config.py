"""The configuration file: one TOML file, checked key by key, so that a mistake is named by its place."""

import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import Field, fields
from typing import Any, TypeVar

from exhume import budget
from exhume.errors import UsageError
from exhume.host.quantities import size
from exhume.text import printable

PATH = "/etc/exhume/exhume.toml"
LARGEST = 1 << 20
SECTIONS = ("thresholds", "record", "agent")

# What Kubernetes puts into every pod for a Service of its namespace, after the Service's name, which may begin as ours do.
_OF_A_SERVICE = re.compile(
    r"\w+_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)=|\w+_PORT=\w+://"
)

T = TypeVar("T")


def load(path: str | None = None) -> dict[str, Any]:
    """The file that was asked for, else EXHUME_CONFIG, else the usual one if it is there. Empty if there is none."""
    asked = path or os.environ.get("EXHUME_CONFIG")
    name = asked or PATH
    try:
        raw = budget.read(name, LARGEST)
        if len(raw) > LARGEST:
            raise UsageError(f"configuration file {name} is larger than {size(LARGEST)}")
        with budget.enforced():
            document = tomllib.loads(raw.decode())
    except FileNotFoundError:
        if asked:
            raise UsageError(f"configuration file {name} is not there") from None
        return {}
    except OSError as error:
        raise UsageError(f"configuration file {name} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"configuration file {name} is not TOML: {error}") from None
    for key in document:
        if key not in SECTIONS:
            raise UsageError(f"{name}: [{key}] is not a section; there are {', '.join(f'[{s}]' for s in SECTIONS)}")
    return document


def section(document: dict[str, Any], name: str, into: type[T], apart: tuple[str, ...] = ()) -> T:
    """One section as a dataclass; a key that is not known or has no sense is named by its path.

    `apart` are sections within it, which have a dataclass of their own.
    """
    values: Any = document
    for part in name.split("."):
        values = values.get(part, {})
        if not isinstance(values, dict):
            raise UsageError(f"{name} must be a section, [{name}]")
    known: dict[str, Field[Any]] = {field.name: field for field in fields(into)}  # type: ignore[arg-type]
    taken = {}
    for key, value in values.items():
        if key in apart:
            continue
        if key not in known:
            raise _unknown(f"{name}.{key}", key, known)
        taken[key] = _value(f"{name}.{key}", str(known[key].type), value)
    return into(**taken)


def from_environment(prefix: str, into: type[T], apart: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the environment says of a section's keys: PREFIX_KEY; a list's items are apart by commas."""
    found: dict[str, Any] = {}
    for variable, field in variables(prefix, into, apart).items():
        text = os.environ.get(variable)
        if text is not None:
            found[field.name] = _value(variable, str(field.type), _read(variable, str(field.type), text))
    return found


def variables(prefix: str, into: type[Any], apart: tuple[str, ...] = ()) -> dict[str, Field[Any]]:
    """What the environment calls a section's keys."""
    return {f"{prefix}_{field.name}".upper(): field for field in fields(into) if field.name not in apart}


def refuse_unknown(prefix: str, known: Iterable[str]) -> None:
    """A variable that begins as ours do and is none of them is a mistake, and not the cluster's."""
    names = sorted(known)
    for variable, text in sorted(os.environ.items()):
        ours = variable.startswith(f"{prefix}_") and not _OF_A_SERVICE.match(f"{variable}={text}")
        if ours and variable not in names:
            raise _unknown(variable, variable, names)


def _unknown(path: str, key: str, known: Iterable[str]) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(key, known, 1)
    return UsageError(f"{printable(path)} is not known" + (f", did you mean {near[0]}?" if near else ""))


def _value(path: str, kind: str, value: Any) -> Any:
    if kind.endswith("str'>") or kind == "str":
        if not isinstance(value, str):
            raise UsageError(f"{path} must be text, not {value!r}")
        return value
    if kind.endswith("bool'>") or kind == "bool":
        if not isinstance(value, bool):
            raise UsageError(f"{path} must be true or false, not {value!r}")
        return value
    if kind.startswith("tuple"):
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise UsageError(f"{path} must be a list of texts, not {value!r}")
        return tuple(value)
    whole = kind.endswith("int'>") or kind == "int"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise UsageError(f"{path} must be {'a whole number' if whole else 'a number'}, not {value!r}")
    if not 0 <= value < 1e15:  # also refuses nan, which compares with nothing
        raise UsageError(f"{path} must not be {value!r}")
    if path.lower().endswith(("_ratio", "_share")) and value > 1:
        raise UsageError(f"{path} is a share and must be between 0 and 1, not {value!r}")
    return value


def _read(path: str, kind: str, text: str) -> Any:
    """A value as the environment has it: text."""
    if kind.endswith("str'>") or kind == "str":
        return text
    if kind.endswith("bool'>") or kind == "bool":
        return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}.get(text.strip().lower(), text)
    if kind.startswith("tuple"):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        return int(text) if text.strip().removeprefix("-").isdecimal() else float(text)
    except ValueError:
        raise UsageError(f"{path} must be a number, not {text!r}") from None
