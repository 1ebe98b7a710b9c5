"""Whose samples a command of perf record asks for."""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

# Options of one letter may be one word, and what one is given may be in it: -agp4242. Those before it take nothing.
_ALONE: Final = "[AaBbdfgiNnPqRsTvW]*"
_SOME = re.compile(rf"-{_ALONE}[ptu].*|--(?:pid|tid|uid)(?:=.*)?", re.DOTALL)
_EVERYTHING = re.compile(rf"-{_ALONE}a.*|--all-cpus", re.DOTALL)


def of_some(words: Sequence[str]) -> bool:
    """Whether only some processes or threads, or those of somebody, are sampled: with --sample-cpu nothing else tells.

    With -a such an option is taken for one of the command that perf started: of both perf heeds -p, but warns.
    """
    if list(words[1:2]) != ["record"]:
        return False
    options = list(takewhile(lambda word: word != "--", words[2:]))
    return any(map(_SOME.fullmatch, options)) and not any(map(_EVERYTHING.fullmatch, options))
