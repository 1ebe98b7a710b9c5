"""What receivers answer, and what it means: statuses, Retry-After, and a yes that is a no."""

from hypothesis import given
from hypothesis import strategies as st

from exhume.agent.push_answer import LONGEST_AFTER_S, judged, rejected, retry_after
from exhume.exports.protobuf import message, number, text


def test_retry_after_as_a_date() -> None:
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT", 1445412480 - 90.0) == 90.0
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT", 1445412480 + 90.0) == 0.0
    assert retry_after("99999999999999", 0.0) == LONGEST_AFTER_S
    assert retry_after("soon", 0.0) is None
    assert retry_after(None, 0.0) is None


@given(st.text(max_size=40) | st.from_regex(r"\A[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,6} \d\d:\d\d:\d\d [A-Z+0-9-]{0,6}\Z"))
def test_any_retry_after_is_a_bounded_wait_or_none(value: str) -> None:
    found = retry_after(value, 1e9)
    assert found is None or 0.0 <= found <= LONGEST_AFTER_S


@given(st.integers(100, 999), st.text(max_size=30), st.binary(max_size=400), st.none() | st.text(max_size=20))
def test_any_answer_is_judged_and_told_in_one_line(status: int, reason: str, said: bytes, after: str | None) -> None:
    outcome = judged(status, reason, said, after)
    assert outcome.state == ("sent" if status // 100 == 2 else outcome.state)
    assert outcome.detail.isprintable()


def partial(*fields: bytes) -> bytes:
    return message(1, *fields)


def test_a_yes_of_a_collector_that_took_nothing_is_a_no() -> None:
    said = partial(number(1, 1), text(2, "no such tenant\x1b"))
    outcome = judged(200, "OK", said, None, "application/x-protobuf")
    assert (outcome.state, outcome.detail) == ("failed", "200 OK, but: no such tenant\\x1b")
    assert judged(200, "OK", said, None, "text/plain").state == "sent"
    assert rejected(partial(number(1, 1))) == "it took nothing of it"


def test_a_yes_is_a_yes_with_and_without_a_warning() -> None:
    for said in (b"", partial(), partial(text(2, "only a warning")), partial(number(1, 0)), number(1, 5), b"<html>"):
        assert judged(200, "OK", said, None, "application/x-protobuf").state == "sent"


@given(st.binary(max_size=60) | st.binary(max_size=60).map(partial))
def test_garbage_is_told_in_one_line_or_taken_for_a_yes(said: bytes) -> None:
    assert rejected(said).isprintable()
