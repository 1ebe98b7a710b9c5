"""The flame graph in the terminal."""

import re

from hypothesis import given
from hypothesis import strategies as st

from exhume.render.flame import Node, build
from exhume.render.flame_text import bar, fit, render
from tests.render.made import Ran, idle, recorded

ROOT = build(
    *recorded(
        Ran(0, "kubelet", "kubelet:main k:read k:walk", 60),
        Ran(0, "kubelet", "kubelet:main k:write", 15),
        Ran(1, "sshd", "sshd:main", 5, "user"),
        idle(1, 20),
    )
)


def test_the_hottest_branches_come_first_and_idle_comes_last() -> None:
    assert [line.split()[0] + " " + line.split("  ")[-1].strip() for line in render(ROOT, 100, 40, False).splitlines()] == [
        "75.0% kubelet › main",
        "60.0% read › walk",
        "15.0% write",
        "5.0% sshd › main",
        "20.0% idle",
    ]


def test_it_keeps_to_the_rows_it_has_and_shows_the_hottest() -> None:
    lines = render(ROOT, 100, 2, False).splitlines()
    assert len(lines) == 2
    assert "kubelet" in lines[0]
    assert "walk" in lines[1]


def test_bars_are_as_long_as_shares() -> None:
    assert [bar(share, 8) for share in (0, 0.5, 1, 0.0625, 7)] == ["", "████", "████████", "▌", "████████"]


def test_a_long_chain_keeps_its_first_and_last_functions() -> None:
    names = [f"function_{i}" for i in range(20)]
    parts = [name for _, name in fit(names, 60)]
    assert parts[0] == "function_0"
    assert parts[1] == "…"
    assert parts[-1] == "function_19"
    assert len(" › ".join(parts)) <= 60


@given(st.lists(st.text("ab<>:", min_size=1, max_size=100), min_size=1, max_size=30), st.integers(12, 150))
def test_a_chain_always_fits(names: list[str], room: int) -> None:
    parts = fit(names, room)
    assert len(" › ".join(name for _, name in parts)) <= room
    assert parts[-1][0] == len(names) - 1


def test_colours_only_when_asked() -> None:
    assert "\x1b" not in render(ROOT, 100, 40, False)
    coloured = render(ROOT, 100, 40, True)
    assert "\x1b[38;5;208mread\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(ROOT, 100, 40, False)


def test_hostile_names_are_shown_safely() -> None:
    root = build(*recorded(Ran(0, "\x1b[2J\r\n" + "x" * 4096, "a:\x1b]0;owned\x07", 5)))
    text = render(root, 80, 10, False)
    assert all(line.isprintable() for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 80


def test_nothing_is_no_line() -> None:
    assert render(Node("all", "all", 0), 80, 10, False) == ""
