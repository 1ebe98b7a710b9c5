"""Raw stacks as numbers: the same for the same stack, wherever it is among how many others."""

import numpy as np

from exhume.sources.sampling import chains, records
from exhume.sources.sampling.records import CONTEXT_KERNEL, CONTEXT_USER

KINDS = [
    [],
    [CONTEXT_KERNEL, 0xFFFFFFFF81000010],
    [CONTEXT_KERNEL, 0xFFFFFFFF81000010, CONTEXT_USER, 0x1000],
    [CONTEXT_USER, 0x1000, 0x2000],
    [CONTEXT_USER, 0x2000, 0x1000],
    [CONTEXT_USER, 0x1000, 0x2000, 0],
    [0],
    [0, 0],
]


def samples(which: list[int]) -> records.Samples:
    """One of these kinds after the other, with a word between them that is of none."""
    words: list[int] = []
    bounds = []
    for kind in which:
        words.append(0xDEAD)
        bounds.append((8 * len(words), 8 * (len(words) + len(KINDS[kind]))))
        words += KINDS[kind]
    nothing = np.zeros(len(which), dtype=np.int64)
    begin, end = np.array(bounds, dtype=np.int64).reshape(-1, 2).T
    data = np.array(words, dtype=np.uint64).tobytes()
    return records.Samples(data, nothing, nothing, nothing, nothing, begin, end, 0, 0)


def test_stacks_have_the_same_number_where_they_are_the_same_and_nowhere_else() -> None:
    which = np.random.default_rng(7).integers(0, len(KINDS), 3 * chains._TOGETHER + 17).tolist()
    found = chains.of_samples(samples(which))
    numbers = dict(zip(which, found.hashed.tolist(), strict=True))
    assert len({*numbers.values()}) == len(KINDS)
    assert found.hashed.tolist() == [numbers[kind] for kind in which]
    assert found.in_user.tolist() == [CONTEXT_USER in KINDS[kind] for kind in which]


def test_no_samples_have_no_stacks() -> None:
    found = chains.of_samples(samples([]))
    assert (len(found.hashed), len(found.in_user)) == (0, 0)
