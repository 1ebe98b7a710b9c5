"""What the end of a unit brings about: that of the machine, or of a protected unit. A stop is an end, and one that takes too
long is a failure."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from exhume.host.systemd import names
from exhume.host.systemd.refused import actions
from exhume.host.systemd.specifiers import expand
from exhume.remedy.protected import runs
from exhume.remedy.protected_commands import Command, commands, last, of_script
from exhume.remedy.protected_units import Protection
from exhume.text import printable

# StartLimitAction= is of starts alone. systemd.special(7) has the targets.
_AT_ITS_END = ("FailureAction", "SuccessAction", "JobTimeoutAction")
_STARTS = tuple(("Service", key) for key in ("ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost"))
_STOPS = (("Service", "ExecStop"), ("Service", "ExecStopPost"), ("Socket", "ExecStopPre"), ("Socket", "ExecStopPost"))
_GOES_DOWN = ("reboot", "poweroff", "halt", "kexec", "soft-reboot", "exit", "shutdown", "emergency", "rescue")
# Job modes of systemctl(1) by which a start stops all others, drops their jobs, or cannot be taken back.
_ELBOWS = ("isolate", "flush", "replace-irreversibly")
_PROGRAMS = frozenset(("reboot", "poweroff", "halt", "kexec", "shutdown", "telinit"))
_VERBS = frozenset((*_GOES_DOWN, "isolate", "default", "suspend", "hibernate"))
_KILLS = frozenset(("pkill", "killall", "skill"))
_FINDS = frozenset(("pidof", "pgrep"))
_LOOKS = frozenset(("status", "show", "cat", "is-active", "is-enabled", "is-failed", "list-units", "list-dependencies"))
_WORD = re.compile(r"(?<![\w/.@:-])[\w.@:\\*?\[\]-]+")  # of a command line, whatever quotes are around; no path
_BY_SCRIPT = re.compile(r"/init\.d/([\w.@-]+)|(?<![\w.@-])(?:service|rc-service|invoke-rc\.d)\s+([\w.@-]+)\s+\S*(?:stop|start)")


def harm(unit: str, protection: Protection) -> str:
    """Why a unit must not be stopped, as a sentence; empty if it may be."""
    sections = protection.units.merged(unit)
    found = [f"{key}={value}" for key, value in actions(sections).items() if key in _AT_ITS_END]
    if found:
        hint = f"exhume fix {printable(unit)} --keep no-restart switches that off, after which this can be done"
        return f"{printable(unit)} takes the machine down when it ends ({', '.join(found)}); {hint}"
    if why := _run(unit, _STOPS, protection):
        return f"{printable(unit)} {why[0]} when it is stopped ({why[1]})"
    return _then(unit, protection)


def _run(unit: str, keys: Iterable[tuple[str, str]], protection: Protection) -> tuple[str, str] | None:
    """What the commands of a unit do that must not be, and which one of them."""
    sections = protection.units.merged(unit)
    for section, key in keys:
        for line in (expand(line, unit) for line in sections.lines(section, key)):
            for text, every in _texts(line, protection):
                if _takes_down(every):
                    return "takes the machine down", f"{key}={printable(line, 80)}"
                if met := _kills(every) or _acts_on(text, every, protection):
                    return f"acts on {printable(met)}, which is protected,", f"{key}={printable(line, 80)}"
    return None


def _texts(line: str, protection: Protection) -> Iterator[tuple[str, list[Command]]]:
    """A command line, and the scripts that it runs; each with its commands."""
    every = list(commands(line))
    yield line, every
    for path in dict.fromkeys(word for command in every for word in command[:2]):
        if text := protection.script(path):
            yield text, list(of_script(text))


def _then(unit: str, protection: Protection) -> str:
    """What OnFailure= and OnSuccess= start when it ends, and how."""
    sections = protection.units.merged(unit)
    for kind in ("OnFailure", "OnSuccess"):
        others = protection.units.graph.of(unit, kind)
        mode = "isolate" if sections.flag("Unit", f"{kind}Isolate", False) else ""
        mode = sections.last("Unit", f"{kind}JobMode") or mode
        if others and mode in _ELBOWS:
            return (
                f"{printable(unit)} starts {printable(others[0])} when it ends, and what else runs gives way ({kind}: {mode})"
            )
        for other in others:
            starts = f"it starts {printable(other)} then"
            if names.prefix(other).removeprefix("systemd-") in _GOES_DOWN:
                return f"{printable(unit)} takes the machine down when it ends: {starts}"
            if met := protection.why_not_start(other):
                return f"{printable(unit)} meets a protected unit when it ends: {starts}, and {met}"
            if why := _run(other, _STARTS, protection):
                return f"{printable(unit)} {why[0]} when it ends: {starts} ({why[1]})"
    return ""


def _kills(every: list[Command]) -> str:
    """A protected program that commands send a signal to by its name."""
    by_number = any(last(command[0]) == "kill" for command in every)
    names_ = _KILLS | _FINDS if by_number else _KILLS
    words = (word for command in every if last(command[0]) in names_ for word in command[1:])
    return next((last(word) for word in words if runs(word.strip("^$"))), "")


def _takes_down(every: list[Command]) -> bool:
    for command in every:
        if last(command[0]) in _PROGRAMS:
            return True
        if last(command[0]) == "systemctl":
            words = [word for word in command[1:] if not word.startswith("-")]
            if _VERBS.intersection(words[:2]):  # an option's value may come first
                return True
    return False


def _acts_on(line: str, every: list[Command], protection: Protection) -> str:
    """A protected unit that a command line or a script names to systemctl, to service or by its script; or what it
    would stop with one."""
    for word in _named(line, every):
        if set("*?[") & set(word):
            found = [each for each in protection.names if _fits(each, word, protection)]
            if found:
                return min(found)
            continue
        unit = word if names.valid(word) else f"{word}.service"
        if names.valid(unit):
            own = protection.units.canonical(unit)
            for each in (unit, *protection.stopped_with([own], "perhaps")):
                if names.kind(each) in names.ACTED_ON and protection.named(each):
                    return each
    return ""


def _named(line: str, every: list[Command]) -> Iterator[str]:
    for one, other in _BY_SCRIPT.findall(line):
        yield one or other
    told = [command for command in every if last(command[0]) == "systemctl"]
    for command in told:
        words = [word for word in command[1:] if not word.startswith("-")]
        if words and words[0] not in _LOOKS:
            yield from words
    if not told and "systemctl" in line:
        yield from _WORD.findall(line)


def _fits(unit: str, pattern: str, protection: Protection) -> bool:
    every = (unit, *protection.units.aliases(unit))
    return any(fnmatchcase(each, pattern) or fnmatchcase(each, f"{pattern}.service") for each in every)
