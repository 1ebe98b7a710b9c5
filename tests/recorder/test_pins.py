"""Which minutes of an incident are pinned: all of a short one, of one that lasts its begin and its end."""

from exhume.recorder.session import Pins
from exhume.recorder.trigger import WINDOW_NS, Incident
from tests.agent.made import SECOND

AROUND = 120 * SECOND


def going(start_s: int, end_s: int, kind: str = "cpu-full") -> Incident:
    return Incident(kind, "", start_s * SECOND, end_s * SECOND, "full")


def covered(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """In seconds, those that touch as one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((start, end))
    return [(start // SECOND, end // SECOND) for start, end in joined]


def pinned(first_s: int, last_s: int, ended: bool = True) -> list[tuple[int, int]]:
    """One that goes on from the first to the last second and is looked at every ten, for a minute back."""
    pinning, spans = Pins(), []
    for now in range(first_s + 10, last_s + 1, 10):
        spans += pinning.look([going(max(first_s, now - WINDOW_NS // SECOND), now)], AROUND)
    if ended:
        spans += pinning.look([], AROUND)
        assert pinning.look([], AROUND) == []
    assert {pin.reason for pin in spans} == {"cpu-full: full"}
    return covered([(pin.start, pin.end) for pin in spans])


def test_a_short_one_is_pinned_whole() -> None:
    assert pinned(1000, 1100) == pinned(1000, 1100, ended=False) == [(880, 1220)]


def test_of_one_that_lasts_all_day_its_begin_and_its_end() -> None:
    assert pinned(1000, 80_000) == [(880, 1240), (79_880, 80_120)]
    assert pinned(1000, 80_000, ended=False) == [(880, 1240)]


def test_one_that_comes_again_is_pinned_again_and_another_is_pinned_beside_it() -> None:
    pinning = Pins()
    pinning.look([going(1000, 1010)], AROUND)
    (pin,) = pinning.look([going(2000, 2010)], AROUND)
    assert (pin.start, pin.end) == (1880 * SECOND, 2130 * SECOND)
    pins = pinning.look([going(2000, 2020), going(2015, 2020, "steal")], AROUND)
    assert covered([(pin.start, pin.end) for pin in pins]) == [(1880, 2140)]
    assert [pin.reason for pin in pins] == ["cpu-full: full", "steal: full"]
