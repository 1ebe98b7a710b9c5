"""A trouble is said once while it lasts, again when it comes back, and never so often that it fills the journal."""

from exhume.recorder.session import MOST_MESSAGES, OVER_S, OncePerEpisode


class Told:
    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.tell = OncePerEpisode(self.said.append, lambda: self.now)


def test_what_lasts_is_said_once_and_what_comes_back_again() -> None:
    told = Told()
    for _ in range(1000):
        told.tell("disk full")
        told.now += 60.0
    assert told.said == ["disk full"]
    told.now += OVER_S
    told.tell("disk full")
    assert told.said == ["disk full"] * 2


def test_many_in_other_words_each_time_are_bounded_and_what_comes_later_is_heard() -> None:
    told = Told()
    for number in range(10 * MOST_MESSAGES):
        told.tell(f"trouble {number}")
    assert len(told.said) == len(told.tell._heard) == MOST_MESSAGES
    told.now += OVER_S
    told.tell("disk full")
    assert told.said[-1] == "disk full"
    assert len(told.tell._heard) == 1
