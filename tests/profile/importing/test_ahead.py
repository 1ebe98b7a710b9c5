"""An iterator in a thread of its own gives what it would give here, and ends when nobody takes it any more."""

import threading
from collections.abc import Iterator

import pytest

from exhume.profile.importing.ahead import ahead


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "exhume-ahead"]


@pytest.mark.parametrize("number", [0, 1, 2, 1000])
def test_all_items_come_and_in_their_order(number: int) -> None:
    assert list(ahead(iter(range(number)))) == list(range(number))
    assert not workers()


def test_what_it_raises_comes_after_the_items_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the third")

    items = ahead(broken())
    assert [next(items), next(items)] == [1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(items)
    assert not workers()


def test_items_that_are_errors_or_nothing_are_items() -> None:
    items = [None, ValueError("kept, not raised"), None]
    assert list(ahead(iter(items))) == items


def test_it_works_while_nobody_waits_but_only_so_far_ahead() -> None:
    made, further = [], threading.Event()

    def items() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            if number == 3:
                further.set()
            yield number

    taken = ahead(items(), most=2)
    assert next(taken) == 0
    # One was taken, two wait and the fourth has no place: it was made, and it is the last.
    assert further.wait(60)
    assert made == [0, 1, 2, 3]
    assert list(taken) == list(range(1, 100))


def test_who_ends_early_leaves_no_thread_behind_that_still_reads() -> None:
    ended = []

    def endless() -> Iterator[int]:
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            ended.append(True)

    taken = ahead(endless())
    assert [next(taken), next(taken)] == [0, 1]
    taken.close()  # type: ignore[attr-defined]
    assert not workers()
    assert ended == [True]
