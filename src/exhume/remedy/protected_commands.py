"""Which programs a command line runs: the first word, and what a shell, env, nice and the like are told to run.

A word that merely is an argument of a program is none: an agent may well name the kubelet, or its socket. Variables are filled
in as far as they are known; a command whose program still has a `$` in its name is one that is not known.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise

from exhume.host import programs as catalogue
from exhume.host.systemd.unit_file import split

# What only runs another program, and its options that take the next word as their value; the other options take none, or
# have it in the same word.
_OF_A_SHELL = ("-o", "-O", "+o", "-c", "--command", "--init-file", "--rcfile")
_WRAPPERS = {
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
    "strace": ("-a", "-b", "-e", "-E", "-I", "-o", "-O", "-p", "-P", "-s", "-S", "-u", "-U", "-X"),
    "ltrace": ("-a", "-D", "-e", "-F", "-l", "-n", "-o", "-p", "-s", "-u", "-x", "-X"),
    "gdb": ("-x", "-ex", "-iex", "--command", "-d", "--directory"),
    "perf": ("-e", "--event", "-o", "--output", "-F", "--freq", "-c", "--count", "-C", "--cpu", "-G", "--cgroup"),
    "valgrind": (),
    "faketime": (),
    "fakeroot": (),
    "setarch": (),
    "catchsegv": (),
    "pkexec": ("--user",),
    "doas": ("-u", "-C"),
    "runcon": ("-t", "-u", "-r", "-l"),
    "aa-exec": ("-p", "--profile", "-n", "--namespace"),
    "setuidgid": (),
    "s6-setuidgid": (),
    "chpst": ("-u", "-U", "-b", "-e", "-/", "-n", "-l", "-L", "-m", "-d", "-o", "-p", "-f", "-c"),
    "softlimit": ("-a", "-c", "-d", "-f", "-l", "-m", "-n", "-o", "-p", "-r", "-s", "-t"),
    "envdir": (),
    "daemonize": ("-p", "-l", "-c", "-u", "-e", "-o", "-E"),
    "start-stop-daemon": ("-p", "--pidfile", "-n", "--name", "-u", "--user", "-c", "--chuid", "-g", "--group", "-d", "--chdir"),
    "unbuffer": (),
    "xargs": ("-a", "-d", "-E", "-I", "-L", "-n", "-P", "-s"),
    "watch": ("-n", "--interval"),
    "bwrap": (),
    "proot": ("-r", "-b", "-w", "-k"),
    "firejail": (),
    "ld.so": ("--library-path", "--preload", "--argv0", "--audit", "--inhibit-cache", "--glibc-hwcaps-mask"),
}
_AS_USER = ("su", "runuser")
_OTHER_NAMES = (
    (re.compile(r"ld-(?:linux|musl).*\.so(?:\.\d+)?|ld64\.so\.\d+"), "ld.so"),
    (re.compile(r"linux(?:32|64)|x86_64|i[36]86|aarch64"), "setarch"),
    (re.compile(r"(?:s6-)?envdir"), "envdir"),
    (re.compile(r"doas\.?"), "doas"),
)
_BEFORE = {"chroot": 1, "flock": 1, "gosu": 1, "perf": 1, "setuidgid": 1, "s6-setuidgid": 1, "envdir": 1, "faketime": 1}
"""So many words that are no option stand before the program; numbers, masks and times are told by their looks."""
_NUMBER = re.compile(r"(?:0x[0-9a-fA-F]+|\+?[\d.,:-]+)[smhd]?")
_ASSIGNS = re.compile(r"[A-Za-z_]\w*\+?=")
_KEYWORDS = frozenset(("if", "then", "else", "elif", "do", "while", "until", "!", "{", "}"))
_PROGRAMS = re.compile(r"(?:^|[\s\"'])(/[^\s\"';&|()]*/s?bin/[^\s\"';&|()]+|/s?bin/[^\s\"';&|()]+)")
_DEEPEST = 8
_ARITHMETIC = re.compile(r"\$\(\([^()]*(?:\([^()]*\)[^()]*)*\)\)")
# $$ is what a unit file writes for $; the parts of ${name:-default} that are a name and a default.
_VARIABLE = re.compile(r"\$\$|\$\{(\w+|@|\*)(?::?[-=]([^{}$]*))?\}|\$(\w+|@|\*)")

Command = tuple[str, ...]
Variables = Mapping[str, str]
_NONE: Variables = {}


def commands(line: str, variables: Variables = _NONE) -> Iterator[Command]:
    """The commands of a line of ExecStart=, each with its arguments, and without what only runs it."""
    bare = line.lstrip("@-:+!| \t")
    words = split(bare)
    if "@" in line[: len(line) - len(bare)]:
        words = (*words[:1], *words[2:])  # the second is what the program is called, not an argument
    yield from _run(filled(words, variables), _DEEPEST, variables)


def programs(line: str, variables: Variables = _NONE) -> Iterator[str]:
    """The programs of a line; where another one runs them also whatever is named by its path in a directory of programs."""
    every = list(commands(line, variables))
    yield from (command[0] for command in every)
    bare = line.lstrip("@-:+!| \t")
    if "@" in line[: len(line) - len(bare)]:
        yield from split(bare)[1:2]  # the name that it is called by: programs of many names go by it
    if every and wrapper(every[0][0]):
        yield from (word for found in _PROGRAMS.findall(line) for word in filled((found,), variables))


def of_script(text: str, variables: Variables = _NONE) -> Iterator[Command]:
    """The commands of a shell script."""
    yield from _scripted(text, _DEEPEST, variables)


def filled(words: tuple[str, ...], variables: Variables) -> tuple[str, ...]:
    """With what is known of variables put in; a word that is one alone becomes several, as its value has words."""
    if not any("$" in word for word in words):
        return words
    found: list[str] = []
    for word in words:
        alone = _VARIABLE.fullmatch(word)
        value = _VARIABLE.sub(lambda match: _value(match, variables), word)
        found += split(value) if alone and value != word else [value]
    return tuple(found)


def _value(match: re.Match[str], variables: Variables) -> str:
    if match[0] == "$$":
        return "$"
    known = variables.get(match[1] or match[3])
    return known if known is not None else match[2] if match[2] is not None else match[0]


def wrapper(path: str) -> str:
    """What a program that only runs another one is called by `_options`; empty for any other."""
    name = last(path)
    return name if _options(name) is not None else next((other for form, other in _OTHER_NAMES if form.fullmatch(name)), "")


def _options(name: str) -> tuple[str, ...] | None:
    return _OF_A_SHELL if name in catalogue.commands("shell") else _WRAPPERS.get(name)


def last(path: str) -> str:
    """The program's own name, in small letters."""
    return path.rpartition("/")[2].casefold()


