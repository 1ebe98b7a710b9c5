"""Which programs a command line runs: the first word, and what a shell, env, nice and the like are told to run.

A word that merely is an argument of a program is none: an agent may well name the kubelet, or its socket.
"""

import re
import shlex
from collections.abc import Iterator
from itertools import pairwise

from exhume.image.systemd.unit_file import split

_SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh", "su", "runuser"))
# What only runs another program, and its options that take the next word as their value; the other options take none, or
# have it in the same word.
_WRAPPERS = {
    **dict.fromkeys(_SHELLS, ("-o", "-O", "+o", "-c", "--command", "--init-file", "--rcfile")),
    "su": ("-c", "--command", "-s", "--shell", "-g", "-G"),
    "runuser": ("-c", "--command", "-s", "--shell", "-u", "--user", "-g", "-G"),
    "env": ("-u", "--unset", "-C", "--chdir"),
    "nice": ("-n", "--adjustment"),
    "ionice": ("-c", "--class", "-n", "--classdata"),
    "taskset": (),
    "numactl": ("-m", "--membind", "-N", "--cpunodebind", "-C", "--physcpubind", "-i", "--interleave", "-p", "--preferred"),
    "chrt": ("-T", "--sched-runtime", "-P", "--sched-period", "-D", "--sched-deadline"),
    "timeout": ("-k", "--kill-after", "-s", "--signal"),
    "setsid": (),
    "exec": ("-a",),
    "command": ("-v", "-V"),  # which only tell where it is
    "eval": (),
    "nohup": (),
    "time": ("-f", "-o"),
    "stdbuf": ("-i", "-o", "-e"),
    "systemd-cat": ("-t", "--identifier", "-p", "--priority", "--stderr-priority", "--level-prefix"),
    "systemd-inhibit": ("--what", "--who", "--why", "--mode"),
    "systemd-run": (
        "-p",
        "--property",
        "-u",
        "--unit",
        "--slice",
        "--description",
        "-E",
        "--setenv",
        "--uid",
        "--gid",
        "--nice",
    ),
    "unshare": ("-R", "--root", "-w", "--wd", "-S", "--setuid", "-G", "--setgid", "--propagation"),
    "nsenter": ("-t", "--target", "-S", "--setuid", "-G", "--setgid"),
    "setpriv": (
        "--reuid",
        "--regid",
        "--groups",
        "--inh-caps",
        "--ambient-caps",
        "--bounding-set",
        "--securebits",
        "--pdeathsig",
    ),
    "sudo": ("-u", "--user", "-g", "--group", "-D", "--chdir", "-C", "-p", "-r", "-t"),
    "gosu": (),
    "choom": ("-n", "--adjust"),
    "prlimit": (),
    "cgexec": ("-g",),
    "chroot": (),
    "flock": ("-w", "--timeout", "-E", "--conflict-exit-code"),
    "tini": ("-p", "-e"),
    "dumb-init": ("-r", "--rewrite"),
    "catatonit": (),
    "busybox": (),
    "hyperkube": (),
}
_BEFORE = {"chroot": 1, "flock": 1, "gosu": 1}
"""So many words that are no option stand before the program; numbers, masks and times are told by their looks."""
_NUMBER = re.compile(r"(?:0x[0-9a-fA-F]+|\+?[\d.,:-]+)[smhd]?")
_ASSIGNS = re.compile(r"[A-Za-z_]\w*\+?=")
_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "}"))
_PROGRAMS = re.compile(r"(?:^|[\s\"'])(/[^\s\"';&|()]*/s?bin/[^\s\"';&|()]+|/s?bin/[^\s\"';&|()]+)")
_DEEPEST = 8

Command = tuple[str, ...]


def commands(line: str) -> Iterator[Command]:
    """The commands of a line of ExecStart=, each with its arguments, and without what only runs it."""
    bare = line.lstrip("@-:+!| \t")
    words = split(bare)
    if "@" in line[: len(line) - len(bare)]:
        words = (*words[:1], *words[2:])  # the second is what the program is called, not an argument
    yield from _run(words, _DEEPEST)


def programs(line: str) -> Iterator[str]:
    """The programs of a line; where another one runs them also whatever is named by its path in a directory of programs."""
    every = list(commands(line))
    yield from (command[0] for command in every)
    if every and last(every[0][0]) in _WRAPPERS:
        yield from _PROGRAMS.findall(line)


def last(path: str) -> str:
    """The program's own name, in small letters."""
    return path.rpartition("/")[2].casefold()


def _run(words: tuple[str, ...], depth: int) -> Iterator[Command]:
    """A command, and what it is told to run."""
    while words and (words[0] in _KEYWORDS or _ASSIGNS.match(words[0])):
        words = words[1:]
    if not words:
        return
    yield words
    name = last(words[0])
    if name == "ip" and "exec" in words:  # ip netns exec NAME, ip vrf exec NAME
        yield from _run(words[words.index("exec") + 2 :], depth - 1) if depth else ()
    if name in _WRAPPERS and depth:
        if name == "eval" or (name in _SHELLS and (script := _script(words)) is not None):
            yield from _scripted(" ".join(words[1:]) if name == "eval" else script or "", depth - 1)
        else:
            yield from _run(_wrapped(name, words[1:]), depth - 1)
        if name == "env":
            texts = [after for option, after in pairwise(words) if option in ("-S", "--split-string")]
            yield from (each for text in texts for each in _run(split(text), depth - 1))


def _script(words: tuple[str, ...]) -> str | None:
    """What a shell is told by -c: the first word after it that is no option. What comes after a script's file is its own."""
    name, value = last(words[0]), False
    for place, word in enumerate(words[1:], 1):
        if value:
            value = False
        elif word == "--" or (not word.startswith(("-", "+")) and name not in ("su", "runuser")):
            return None
        elif word.startswith("--command="):
            return word.partition("=")[2]
        elif word == "--command" or (word.startswith("-") and not word.startswith("--") and "c" in word):
            return next((each for each in words[place + 1 :] if not each.startswith("-")), "")
        else:
            value = word in _WRAPPERS[name]
    return None


def _wrapped(name: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """From the program on that is run."""
    skip, value = _BEFORE.get(name, 0), False
    for place, word in enumerate(words):
        if value:
            value = False
        elif word in _WRAPPERS[name]:
            value = True
        elif word.startswith(("-", "$")) or _ASSIGNS.match(word) or _NUMBER.fullmatch(word):
            continue
        elif skip:
            skip -= 1
        else:
            return words[place:]
    return ()


def _scripted(script: str, depth: int) -> Iterator[Command]:
    """The commands of a shell script of one line, as far as plain words go."""
    lexer = shlex.shlex(script, posix=True, punctuation_chars=";&|()`\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    try:
        for word in lexer:
            if word and not word.strip(";&|()`\n"):
                yield from _run(tuple(words), depth)
                words = []
            else:
                words.append(word)
    except ValueError:
        pass  # a quote that is open: what came before it counts
    yield from _run(tuple(words), depth)
