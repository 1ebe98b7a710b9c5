"""The lines of crontabs and of anacrontab: when, who, what. Pure functions of bytes, by crontab(5) and anacrontab(5)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from exhume.host.commands import shown
from exhume.host.quantities import DAY, MINUTE, duration
from exhume.text import decode

# special strings of crontab(5); entry.c of cronie and of Debian's cron
NICKNAMES = {"@reboot", "@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"}
PERIODS = {"@daily", "@weekly", "@monthly", "@yearly", "@annually"}

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_DAYS = "sun mon tue wed thu fri sat".split()
# minute, hour, day of the month, month, day of the week (0 and 7 are Sunday)
_FIELDS: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ()),
    (1, 12, tuple(_MONTHS)),
    (0, 7, tuple(_DAYS)),
)
# load_env() of misc.c: a name, perhaps in quotes, and an equals sign
_SETTING = re.compile(rb"""^\s*(?:"[^"]*"|'[^']*'|[^\s=]+)\s*=""")
_ITEM = re.compile(r"^(\*|[0-9a-z]{1,3}(?:[-~][0-9a-z]{1,3})?|~)(?:/([0-9]{1,3}))?$")

LONGEST_LINE = 1000  # MAX_COMMAND of cron.h


@dataclass(frozen=True, slots=True)
class Job:
    line: int
    when: str
    user: str
    command: str


@dataclass(frozen=True, slots=True)
class Mistake:
    line: int
    why: str


def jobs(text: bytes, user: str | None, quiet: bool = False) -> Iterator[Job | Mistake]:
    """What a crontab asks for. `user` is whose it is; None of system crontabs, where each line says it.

    With `quiet` a line may begin with a minus sign, which keeps it out of the log: cronie's, Debian's cron refuses it.
    """
    for number, raw in enumerate(text.split(b"\n"), 1):
        line = raw.strip(b" \t\r")
        if not line or line.startswith(b"#"):
            continue
        first = line.split(None, 1)[0]
        if not first.startswith(b"@") and b"=" in line and _SETTING.match(line) and not _begins_like_a_time(first):
            continue
        yield _job(number, decode(line[: 4 * LONGEST_LINE]).removeprefix("-" if quiet else ""), user)


def _begins_like_a_time(word: bytes) -> bool:
    return word[:1] in b"*0123456789~"


def _job(number: int, line: str, user: str | None) -> Job | Mistake:
    fields = 1 if line.startswith("@") else 5
    words = line.split(None, fields + (user is None))
    # A command may be empty; a time or a user may not.
    if len(words) < fields + (user is None):
        return Mistake(number, "it ends before the command")
    when = words[:fields]
    if fields == 1 and when[0].lower() not in NICKNAMES:
        return Mistake(number, f"{when[0][:40]} is none of cron's times")
    if fields == 5:
        for value, (low, high, names) in zip(when, _FIELDS, strict=True):
            if not _is_time(value.lower(), low, high, names):
                return Mistake(number, f"{value[:40]} is no time")
    who = words[fields] if user is None else user
    command = words[fields + (user is None) :]
    return Job(number, " ".join(when), who, shown(command_of(command[0])) if command else "")


def command_of(text: str) -> str:
    """An unescaped % ends the command: what follows is its standard input (crontab(5))."""
    return re.split(r"(?<!\\)%", text, maxsplit=1)[0].replace("\\%", "%").strip()


def _is_time(value: str, low: int, high: int, names: tuple[str, ...]) -> bool:
    for item in value.split(","):
        match = _ITEM.match(item)
        if not match or match[2] == "0":
            return False
        if match[1] in "*~":
            continue
        numbers = [_number(part, low, names) for part in re.split("[-~]", match[1])]
        if any(number is None or not low <= number <= high for number in numbers):
            return False
    return True


def _number(text: str, low: int, names: tuple[str, ...]) -> int | None:
    if text.isascii() and text.isdigit():
        return int(text)
    return names.index(text) + low if text in names else None


def anacron_jobs(text: bytes) -> Iterator[Job | Mistake]:
    """Lines of anacrontab(5): period in days or a name, delay in minutes, identifier, command."""
    for number, raw in enumerate(text.split(b"\n"), 1):
        line = decode(raw[: 4 * LONGEST_LINE]).strip()
        if not line or line.startswith("#") or re.match(r"^[A-Za-z_]\w*\s*=", line):
            continue
        words = line.split(None, 3)
        period, delay = words[0], words[1] if len(words) > 1 else ""
        if len(words) < 4 or not (period in PERIODS or _is_number(period)) or not _is_number(delay):
            yield Mistake(number, "it is not a period, a delay, an identifier and a command")
            continue
        when = period if period.startswith("@") else f"every {duration(float(period) * DAY)}"
        yield Job(number, f"{when}, {duration(float(delay) * MINUTE)} late", "root", shown(words[3]))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
