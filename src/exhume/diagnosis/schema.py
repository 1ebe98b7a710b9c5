"""The JSON Schema of reports and the page that lists every kind of finding, both made from the classes of facts.

python -m exhume.diagnosis.schema      writes report.schema.json beside this file, and docs/findings.md in a clone
"""

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from exhume.diagnosis.findings.codec import json_schema
from exhume.diagnosis.findings.kind import Advice, Culprit, Kind, Remedy
from exhume.diagnosis.findings.model import SEVERITIES, shown_fields
from exhume.diagnosis.findings.registry import KINDS
from exhume.diagnosis.report import HEALTHS, SCHEMA, RuledOut
from exhume.recording.source_state import CODES, STATES

PUBLISHED: Final = Path(__file__).with_name("report.schema.json")
PAGE: Final = Path(__file__).parents[3] / "docs" / "findings.md"

_TEXT: Final = {"type": "string"}
_TIME: Final = {"type": "string", "format": "date-time"}
_RATIO: Final = {"type": "number", "minimum": 0, "maximum": 1}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def report_schema() -> dict[str, Any]:
    nullable = {"type": ["string", "null"]}
    verdict = _object(
        cause=nullable,
        subject=_TEXT,
        confidence=_RATIO,
        summary=_TEXT,
        chain=_list(_object(finding=_TEXT, because=_TEXT, confidence=_RATIO, disproof=_TEXT)),
        ruled_out=_list(json_schema(RuledOut)),
        unseen=_list(json_schema(RuledOut)),
        culprits=_list(json_schema(Culprit)),
        remedies=_list({**json_schema(Remedy), "additionalProperties": True}),
        next=_list(_TEXT),
        against=_list(_TEXT),
        advice=_list(json_schema(Advice)),
        switch_on=_list(_TEXT),
    )
    incident = _object(
        start=_TIME, end=_TIME, health={"enum": list(HEALTHS)}, cause=nullable, subject=_TEXT, confidence=_RATIO, summary=_TEXT
    )
    source = _object(
        name=_TEXT,
        state={"enum": list(STATES)},
        reason=_TEXT,
        reasons=_list({"type": "object", "properties": {"code": {"enum": sorted(CODES)}}, "required": ["code"]}),
        cost_ms={"type": "number"},
    )
    report = _object(
        schema={"const": SCHEMA},
        node=_object(hostname=_TEXT, boot_id=_TEXT, kernel=_TEXT, cgroups=_TEXT, cpus={"type": "integer"}),
        window=_object(start=_TIME, end=_TIME),
        health={"enum": list(HEALTHS)},
        verdict=verdict,
        incidents=_list(incident),
        findings=_list({"oneOf": [{"$ref": f"#/$defs/{kind.facts.kind}"} for kind in KINDS]}),
        sources=_list(source),
    )
    report["properties"]["incidents_not_judged"] = _list(_object(start=_TIME, end=_TIME))
    report["properties"]["incidents_more"] = {"type": "integer"}
    shared: dict[str, Any] = {}
    kinds = {kind.facts.kind: _with_references(_finding(kind), shared) for kind in KINDS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A report of exhume check or exhume diagnose",
        **_with_references(report, shared),
        "$defs": {**kinds, **shared},
    }


def _with_references(schema: Any, shared: dict[str, Any]) -> Any:
    """Classes in one place: a part with a title is a class, and stands in $defs."""
    if isinstance(schema, list):
        return [_with_references(one, shared) for one in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: _with_references(one, shared) for name, one in schema.items()}
    title = plain.get("title")
    if not isinstance(title, str):
        return plain
    description = plain.pop("description", None)
    shared[title] = plain
    return {"$ref": f"#/$defs/{title}", **({"description": description} if description else {})}


def _finding(kind: Kind[Any]) -> dict[str, Any]:
    return _object(
        id=_TEXT,
        kind={"const": kind.facts.kind},
        subject=_TEXT,
        severity={"enum": list(SEVERITIES)},
        start=_TIME,
        end=_TIME,
        summary=_TEXT,
        facts=json_schema(kind.facts, without=frozenset({"subject"})),
    )


_ROLES: Final = {
    "condition": "Conditions: harm sooner or later",
    "pain": "Pains: hurt the node by being there",
    "symptom": "Symptoms: what the node suffers from",
    "tenant": "Tenants: one tenant is affected, not the node",
    "other": "About the recorder itself",
}


def page() -> str:
    lines = [
        "# Kinds of findings",
        "",
        "Every kind with its facts, as `check --json` and `diagnose --json` print them in `findings[].facts` (schema",
        f"`{SCHEMA}`; `src/exhume/diagnosis/report.schema.json` is its JSON Schema). Ratios are of 1; an",
        "unknown field is null. This page is made from the classes: `python -m exhume.diagnosis.schema`.",
        "",
    ]
    for role, title in _ROLES.items():
        lines += [f"## {title}", ""]
        for kind in KINDS:
            if kind.role == role:
                lines += [f"### {kind.facts.kind}", "", *_about(kind), "", *_table(kind.facts), ""]
    return "\n".join(lines).rstrip() + "\n"


def _about(kind: Kind[Any]) -> Iterator[str]:
    opening = (sys.modules[kind.detect.__module__].__doc__ or "").split("\n\n")[0].replace("\n", " ")
    text = opening.removeprefix(f"{kind.facts.kind}: ")
    yield f"{text[:1].upper()}{text[1:]}"
    effects = ", ".join(f"`{rule.effect.kind}`" for rule in kind.rules)
    if effects:
        yield ""
        yield f"May lead to {effects}."


def _table(group: type[Any]) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for name, kind, meaning in _rows(group, ""):
        yield f"| `{name}` | {kind} | {meaning} |"


def _rows(group: type[Any], prefix: str) -> Iterator[tuple[str, str, str]]:
    shown = dict(shown_fields(group))
    hints = get_type_hints(group)
    documented = _field_docs(group)
    properties = json_schema(group)["properties"]
    for field in fields(group):
        if field.name == "subject" and not prefix:
            continue
        how = shown.get(field.name)
        meaning = ", ".join(filter(None, (how.label, how.unit))) if how is not None else ""
        meaning = ". ".join(filter(None, (meaning, documented.get(field.name, ""))))
        schema = properties[field.name]
        yield f"{prefix}{field.name}", _spelled(schema), meaning
        inner = [
            one for one in (hints[field.name], *get_args(hints[field.name])) if isinstance(one, type) and is_dataclass(one)
        ]
        for one in inner:
            array = "[]" if schema.get("type") == "array" else ""
            yield from _rows(one, f"{prefix}{field.name}{array}.")


def _field_docs(group: type[Any]) -> dict[str, str]:
    """The strings below the fields of a class."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(group))).body
    assert isinstance(made, ast.ClassDef)
    found = {}
    for before, after in pairwise(made.body):
        match before, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split()).replace("|", "\\|").rstrip(".")
    return found


def _spelled(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        kinds = dict.fromkeys(_spelled(one) for one in schema["anyOf"])
        return " or ".join(kinds)
    if "enum" in schema:
        return " \\| ".join(f"`{value}`" if value != "" else "empty" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {_spelled(schema['items'])}"
    return str(schema.get("type", "object"))


def main() -> None:
    PUBLISHED.write_text(json.dumps(report_schema(), indent=1) + "\n")
    if PAGE.parent.is_dir():
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
