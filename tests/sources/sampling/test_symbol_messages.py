"""Messages about symbols: what is packed comes back, and what none of ours would send is refused."""

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.sources.sampling.symbol_messages import (
    LARGEST,
    LAST,
    Garbled,
    Named,
    Reply,
    Request,
    Told,
    What,
    pack_functions,
    unpack_functions,
    unpack_reply,
    unpack_request,
)

NUMBERS = st.integers(0, (1 << 64) - 1)
REQUESTS = st.builds(
    Request,
    st.sampled_from(What),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.lists(NUMBERS, max_size=20).map(lambda numbers: array("Q", numbers)),
    st.lists(st.integers(0, (1 << 32) - 1), max_size=16).map(tuple),
    st.binary(max_size=200),
    st.tuples(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1)),
    NUMBERS,
)
RANGES = st.tuples(st.integers(0, LAST - 1), st.integers(1, 1 << 20), st.binary(max_size=600)).map(
    lambda made: Named(made[0], min(made[0] + made[1], LAST), made[2])
)


@given(REQUESTS)
def test_a_request_comes_back_as_it_was(request: Request) -> None:
    assert unpack_request(request.pack()) == request


@given(st.sampled_from(Told), st.integers(-(1 << 63), (1 << 63) - 1), st.binary(max_size=100))
def test_a_reply_comes_back_as_it_was(told: Told, key: int, body: bytes) -> None:
    assert unpack_reply(Reply(told, key, body).pack()) == Reply(told, key, body)


@given(st.lists(RANGES, max_size=30))
def test_functions_come_back_as_they_were(functions: list[Named]) -> None:
    assert [named for body in pack_functions(functions) for named in unpack_functions(body)] == functions


def test_many_functions_take_several_packets() -> None:
    functions = [Named(at, at + 1, b"x" * 4000) for at in range(200)]
    bodies = pack_functions(functions)
    assert len(bodies) > 1
    assert max(len(Reply(Told.FUNCTIONS, 1, body).pack()) for body in bodies) <= LARGEST
    assert [named for body in bodies for named in unpack_functions(body)] == functions


@given(st.binary(max_size=120))
def test_any_packet_is_understood_or_refused(packet: bytes) -> None:
    for unpack in (unpack_request, unpack_reply, unpack_functions):
        try:
            unpack(packet)
        except Garbled:
            continue


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5), (0, LAST + 1)])
def test_what_is_no_range_is_refused(start: int, end: int) -> None:
    with pytest.raises(Garbled):
        unpack_functions(pack_functions([Named(start, end, b"f")])[0])
