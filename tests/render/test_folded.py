"""Folded stacks, as other tools read them."""

from hypothesis import given
from hypothesis import strategies as st

from exhume.render.flame import Node, build
from exhume.render.folded import folded, frame
from tests.render.made import Ran, idle, recorded


def test_kernel_and_run_time_functions_have_the_suffixes_of_the_flamegraph_tools() -> None:
    root = build(*recorded(Ran(0, "java", "java:main j:Lhot k:read", 4), Ran(0, "java", "java:main", 1)), idle="stack")
    assert list(folded(root)) == ["java;main 1", "java;main;Lhot_[j];read_[k] 4"]


def test_idle_stacks_are_whole() -> None:
    root = build(*recorded(idle(0, 2)), idle="stack")
    assert list(folded(root)) == ["swapper;cpu_startup_entry_[k];do_idle_[k];default_idle_[k] 2"]


@given(st.text(max_size=5000))
def test_no_name_breaks_its_line_or_its_frame(name: str) -> None:
    text = frame(Node(name, "user", 1))
    assert text.isprintable()
    assert ";" not in text
    assert len(text) <= 400
