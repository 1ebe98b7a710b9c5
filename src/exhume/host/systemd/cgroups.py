"""Why a unit makes cgroups of its own, below or beside the one that systemd gives it."""

import posixpath
import re

from exhume.host.programs import with_role
from exhume.host.systemd.unit_file import Sections, boolean, split

_WORD = re.compile(r"[^\s\"'=;|&()`$]+")


def own_cgroups(sections: Sections) -> str:
    """One reason, the first of them; empty if nothing says so."""
    said = next((value for value in reversed(sections.all("Service", "Delegate"))), "")
    for line in sections.lines("Service", "ExecStart"):
        for word in split(line)[:1] + tuple(_WORD.findall(line)[:200]):
            reason = _runs(posixpath.basename(word.lstrip("-@:+!")))
            if reason and (word.lstrip("-@:+!").startswith("/") or word == split(line)[0]):
                return reason + (f" (Delegate={said})" if said and boolean(said) is not False else "")
    if said and boolean(said) is not False:
        return f"Delegate={said}: it may make cgroups below its own"
    return ""


def _runs(command: str) -> str:
    reason = next((program.cgroups for program in with_role("makes-cgroups") if command in program.commands), "")
    return f"runs {command}, which {reason}" if reason else ""
