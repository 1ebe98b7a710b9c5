"""Writes and compares golden files: sorted cases, one block per case, one fact per line."""

import difflib
import json
from collections.abc import Mapping
from typing import Any

_CONTEXT = 4
_IN_LINE = 8
"""Items of a list of plain values that is written in one line."""


def dumps(cases: Mapping[str, Any]) -> str:
    """JSON with the cases by name. An object has a line for each key; a short list of plain values is one line."""
    blocks = [f" {json.dumps(name)}: {_text(cases[name], 1)}" for name in sorted(cases)]
    return "{\n" + ",\n".join(blocks) + "\n}\n"


def _text(value: Any, depth: int) -> str:
    pad, end = " " * (depth + 1), " " * depth
    if isinstance(value, dict) and value:
        lines = [f"{pad}{json.dumps(key)}: {_text(one, depth + 1)}" for key, one in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{end}}}"
    if isinstance(value, list) and (len(value) > _IN_LINE or any(isinstance(one, dict | list) for one in value)):
        lines = [f"{pad}{_text(one, depth + 1)}" for one in value]
        return "[\n" + ",\n".join(lines) + f"\n{end}]"
    return json.dumps(value, ensure_ascii=False)


def changes(name: str, kept: Mapping[str, Any], now: Mapping[str, Any], known_wrong: Mapping[str, str]) -> str:
    """What differs, case by case; empty if nothing does."""
    shown = []
    for case in sorted({*kept, *now}):
        head = [f"{name}: {case}"]
        if case in known_wrong:
            head.append(f"(known wrong before this change; the truth: {known_wrong[case]})")
        if case not in now:
            shown.append([*head, "this case is gone"])
        elif case not in kept:
            shown.append([*head, "this case is new"])
        elif kept[case] != now[case]:
            before, after = (_text(one, 0).splitlines() for one in (kept[case], now[case]))
            shown.append([*head, *difflib.unified_diff(before, after, "golden", "now", lineterm="", n=_CONTEXT)])
    return "\n\n".join("\n".join(lines) for lines in shown)
