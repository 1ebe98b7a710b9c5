"""YAML and JSON documents of an image as plain data: what strangers wrote, read at a bounded cost.

YAML is taken event by event, so that nothing in it is ever constructed, and an alias stands for the one thing it names: a
document that would be enormous when written out (a "billion laughs") stays as small as it is.
"""

from typing import Any

from exhume.host.quantities import size
from exhume.text import from_json as read_json

LARGEST = 1 << 20
LARGEST_YAML = 128 << 10
"""PyYAML's own scanner is written in Python and takes seconds for that; libyaml's is used where it was built in."""
DEEPEST = 100


class Malformed(Exception):
    """Why a document cannot be read, as the end of a sentence."""


def parse(text: bytes) -> Any:
    """The first document: dicts, lists and, from YAML, strings for everything else. Raises Malformed."""
    if text.lstrip()[:1] in (b"{", b"["):
        try:
            return from_json(text)
        except Malformed:
            pass  # JSON is YAML but for details, and a flow mapping of YAML is not always JSON
    return from_yaml(text)


def from_json(text: bytes) -> Any:
    if len(text) > LARGEST:
        raise Malformed(f"it has more than {size(LARGEST)}")
    try:
        return read_json(text)
    except ValueError as error:
        raise Malformed(f"it is not JSON: {str(error)[:200]}") from None


def from_yaml(text: bytes) -> Any:
    if len(text) > LARGEST_YAML:
        raise Malformed(f"it has more than {size(LARGEST_YAML)}")
    import yaml

    try:
        # Either gives out events without recursion, so depth costs no stack.
        return _first(yaml.parse(text, Loader=yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Malformed(f"it is not YAML: {' '.join(str(error).split())[:200]}") from None


def _first(events: Any) -> Any:
    import yaml

    anchors: dict[str, Any] = {}
    open_: list[Any] = []
    keys: list[Any] = []
    done: Any = None

    def put(value: Any) -> None:
        nonlocal done
        if not open_:
            done = value
        elif isinstance(open_[-1], list):
            open_[-1].append(value)
        elif keys[-1] is None:
            keys[-1] = value if isinstance(value, str) else repr(type(value))
        else:
            open_[-1][keys[-1]] = value
            keys[-1] = None

    for event in events:
        if isinstance(event, yaml.DocumentEndEvent):
            break
        if isinstance(event, yaml.ScalarEvent):
            value: Any = event.value
        elif isinstance(event, yaml.AliasEvent):
            value = anchors.get(event.anchor or "", "")
        elif isinstance(event, yaml.CollectionStartEvent):
            value = {} if isinstance(event, yaml.MappingStartEvent) else []
        else:
            if isinstance(event, yaml.CollectionEndEvent):
                open_.pop()
                keys.pop()
            continue
        if isinstance(event, yaml.NodeEvent) and event.anchor and not isinstance(event, yaml.AliasEvent):
            anchors[event.anchor] = value
        put(value)
        if isinstance(event, yaml.CollectionStartEvent):
            if len(open_) >= DEEPEST:
                raise ValueError(f"it is nested more than {DEEPEST} deep")
            open_.append(value)
            keys.append(None)
    return done


def at(value: Any, *path: str) -> Any:
    """What is at a path of keys; None where there is none, whatever is in its place."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def words(value: Any) -> list[str]:
    """A list of strings, or a string, as a list; nothing else."""
    if isinstance(value, str):
        return [value]
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def string(value: Any) -> str:
    return value if isinstance(value, str) else ""
