"""What the verdict asks of a finding by name is what some detector says: a typo would be silence, not an error."""

import ast
from functools import cache

import pytest

from tests.verdict.literals import ANY, Module, Strings, modules, pattern

# Asked for by helpers that serve findings of many kinds, of which one day one may say it; nobody does now.
NOT_YET: dict[str, str] = {}


def asked(of: list[Module]) -> tuple[dict[str, str], list[str]]:
    """The names that are asked for, each with a place that does, and those places that could not be followed."""
    strings = Strings(of)
    found: dict[str, str] = {}
    for module in of:
        for node in ast.walk(module.tree):
            match node:
                case ast.Call(func=ast.Attribute(attr="value" | "number"), args=[what]):
                    for name in strings.of(what, module):
                        found.setdefault(name, f"{module.path}:{node.lineno}")
    return found, strings.unknown


def said(of: list[Module]) -> set[str]:
    """The names of all evidence; where a part of one is not known, ANY stands for it."""
    strings = Strings(of)
    found: set[str] = set()
    for module in of:
        for node in ast.walk(module.tree):
            match node:
                case ast.Call(func=ast.Name(id="Evidence"), args=[what, *_]):
                    found |= strings.of(what, module)
    return found


@cache
def of_detectors() -> frozenset[str]:
    return frozenset(said(modules("exhume/findings")))


def missing(names: dict[str, str], known: frozenset[str]) -> dict[str, str]:
    patterns = [pattern(name) for name in known if ANY in name]
    return {
        name: place
        for name, place in names.items()
        if name not in known and not any(each.fullmatch(name) for each in patterns) and name not in NOT_YET
    }


def written(text: str) -> list[Module]:
    return [Module("a.py", ast.parse(text))]


def test_all_that_the_verdict_asks_for_is_said_by_some_detector() -> None:
    names, unknown = asked(modules("exhume/verdict"))
    assert unknown == []
    assert len(names) > 50
    assert missing(names, of_detectors()) == {}


def test_nothing_is_excused_that_is_said_or_that_nobody_asks_for() -> None:
    names, _ = asked(modules("exhume/verdict"))
    known = of_detectors()
    assert [name for name in NOT_YET if name in known or name not in names] == []


@pytest.mark.parametrize(
    "text",
    [
        'def f(core): return core.number("walked memory cgroup")',
        'WHAT = "walked memory cgroup"\ndef f(core): return core.value(WHAT)',
        'A, WHAT = "core", "walked memory cgroup"\ndef f(core): return core.value(WHAT)',
        'def f(core):\n    for what in ("core", "walked memory cgroup"):\n        core.value(what)',
        'def f(core): return [core.value(what) for what in ("core", "walked memory cgroup")]',
        'def by(core, what, said): return core.number(what)\ndef f(core): return by(core, "walked memory cgroup", "")',
        'def by(core, what): return core.number(what)\ndef f(core): return by(core, what="walked memory cgroup")',
        'def a(x, w): return x.number(w)\ndef b(y, v): return a(y, v)\ndef c(z): return b(z, "walked memory cgroup")',
        'def f(core):\n    for what in ("cgroup",):\n        core.value(f"walked memory {what}")',
    ],
)
def test_a_name_that_nobody_says_is_found_however_it_is_asked_for(text: str) -> None:
    names, unknown = asked(written(text))
    assert unknown == []
    assert set(missing(names, of_detectors())) == {"walked memory cgroup"}


def test_a_name_that_cannot_be_followed_is_told() -> None:
    _, unknown = asked(written("def f(core, names):\n    for what in names.all():\n        core.value(what)"))
    assert unknown == ["a.py:2: names.all()", "a.py:3: what"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('Evidence("kills", 1, "", "")', {"kills"}),
        ('Evidence("a" if x else "b", 1, "", "")', {"a", "b"}),
        ('T = {1: "a", 2: "b"}\ndef f():\n    for k, what in T.items():\n        Evidence(what, 1, "", "")', {"a", "b"}),
        ('T = {1: "a"}\ndef f(k):\n    if (what := T.get(k)) is not None:\n        Evidence(what, 1, "", "")', {"a"}),
        ('def f():\n    rows = [("a", 1), ("b", 2)]\n    return [Evidence(w, n, "", "") for w, n in rows]', {"a", "b"}),
        (
            'def f(x):\n    for p, q in zip(("a", "b"), x):\n        Evidence(f"time of {p}", q, "", "")',
            {"time of a", "time of b"},
        ),
        ('def f(x): return Evidence(f"pinned by {x.kind}", 1, "", "")', {f"pinned by {ANY}"}),
    ],
)
def test_names_are_found_however_they_are_said(text: str, names: set[str]) -> None:
    assert said(written(text)) == names


def test_a_part_that_is_not_known_stands_for_any_but_not_for_none() -> None:
    known = frozenset({f"pinned by {ANY}"})
    assert missing({"pinned by files": "", "pinned by ": "", "pinned": ""}, known) == {"pinned by ": "", "pinned": ""}
