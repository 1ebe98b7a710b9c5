"""Regular expressions that come from outside: short ones that do not take for ever by accident.

Python's matcher cannot be interrupted, and everything else waits while it runs. What takes it exponential time is a
repetition of something that can itself match in several ways, such as (a+)+b or (a|aa)*b: those are refused.
"""

import re
import warnings
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LONGEST = 200
_MOST_ENDLESS = 4
_FEW = 10


def pattern(text: str) -> re.Pattern[str]:
    """Raises ValueError with the reason."""
    if len(text) > LONGEST:
        raise ValueError(f"it is longer than {LONGEST} characters")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # [[ may mean something else one day
            endless = _endless(parser.parse(text), 1)
            found = re.compile(text)
    except (re.error, RecursionError, OverflowError, MemoryError) as error:
        raise ValueError(str(error) or "it is too large") from None
    if endless > _MOST_ENDLESS:
        raise ValueError(f"it has more than {_MOST_ENDLESS} repetitions (* or +)")
    return found


def _endless(parsed: Any, times: int) -> int:
    """How many repetitions are long. `times` is how often what is around it may be repeated."""
    found = 0
    for code, value in parsed:
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            least, most, what = value
            often = min(int(most), 1 << 20) * times
            if least != most and times > 1 and often > _FEW:
                raise ValueError("it has a repetition inside of a repetition, which can take for ever")
            found += (often > _FEW) + _endless(what, often)
        elif code is codes.BRANCH and times > _FEW:
            raise ValueError("it repeats a choice (a|b)*, which can take for ever")
        elif code in (codes.GROUPREF, codes.GROUPREF_EXISTS):
            raise ValueError("it refers back to a group, which can take for ever")
        else:
            found += sum(_endless(part, times) for part in _parts(code, value))
    return found


def _parts(code: Any, value: Any) -> list[Any]:
    """The patterns that are inside of a construct."""
    if code is codes.SUBPATTERN:
        return [value[3]]
    if code is codes.BRANCH:
        return list(value[1])
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return [value[1]]
    if code is codes.ATOMIC_GROUP:
        return [value]
    return []
