"""Stretches of time side by side, against counting every moment."""

from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnosis.findings.model import Span
from exhume.diagnosis.findings.spans import merged, overlap_ns, total_ns

_SPAN = st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 9)).map(lambda of: Span(of[0], of[1], of[1] + of[2]))
_SPANS = st.lists(_SPAN, max_size=8)


def moments(spans: list[Span]) -> set[tuple[int, int]]:
    return {(span.core, moment) for span in spans for moment in range(span.start, span.end)}


@given(_SPANS, _SPANS)
def test_overlap_is_what_both_have_on_the_same_core(some: list[Span], others: list[Span]) -> None:
    assert overlap_ns(some, others) == len(moments(some) & moments(others)) == overlap_ns(others, some)


@given(_SPANS)
def test_what_happens_on_two_cores_at_once_counts_once(spans: list[Span]) -> None:
    assert total_ns(spans) == len({moment for _, moment in moments(spans)})


def test_stretches_that_touch_are_one_and_one_that_runs_backwards_is_none() -> None:
    assert merged([Span(1, 5, 9), Span(1, 0, 5), Span(2, 3, 1)]) == {1: [(0, 9)], 2: []}
