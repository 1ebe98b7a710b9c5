"""What is written can be read back by the rules of the wire format."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exhume.exports import protobuf
from tests.exports.wire import Message, varint

FIELDS = st.integers(1, (1 << 29) - 1)


@given(st.integers(-(1 << 63), (1 << 64) - 1))
def test_a_number_is_read_back(value: int) -> None:
    data = protobuf.varint(value)
    assert varint(data, 0) == (value % (1 << 64), len(data))
    assert len(data) <= 10


@given(st.lists(st.integers(0, (1 << 63) - 1)))
def test_many_numbers_at_once_have_nine_bytes_each(values: list[int]) -> None:
    data = protobuf.stamps(np.array(values, dtype=np.int64))
    assert len(data) == len(values) * protobuf.STAMP
    assert [varint(data, place * protobuf.STAMP) for place in range(len(values))] == [
        (value, (place + 1) * protobuf.STAMP) for place, value in enumerate(values)
    ]


@given(FIELDS, st.integers(0, 1 << 63), st.text(), st.lists(st.integers(0, 1 << 63)))
def test_a_message_has_what_was_put_in(field: int, value: int, text: str, values: list[int]) -> None:
    whole = Message(protobuf.message(field, protobuf.number(1, value), protobuf.text(2, text), protobuf.packed(3, values)))
    inner = whole.message(field)
    assert inner.number(1) == value
    assert inner.text(2) == text.encode("utf-8", "backslashreplace").decode()
    assert inner.ints(3) == values


def test_text_that_is_no_unicode_is_still_utf_8() -> None:
    assert Message(protobuf.text(1, "a\udcffb")).text(1) == "a\\udcffb"
