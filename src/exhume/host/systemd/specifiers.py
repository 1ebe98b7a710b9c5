"""Specifiers in unit files: what %i and its like stand for (systemd.unit(5), "Specifiers").

Those that only the running machine knows (%H, %m, %b, %v ...) stay as they are written.
"""

import re

from exhume.host.systemd import names

_ONE = re.compile(r"%(.)", re.DOTALL)
# Of the system manager; a user's manager has its own directories, which are not in the image's files.
_PLACES = {"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc", "T": "/tmp", "V": "/var/tmp"}
_ROOT = {"u": "root", "U": "0", "g": "root", "G": "0", "h": "/root", "s": "/bin/sh", "%": "%"}


def expand(text: str, name: str) -> str:
    """A value of the unit of this name, its specifiers filled in."""
    return _ONE.sub(lambda match: _meaning(match[0], name), text) if "%" in text else text


def _meaning(specifier: str, name: str) -> str:
    letter = specifier[1]
    if letter in "pPiIjJnNf":
        return _of_the_name(letter, name)
    return _PLACES.get(letter) or _ROOT.get(letter) or specifier


def _of_the_name(letter: str, name: str) -> str:
    prefix = names.prefix(name)
    last = prefix.rpartition("-")[2] or prefix
    instance = names.instance(name)
    if letter == "f":
        return "/" + names.unescape(instance or prefix).lstrip("/")
    own = {
        "n": name,
        "N": name.rpartition(".")[0],
        "p": prefix,
        "P": names.unescape(prefix),
        "i": instance,
        "I": names.unescape(instance),
        "j": last,
        "J": names.unescape(last),
    }
    return own[letter]
