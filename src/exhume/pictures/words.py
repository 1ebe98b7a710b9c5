"""A finding in few words for pictures of the chain: what it is, short enough for an arrow to point at, and its numbers.

Kinds with a form of their own are in the table; of any other the sentence itself is cut where it first takes a breath.
"""

import re
from collections.abc import Callable

from exhume.findings.model import Evidence, Finding

_WORDS = {
    "pinned by file": "pinned by page cache",
    "pinned by anon": "pinned by shared memory or tmpfs",
    "pinned by kernel": "pinned by kernel memory",
    "days to pain": "time left",
}
_BREATH = re.compile(r"; |: | \(|, ")


def short(finding: Finding) -> tuple[str, str]:
    """What it is, and the numbers that go with it."""
    form = _FORMS.get(finding.kind)
    made = form(finding) if form is not None else None
    what, numbers = made if made is not None else _cut(finding.summary)
    return what, numbers


def what(item: Evidence) -> str:
    """What a number of the evidence is, in the words of the sentences."""
    return _WORDS.get(item.what, item.what)


def value(item: Evidence) -> str:
    """A number of the evidence with its unit."""
    if item.what == "days to pain" and isinstance(item.value, int | float):
        return _how_long(item.value)
    number = f"{item.value:,}" if isinstance(item.value, int) and item.unit != "PID" else str(item.value)
    return f"{number} {item.unit}".rstrip()


def _how_long(days: float) -> str:
    """`3 days`, `1 h`, `20 min`: a forecast, so whole numbers."""
    for size, unit in ((1, "days"), (1 / 24, "h")):
        if days >= 2 * size or (unit == "h" and days >= size):
            return f"{days / size:,.0f} {unit}"
    return f"{max(1, days * 24 * 60):.0f} min"


def _cut(summary: str) -> tuple[str, str]:
    found = _BREATH.search(summary)
    if found is None:
        return summary, ""
    rest = summary[found.end() :]
    if found.group().strip() == "(":
        rest = rest.replace(")", "", 1)
    return summary[: found.start()], rest


def _count(finding: Finding, what: str) -> str:
    return f"{finding.number(what):,.0f}"


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _has(finding: Finding, *names: str) -> bool:
    return all(finding.value(name) is not None for name in names)


def _zombies(finding: Finding) -> tuple[str, str] | None:
    if not _has(finding, "zombies", "live"):
        return None
    growth = finding.number("growth")
    grew = f"{growth:+,.0f} while watched" if growth else ""
    return f"{_count(finding, 'zombies')} zombie memory cgroups", _joined(f"{_count(finding, 'live')} live", grew)


def _leak(finding: Finding) -> tuple[str, str] | None:
    if not _has(finding, "zombies", "share"):
        return None
    whose = finding.subject if finding.subject and finding.subject != "/" else "somebody"
    numbers = f"{finding.number('share'):.0%} of all zombies"
    return f"{whose} leaks memory cgroups", _joined(f"{_count(finding, 'zombies')} zombies", numbers)


def _walk(finding: Finding) -> tuple[str, str] | None:
    if not _has(finding, "process", "walked"):
        return None
    through = str(finding.value("through") or finding.value("function") or "")
    share = f"{finding.number('share'):.0%} of its samples" if _has(finding, "share") else ""
    return f"{finding.value('process')} walks memory cgroups", _joined(f"{_count(finding, 'walked')} ms", through, share)


def _core(finding: Finding) -> tuple[str, str] | None:
    if not _has(finding, "longest", "kernel time"):
        return None
    what = "softirq" if finding.number("interrupt time") > 0.5 else "system"
    times = finding.number("episodes")
    often = f"{times:,.0f} times, longest {_count(finding, 'longest')} ms" if times > 1 else f"{_count(finding, 'longest')} ms"
    busy = f"node as a whole {finding.number('machine busy'):.0%} busy" if _has(finding, "machine busy") else ""
    return f"{finding.subject} at {finding.number('kernel time'):.0%} {what}", _joined(often, busy)


def _napi(finding: Finding) -> tuple[str, str] | None:
    """Not polled is a word of drivers': what it means is that packets wait."""
    if _has(finding, "stalls", "longest"):
        late = f"{finding.number('late share'):.0%} of the time late" if finding.number("late share") >= 0.005 else ""
        often = f"{_count(finding, 'stalls')} times, up to " if finding.number("stalls") > 1 else ""
        return f"{finding.subject} not polled", _joined(f"packets wait {often}{_count(finding, 'longest')} ms", late)
    if not _has(finding, "not polled for"):
        return None
    queue = f" queue {finding.value('queue')}" if _has(finding, "queue") else ""
    limit = f"driver gives up at {_count(finding, 'driver gives up at')}" if _has(finding, "driver gives up at") else ""
    return f"{finding.subject}{queue} not polled", _joined(f"packets wait {_count(finding, 'not polled for')} ms", limit)


def _reset(finding: Finding) -> tuple[str, str] | None:
    if not _has(finding, "resets"):
        return None
    driver = str(finding.value("driver") or "")
    often = "once" if finding.number("resets") == 1 else f"{_count(finding, 'resets')} times"
    reason = str(finding.value("reason") or "")
    return f"{finding.subject} reset{f' by {driver}' if driver else ''}", _joined(often, reason)


def _loop(finding: Finding) -> tuple[str, str] | None:
    if not _has(finding, "restarts"):
        return None
    meanwhile = finding.number("restarts in the window")
    seen = f"{meanwhile:,.0f} while watched" if meanwhile else ""
    enabled = str(finding.value("enabled") or "")
    return f"{finding.subject} crashes again and again", _joined(f"{_count(finding, 'restarts')} restarts", seen, enabled)


_FORMS: dict[str, Callable[[Finding], tuple[str, str] | None]] = {
    "zombie-memcgs": _zombies,
    "memcg-leak": _leak,
    "memcg-walk": _walk,
    "core-saturated": _core,
    "napi-starved": _napi,
    "nic-reset": _reset,
    "crash-loop": _loop,
}
