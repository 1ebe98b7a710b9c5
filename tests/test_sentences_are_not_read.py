"""Nothing in exhume reads a sentence back: rules, remedies, metrics and pictures read typed fields."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "exhume"
SENTENCES = {"summary", "reason", "because", "unseen", "ruled_out", "why_off", "evidence", "label", "what"}
"""Attributes and methods whose value is a sentence or a label for people."""
CUTS = {"startswith", "endswith", "split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix", "find", "index"}
PATTERNS = {"match", "search", "fullmatch", "findall", "finditer"}
ROOMS = ("diagnosis", "render", "image", "remedy", "recorder", "agent", "web", "cli", "fleet", "lab")


def faults(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method, receiver = node.func.attr, node.func.value
            if method in ("number", "value") and node.args and _text(node.args[0]):
                yield f"line {node.lineno}: reads a fact by its label: .{method}({_text(node.args[0])!r})"
            if method in CUTS and _sentence(receiver):
                yield f"line {node.lineno}: .{method}() on a sentence"
            if method in PATTERNS and any(_sentence(argument) for argument in node.args):
                yield f"line {node.lineno}: a pattern is matched against a sentence"
        if isinstance(node, ast.Compare) and any(isinstance(one, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for one in node.ops):
            sides = [node.left, *node.comparators]
            if any(_sentence(side) for side in sides) and any(_prose(side) for side in sides):
                yield f"line {node.lineno}: compares a sentence"


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _prose(node: ast.expr) -> bool:
    return " " in _text(node)


def _sentence(node: ast.expr) -> bool:
    """An attribute or a call of that name, perhaps in str()."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
            return _sentence(node.args[0])
        return isinstance(node.func, ast.Attribute) and node.func.attr in SENTENCES
    return isinstance(node, ast.Attribute) and node.attr in SENTENCES


FILES = [file for room in ROOMS for file in sorted((SOURCE / room).rglob("*.py"))]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_code_reads_a_sentence(file: Path) -> None:
    assert list(faults(file.read_text())) == []


@pytest.mark.parametrize(
    "code",
    [
        'finding.number("walked memory cgroups")',
        'loop.value("its unit")',
        'source.reason.startswith("no answer within")',
        're.search("looked ([0-9]+) ms apart", recording.why_off("latency"))',
        'str(finding.summary).split("; ")',
        '"no systemd" in check.because or examined.unseen == "not seen here"',
    ],
)
def test_the_old_ways_are_found(code: str) -> None:
    assert list(faults(f"import re\n{code}\n"))
