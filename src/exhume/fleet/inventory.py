"""A fleet as a table that somebody keeps: CSV, JSON lines or Parquet, a node a row, a fact a column.

The column that names the node is `node`, or what people call it else. Some columns are figures and not facts (READ), and are
judged as those of any other source are.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from exhume import budget
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import ExhumeError
from exhume.fleet.cohorts_kinds import Kind, kind
from exhume.fleet.model import Fact, Fleet, Node
from exhume.fleet.sick import Figures, sick
from exhume.host.quantities import counted, size
from exhume.text import from_json, printable

NAMES: Final = ("node", "name", "nodename", "node_name", "hostname", "host", "instance")
READ: Final = ("sick", "health", "cause", "subject", "zombies", "dying", "live", "leak_per_day", "resets", "uptime_s", "why")
"""Columns that are figures: how a node is, not what it is."""
SUFFIXES: Final = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet")
LARGEST = 1 << 30
_TRUE, _FALSE = ("true", "yes", "sick"), ("false", "no", "healthy")
_NOTHING = ("", "null", "none", "nan", "n/a", "-")
_LONGEST_FIELD = 1 << 20


def load(path: str, thresholds: Thresholds | None = None) -> Fleet:
    shown = printable(path)
    try:
        if path.endswith(".parquet"):
            rows: Iterator[Mapping[str, Any]] = _parquet(path)
        else:
            raw = budget.read(path, LARGEST)
            if len(raw) > LARGEST:
                raise ExhumeError(f"{shown} is larger than {size(LARGEST)}: as Parquet it would be read as it is")
            rows = rows_of(raw, os.path.basename(path))
        return fleet(rows, shown, thresholds)
    except OSError as error:
        raise ExhumeError(f"{shown} cannot be read: {error.strerror or printable(str(error))}") from None


def rows_of(raw: bytes, name: str) -> Iterator[Mapping[str, Any]]:
    """By what it looks like where its name does not say. A line that is damaged is an empty row."""
    text = raw.decode("utf-8-sig", "backslashreplace")
    head = text.lstrip()[:1]
    if name.endswith((".jsonl", ".ndjson", ".json")) or (head in ("{", "[") and not name.endswith((".csv", ".tsv"))):
        yield from _json(text)
        return
    first = text.partition("\n")[0]
    delimiter = (
        "\t"
        if name.endswith(".tsv") or ("\t" in first and "," not in first)
        else ";"
        if first.count(";") > first.count(",")
        else ","
    )
    csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.DictReader(io.StringIO(text.replace("\0", "\\x00"), newline=""), delimiter=delimiter, restkey=" rest")
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield {}


def _json(text: str) -> Iterator[Mapping[str, Any]]:
    if text.lstrip()[:1] == "[":
        try:
            told = from_json(text)
        except ValueError:
            told = []
        yield from (each if isinstance(each, dict) else {} for each in told)
        return
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            told = from_json(line)
        except ValueError:
            told = None
        yield told if isinstance(told, dict) else {}


def _parquet(path: str) -> Iterator[Mapping[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    budget.opened(path)
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(10_000, use_threads=False):
                yield from batch.to_pylist()
    except MemoryError:  # of Arrow, too
        raise
    except pa.ArrowException as error:
        raise ExhumeError(f"{printable(path)} is not Parquet that can be read: {printable(str(error), 120)}") from None


def fleet(rows: Iterator[Mapping[str, Any]], source: str, thresholds: Thresholds | None = None) -> Fleet:
    kept: dict[str, dict[str, Any]] = {}
    nameless = twice = 0
    for row in rows:
        values = {str(key).strip(): value for key, value in row.items() if key is not None and key != " rest"}
        folded = {key.lower(): key for key in values}
        column = next((folded[name] for name in NAMES if name in folded and _text(values[folded[name]])), None)
        if column is None:
            nameless += 1
            continue
        name = _text(values.pop(column))
        twice += name in kept
        kept[name] = values
    if not kept:
        raise ExhumeError(
            f"{source} has no nodes: a row for each, with its name in a column {NAMES[0]} (or {', '.join(NAMES[1:])})"
        )
    troubles = []
    if nameless:
        troubles.append(f"{source}: {counted(nameless, 'row')} without the name of a node, or damaged, passed over")
    if twice:
        troubles.append(f"{source}: {counted(twice, 'row')} of nodes that were there before: the last one counts")
    numeric = _numeric(kept.values())
    return Fleet(source, tuple(_node(name, values, numeric, thresholds) for name, values in kept.items()), tuple(troubles))


def _numeric(rows: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Columns of text that are numbers, all of them, and no versions (5.10 is not 5.1) nor numbers with zeros before them."""
    seen: dict[str, bool] = {}
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str) and value.strip().lower() not in _NOTHING:
                seen[name] = seen.get(name, True) and _plain_number(value.strip())
    return frozenset(name for name, all_of_them in seen.items() if all_of_them and kind(name) != Kind.ACTS)


def _plain_number(text: str) -> bool:
    digits = text.lstrip("+-")
    return (
        _number(text) is not None and "_" not in text and not (len(digits) > 1 and digits[0] == "0" and digits[1] not in ".e")
    )


def _node(name: str, values: dict[str, Any], numeric: frozenset[str], thresholds: Thresholds | None) -> Node:
    read = {key: values.pop(key) for key in READ if key in values}
    facts = {key: fact for key, value in values.items() if key and (fact := _fact(value, key in numeric)) is not None}
    said = _flag(read.get("sick"))
    figures = Figures(
        health=_text(read.get("health")).lower(),
        cause=_text(read.get("cause")),
        subject=_text(read.get("subject")),
        live=_number(read.get("live")),
        zombies=_number(read.get("zombies", read.get("dying"))),
        leak_per_day=_number(read.get("leak_per_day")),
        resets=_number(read.get("resets")),
    )
    judged = sick(figures, thresholds)
    why = "; ".join(each for each in (_text(read.get("why")), judged.why) if each)
    return Node(
        name,
        facts,
        judged.sick if said is None else said,
        judged.badness if judged.badness or not said else 1.0,
        why or ("the inventory says so" if said else ""),
        _number(read.get("uptime_s")),
        None,
        figures.zombies,
        figures.leak_per_day,
        figures.resets or 0.0,
    )


def _fact(value: object, numeric: bool) -> Fact | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return _number(value)
    text = _text(value)
    if text.lower() in _NOTHING:
        return None
    if numeric:
        return _number(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def _text(value: object) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return (
        value.strip()
        if isinstance(value, str)
        else json.dumps(value, default=str)[:1000]
        if isinstance(value, dict | list)
        else str(value)
    )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _flag(value: object) -> bool | None:
    text = _text(value).lower()
    return True if text in (*_TRUE, "1") else False if text in (*_FALSE, "0") else None
