"""What a request may ask with: every parameter of the API, read strictly. What is wrong is named."""

import re
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import parse_qsl

from exhume.host.cpu_list import cpu_list
from exhume.recording.choice import Choice
from exhume.web.patterns import Searched, pattern
from exhume.web.replies import Complaint

Value = TypeVar("Value")
MOST_FIELDS = 40
_TIME = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
_PIDS = re.compile(r"[0-9]{1,10}(,[0-9]{1,10}){0,999}", re.ASCII)
_MOST_TIME = 1 << 62
_LONGEST = 40_000
# How far a page may be panned beyond the ends.
_SLACK = 3_600_000_000_000
# What a file without the cores of its samples has for them.
_UNKNOWN = (-1,)


class Query:
    """The parameters of a request. One that is not known is refused: a misspelt filter must not look like one that was used."""

    def __init__(self, query: bytes, known: Sequence[str]) -> None:
        try:
            pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
        except ValueError:
            raise Complaint(400, "the query of the address cannot be read") from None
        self.unwanted = threading.Event()
        """Whoever asked does not wait any more."""
        self._values: dict[str, str] = {}
        for name, value in pairs:
            if name not in known and name != "token":
                raise Complaint(400, f"there is no parameter {name[:40]!r} here: there are {', '.join(known)}", name[:40])
            if name in self._values:
                raise Complaint(400, f"{name} is given twice", name)
            self._values[name] = value

    def asked(self, name: str) -> bool:
        return self._values.get(name, "") != ""

    def _read(self, name: str, read: Callable[[str], Value], otherwise: Value, form: str) -> Value:
        """An empty value is the same as none."""
        text = self._values.get(name, "")
        if text == "":
            return otherwise
        try:
            return read(text)
        except ValueError as error:
            raise Complaint(400, f"{name} is not {form}" + (f": {error}" if str(error) else ""), name) from None

    def time(self, name: str, otherwise: int) -> int:
        return self._read(name, _time, otherwise, "a time in nanoseconds of the recording's clock")

    def integer(self, name: str, least: int, most: int, otherwise: int) -> int:
        return self._read(name, lambda text: _number(text, least, most), otherwise, f"a number from {least} to {most}")

    def word(self, name: str, words: Sequence[str], otherwise: str) -> str:
        return self._read(name, lambda text: _word(text, words), otherwise, f"one of {', '.join(words)}")

    def flag(self, name: str, otherwise: bool) -> bool:
        return self.word(name, ("0", "1"), "1" if otherwise else "0") == "1"

    def pattern(self, name: str) -> Searched | None:
        return self._read(name, lambda text: pattern(text, name), None, "a regular expression that can be used")

    def window(self, whole: tuple[int, int], first: str = "from", last: str = "to", cut: bool = True) -> tuple[int, int]:
        """From begin to end, which is outside; all of it if nothing is said. `cut` to what there is."""
        start, end = self.time(first, whole[0]), self.time(last, whole[1])
        if start >= end:
            raise Complaint(400, f"{last} must be later than {first}", last)
        if start >= whole[1] or end <= whole[0]:
            raise Complaint(400, f"{first} and {last} are outside of the recording", first)
        if end - start > 4 * (whole[1] - whole[0]) + _SLACK:
            raise Complaint(400, f"{first} and {last} are much further apart than the recording is long", last)
        return (max(start, whole[0]), min(end, whole[1])) if cut else (start, end)

    def choice(self) -> Choice:
        """Whose samples: cores, comm, pid, tid, cgroup, idle."""
        cores = self._read("cores", _cores, None, "a list of cores such as 39 or 0-3,8")
        pids = self._read("pid", _pids, None, "a list of PIDs such as 4242 or 4242,4250")
        tids = self._read("tid", _pids, None, "a list of TIDs such as 4243 or 4243,4250")
        return Choice(cores, self.pattern("comm"), pids, self.pattern("cgroup"), self.flag("idle", True), tids)


def _time(text: str) -> int:
    if _TIME.fullmatch(text) is None or abs(int(text)) > _MOST_TIME:
        raise ValueError
    return int(text)


def _number(text: str, least: int, most: int) -> int:
    if _NUMBER.fullmatch(text) is None or not least <= int(text) <= most:
        raise ValueError
    return int(text)


def _word(text: str, words: Sequence[str]) -> str:
    if text not in words:
        raise ValueError
    return text


def _cores(text: str) -> tuple[int, ...] | None:
    if text == "all":
        return None
    parts = [_UNKNOWN if part == "-1" else cpu_list(part.encode("utf-8", "replace")) for part in text[:_LONGEST].split(",")]
    if len(text) > _LONGEST or not all(parts):
        raise ValueError
    return tuple(sorted({core for part in parts for core in part}))  # in whatever order they were picked


def _pids(text: str) -> tuple[int, ...] | None:
    if _PIDS.fullmatch(text) is None:
        raise ValueError
    return tuple(int(part) for part in text.split(","))