def _run(words: tuple[str, ...], depth: int, variables: Variables) -> Iterator[Command]:
    """A command, and what it is told to run."""
    while words and (words[0] in _KEYWORDS or _ASSIGNS.match(words[0])):
        words = words[1:]
    if not words:
        return
    yield words
    if depth and len(words[0].split()) > 1:  # a command as one word: flock -c 'PROGRAM OPTIONS', watch 'PROGRAM OPTIONS'
        yield from _scripted(words[0], depth - 1, variables)
    name = last(words[0])
    if name == "ip" and "exec" in words:  # ip netns exec NAME, ip vrf exec NAME
        yield from _run(words[words.index("exec") + 2 :], depth - 1, variables) if depth else ()
    kind = wrapper(words[0])
    if kind and depth:
        if kind == "eval" or (
            (kind in _AS_USER or kind in catalogue.commands("shell")) and (script := _script(words)) is not None
        ):
            yield from _scripted(" ".join(words[1:]) if kind == "eval" else script or "", depth - 1, variables)
        else:
            yield from _run(_wrapped(kind, words[1:]), depth - 1, variables)
        if kind == "env":
            texts = [after for option, after in pairwise(words) if option in ("-S", "--split-string")]
            yield from (each for text in texts for each in _run(filled(split(text), variables), depth - 1, variables))
        if kind == "start-stop-daemon":
            told = [after for option, after in pairwise(words) if option in ("-x", "--exec", "-a", "--startas")]
            yield from (each for text in told for each in _run((text,), depth - 1, variables))


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
            value = word in (_options(name) or ())
    return None


def _wrapped(name: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """From the program on that is run. A variable that is not known may be an option: what comes after it is looked at."""
    skip, value = _BEFORE.get(name, 0), False
    unknown: tuple[str, ...] = ()
    for place, word in enumerate(words):
        if value:
            value = False
        elif word in (_options(name) or ()):
            value = True
        elif word.startswith("$"):
            unknown = unknown or words[place:]
        elif word.startswith(("-", "+")) or _ASSIGNS.match(word) or _NUMBER.fullmatch(word):
            continue
        elif skip:
            skip -= 1
        else:
            return words[place:]
    return unknown


def _scripted(script: str, depth: int, variables: Variables) -> Iterator[Command]:
    """The commands of a shell script, as far as plain words go; variables that it sets count from there on."""
    lexer = shlex.shlex(_ARITHMETIC.sub("0", script), posix=True, punctuation_chars=";&|()`\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    known = dict(variables)
    words: list[str] = []
    try:
        for word in lexer:
            if word and not word.strip(";&|()`\n"):
                yield from _simple(tuple(words), depth, known)
                words = []
            else:
                words.append(word)
    except ValueError:
        pass  # a quote that is open: what came before it counts
    yield from _simple(tuple(words), depth, known)


def _simple(words: tuple[str, ...], depth: int, known: dict[str, str]) -> Iterator[Command]:
    """One command of a script, or assignments alone, which are kept."""
    words = filled(words, known)
    rest = words[1:] if words and words[0] in ("export", "readonly", "local", "declare", "typeset") else words
    if rest and all(_ASSIGNS.match(word) or word.startswith("-") for word in rest):
        known |= {name.rstrip("+"): value for name, _, value in (word.partition("=") for word in rest) if "$" not in value}
        return
    yield from _run(words, depth, known)
