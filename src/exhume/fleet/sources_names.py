"""One machine, many names: `http://10.1.2.3:9100`, `Node-7.example.com.`, `node-7`. Which of them are the same?"""

import ipaddress
import re
from collections.abc import Iterable

_PORT = re.compile(r":\d{1,5}$")


def host(name: str) -> str:
    """A name or address without scheme, path, port, brackets, the dot at its end, and capital letters."""
    name = name.strip().partition("://")[2] or name.strip()
    name = name.partition("/")[0]
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = _PORT.sub("", name)
    return name.rstrip(".").lower()


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def short(name: str) -> str:
    """The first part of a name with a domain; of an address all of it."""
    return name if is_address(name) else name.partition(".")[0]


def matched(names: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Which known name each is: by the whole host, or by its first part where that is one machine's on both sides, and one of
    the two has no domain or has part of the other's (`a.x` is not `a.y`)."""
    names, known = list(names), list(known)
    whole: dict[str, list[str]] = {}
    parts: dict[str, list[str]] = {}
    for each in known:
        whole.setdefault(host(each), []).append(each)
        parts.setdefault(short(host(each)), []).append(each)
    mine: dict[str, set[str]] = {}
    for each in names:
        mine.setdefault(short(host(each)), set()).add(host(each))
    found = {}
    for each in names:
        here = host(each)
        if each in whole.get(here, []):
            found[each] = each
        elif len(whole.get(here, [])) == 1:
            found[each] = whole[here][0]
        else:
            others = parts.get(short(here), [])
            if len(others) == 1 and len(mine[short(here)]) == 1 and _within(here, host(others[0])):
                found[each] = others[0]
    return found


def _within(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    return longer.startswith(f"{shorter}.")
