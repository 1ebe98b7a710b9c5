"""A table of what was found out last: it may forget, and never answers for another key."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exhume.sources.sampling.recent import Recent

KEYS = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-4, 4)
PUTS = st.lists(st.dictionaries(KEYS, st.integers(1, 1 << 40), max_size=12), max_size=6)


@given(PUTS, st.lists(KEYS, max_size=12), st.integers(1, 5))
def test_an_answer_is_the_last_that_was_put_or_none(puts: list[dict[int, int]], asked: list[int], bits: int) -> None:
    recent, last = Recent(bits), dict[int, int]()
    for each in puts:
        recent.put(np.array([*each], dtype=np.int64), np.array([*each.values()], dtype=np.int64))
        last |= each
        got = recent.get(np.array([*each], dtype=np.int64)).tolist()
        assert all(found in (0, value) for found, value in zip(got, each.values(), strict=True))
        assert not each or any(got), "the last of those that share a place is there"
    keys = [*last, *asked]
    for key, found in zip(keys, recent.get(np.array(keys, dtype=np.int64)).tolist(), strict=True):
        assert found in (0, last.get(key, 0))
    recent.clear()
    assert not recent.get(np.array(keys, dtype=np.int64)).any()


def test_few_keys_are_all_known() -> None:
    keys = np.arange(0xFFFFFFFF81000000, 0xFFFFFFFF81000000 + 4096, 16, dtype=np.uint64).view(np.int64)
    recent = Recent(16)
    recent.put(keys, np.arange(1, len(keys) + 1))
    assert recent.get(keys).tolist() == list(range(1, len(keys) + 1))
