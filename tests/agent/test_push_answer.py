"""What receivers answer, and what it means: statuses, and a yes that is a no."""

from http.client import HTTPMessage

from hypothesis import given
from hypothesis import strategies as st

from exhume.agent.push_send import judged, rejected
from exhume.exports.protobuf import message, number, text
from exhume.host.http.client import Reply

PROTOBUF = ("Content-Type", "application/x-protobuf")


def answer(status: int, reason: str, body: bytes, *headers: tuple[str, str]) -> Reply:
    made = HTTPMessage()
    for name, value in headers:
        made.add_header(name, value)
    return Reply(status, reason, made, body)


@given(st.integers(100, 999), st.text(max_size=30), st.binary(max_size=400), st.text(max_size=20))
def test_any_answer_is_judged_and_told_in_one_line(status: int, reason: str, said: bytes, after: str) -> None:
    outcome = judged(answer(status, reason, said, ("Retry-After", after)))
    assert outcome.state == ("sent" if status // 100 == 2 else outcome.state)
    assert outcome.detail.isprintable()


def partial(*fields: bytes) -> bytes:
    return message(1, *fields)


def test_a_yes_of_a_collector_that_took_nothing_is_a_no() -> None:
    said = partial(number(1, 1), text(2, "no such tenant\x1b"))
    outcome = judged(answer(200, "OK", said, PROTOBUF))
    assert (outcome.state, outcome.detail) == ("failed", "200 OK, but: no such tenant\\x1b")
    assert judged(answer(200, "OK", said)).state == "sent"
    assert rejected(partial(number(1, 1))) == "it took nothing of it"


def test_a_yes_is_a_yes_with_and_without_a_warning() -> None:
    for said in (b"", partial(), partial(text(2, "only a warning")), partial(number(1, 0)), number(1, 5), b"<html>"):
        assert judged(answer(200, "OK", said, PROTOBUF)).state == "sent"


@given(st.binary(max_size=60) | st.binary(max_size=60).map(partial))
def test_garbage_is_told_in_one_line_or_taken_for_a_yes(said: bytes) -> None:
    assert rejected(said).isprintable()
