"""Regular expressions that come from outside: short ones that do not take for ever by accident.

Python's matcher cannot be interrupted, and everything else waits while it runs. What takes it long is to go back: each choice
and each repetition that may be longer or shorter multiplies the ways in which it tries to match. So ways are counted.
"""

import re
import time
import warnings
from collections.abc import Iterable
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

from exhume.web.replies import Complaint

LONGEST = 200
MOST_WAYS = 1_000
MOST_ENDLESS = 2
# Names are searched up to here: paths of cgroups fit, and with two endless repetitions it takes some milliseconds yet.
MOST_SEARCHED = 512
# What may be so much longer than it must be is as good as endless.
_LONG = 64
# A long repetition and so many ways take as long as the most ways do alone. With two of them two ways are left: each takes up
# to a second over a name of that length.
_OF_ENDLESS = 22
# All names that a question looks at take no longer together.
_MOST_S = 5.0
_MOST_STEPS = 1_000
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)


class Searched:
    """An expression that was looked at, and looks at no more than the begin of long names. It lives as long as a question: a
    name that many threads have, in every segment, is searched once."""

    def __init__(self, text: str, compiled: re.Pattern[str], parameter: str) -> None:
        self.pattern = text
        self._compiled, self._parameter = compiled, parameter
        self._found: dict[str, bool] = {}
        self._took_s = 0.0

    def search(self, text: str) -> object:
        """None if it is not found. Raises Complaint where all of it takes too long."""
        found = self._found.get(text)
        if found is None:
            if self._took_s > _MOST_S:
                told = "takes too long over the names of this window: leave repetitions out, or choose a shorter window"
                raise Complaint(413, f"the expression {told}", self._parameter)
            began = time.thread_time()
            found = self._found[text] = self._compiled.search(text, 0, MOST_SEARCHED) is not None
            self._took_s += time.thread_time() - began
        return found or None


class _Cost(NamedTuple):
    ways: int = 1
    """In which it can match, but for endless repetitions."""
    endless: int = 0
    steps: int = 1
    """That it takes at least, however short the name: what has no width may be repeated, too."""


def pattern(text: str, parameter: str = "") -> Searched:
    """Raises ValueError with the reason."""
    if len(text) > LONGEST:
        raise ValueError(f"it is longer than {LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # [[ may mean something else one day
            cost = _cost(parser.parse(text))
            found = re.compile(text)
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(str(error) or "it is too large") from None
    if cost.endless > MOST_ENDLESS:
        raise ValueError(f"it has more than {MOST_ENDLESS} long repetitions such as * or +")
    if cost.ways * _OF_ENDLESS**cost.endless > MOST_WAYS or cost.steps > _MOST_STEPS:
        raise ValueError("it can match in too many ways, which can take for ever: leave choices and repetitions out")
    return Searched(text, found, parameter)


def _cost(parsed: Iterable[Any]) -> _Cost:
    """Of one after the other."""
    whole = _Cost()
    for code, value in parsed:
        part = _of(code, value)
        whole = _Cost(_few(whole.ways * part.ways), _few(whole.endless + part.endless), _few(whole.steps + part.steps))
    return whole


def _of(code: Any, value: Any) -> _Cost:
    if code in _REPEATS:
        return _repeated(int(value[0]), int(value[1]), _cost(value[2]))
    if code is codes.BRANCH:  # only one of them at a time
        each = [_cost(part) for part in value[1]]
        return _Cost(
            _few(sum(one.ways for one in each)), max(one.endless for one in each), _few(sum(one.steps for one in each))
        )
    if code in (codes.GROUPREF, codes.GROUPREF_EXISTS):
        raise ValueError("it refers back to a group, which can take for ever")
    if code is codes.SUBPATTERN:
        return _cost(value[3])
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return _cost(value[1])
    return _cost(value) if code is codes.ATOMIC_GROUP else _Cost()


def _repeated(least: int, most: int, what: _Cost) -> _Cost:
    steps = _few(what.steps * max(1, least))
    if most - least > _LONG:
        if what.ways > 1 or what.endless:
            raise ValueError("it repeats a choice or a repetition, such as (a|b)* or (a+)+, which can take for ever")
        return _Cost(1, 1, steps)
    ways = 0
    for times in range(least, most + 1):
        ways = _few(ways + what.ways ** min(times, MOST_WAYS))
    return _Cost(ways, _few(what.endless * most), steps)


def _few(number: int) -> int:
    """More than too many is as many: numbers stay small."""
    return min(number, MOST_WAYS + 1)
