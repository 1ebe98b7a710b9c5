"""What works in the background waits for those who are asked something, but not for ever."""

import threading

from exhume.web.quiet import Quiet


def test_nobody_is_waited_for_where_nobody_asks() -> None:
    assert Quiet().wait(0.0)


def test_those_who_ask_are_waited_for_and_no_longer_than_that() -> None:
    quiet = Quiet()
    with quiet.asking():
        assert not quiet.wait(0.01)
        with quiet.asking():
            pass
        assert not quiet.wait(0.01)
    assert quiet.wait(0.0)


def test_who_waits_goes_on_as_soon_as_the_answer_is_out() -> None:
    quiet, told = Quiet(), []
    with quiet.asking():
        waiting = threading.Thread(target=lambda: told.append(quiet.wait(60.0)))
        waiting.start()
    waiting.join(120)
    assert told == [True]
