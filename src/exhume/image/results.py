"""What a check found, in the one form that pipelines' formats are made from: SARIF, JUnit, GitHub's annotations.

Names come from images and nodes, and are hostile: here they become text that every one of those formats may carry.
"""

from dataclasses import dataclass
from typing import Literal

from exhume.text import printable

Level = Literal["passed", "note", "warning", "error", "unknown"]
"""Unknown is what could not be judged: no pass, and no proof of a fault."""

LONGEST = 4000


@dataclass(frozen=True, slots=True)
class Result:
    rule: str
    """What was asked, by a name that stays: crash-loop, endless-restart."""
    level: Level
    subject: str
    """Whom it concerns: a unit, a cgroup, a container; empty if it is the whole."""
    path: str
    """The file in the image that it is read from, from the image's root; empty if there is none."""
    message: str
    help: str = ""
    """What the rule is about, and what to do."""


def plain(text: str, longest: int = LONGEST) -> str:
    """Without what XML, JSON or a log may not carry, or would take for something else: all of it is shown as an escape."""
    return printable(text, longest)


def raw(text: str) -> bytes:
    """The bytes of a name as they are in the image, where bytes that are no UTF-8 are kept by surrogateescape."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace")
