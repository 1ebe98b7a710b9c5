"""Which programs a unit runs, by its files: through variables, scripts, interpreters and copies, as far as these can be read.

What cannot be determined is a doubt, with its reason. Nothing is run, and of every file only a bounded part is read.
"""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from exhume.host import programs as catalogue
from exhume.host.programs import protected_unit
from exhume.host.systemd.specifiers import expand
from exhume.host.systemd.unit_file import Sections, split
from exhume.host.systemd.units import Units
from exhume.remedy.protected import runs
from exhume.remedy.protected_commands import Command, Variables, commands, last, of_script, programs, wrapper
from exhume.text import decode, printable

_STARTS = ("ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost")
LARGEST_SCRIPT = 256 << 10
SAMPLE = 1 << 20
"""Two programs of the same size that begin with the same MiB are taken for copies: build ids and version strings are in it."""
_DEEPEST = 5
_MOST_FILES = 50

_VERSIONED = re.compile(r"[\d.]+\Z")
_TEXT = re.compile(r"[\s(){};\"']")
_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")  # systemd.exec(5), of PID 1
_PROGRAMS = (*_PATH, "/opt/bin", "/usr/libexec", "/usr/lib/systemd", "/home/kubernetes/bin", "/opt/kubernetes/bin")
_COMMENTS = re.compile(r"(?m)^\s*#.*$")
_HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?^\s*\2\s*$", re.DOTALL | re.MULTILINE)
_SOURCED = re.compile(r"(?m)^\s*(?:\.|source)[ \t]+(/[^\s;&|]+)")
# Commands of a shell script that only look at a unit or a process.
_LOOKS = re.compile(
    r"\b(?:systemctl\s+(?:-\S+\s+)*(?:is-active|is-enabled|is-failed|status|show|cat)|pgrep|pidof|journalctl)\b[^\n;&|)]*"
)
_TOKEN = re.compile(r"[\w./+@-]+")
_IN_BIN = re.compile(r"/(?:s?bin|libexec)/")
_IMAGE = re.compile(r"[\w./-]+(?::\d+/[\w./-]+)?(?:[:@][\w.:-]+)?")


@dataclass(slots=True)
class Run:
    """What a unit runs."""

    programs: dict[str, str] = field(default_factory=dict)
    """Each with how it comes to be run, where that is not plain from ExecStart=."""
    doubt: str = ""
    """Why that may not be all; empty if it is. The processes of a running unit settle it."""
    suspect: str = ""
    """A protected program that is named to something that runs it elsewhere, where the unit's processes do not tell."""


class Programs:
    """Of the units of one root."""

    def __init__(self, units: Units) -> None:
        self._units = units
        self._tree = units.tree
        self._known: dict[str, Run] = {}

    def of(self, unit: str) -> Run:
        """`unit` is a service, by its own name."""
        if unit not in self._known:
            self._known[unit] = _Reading(self, unit).run
        return self._known[unit]

    def copy_of(self, path: str) -> str:
        """The protected program that a file is a copy of; empty if none."""
        entry = self._tree.entry(path)
        if entry is None or entry.kind != "file" or entry.size not in self._samples or runs(path):
            return ""
        return self.same_as(entry.size, lambda: self._tree.read(path, SAMPLE) or b"", path)

    def script(self, path: str) -> str:
        """The text of a script, without its comments; empty for any other file, and for one that cannot be read."""
        real = self._units.real(path) if path.startswith("/") else ""
        raw = self._tree.read(real, LARGEST_SCRIPT) if real else None
        return _COMMENTS.sub("", decode(raw)) if raw and b"\0" not in raw else ""

    def same_as(self, size: int, sample: Callable[[], bytes], path: str = "") -> str:
        """The same by a file's size and, where that is a protected program's, its beginning."""
        others = [other for other in self._samples.get(size, ()) if other != path]
        begins = sample() if others else b""
        return next((other for other in others if begins and self._tree.read(other, SAMPLE) == begins), "")

    @cached_property
    def _samples(self) -> dict[int, tuple[str, ...]]:
        """The protected programs of the root, by size."""
        found: dict[int, dict[str, None]] = {}
        for directory in _PROGRAMS:
            for name in self._tree.names(directory):
                real = self._units.real(f"{directory}/{name}") if runs(name) else ""
                entry = self._tree.entry(real) if real else None
                if entry is not None and entry.kind == "file" and entry.size:
                    found.setdefault(entry.size, {})[real] = None
        return {size: tuple(paths) for size, paths in found.items()}


class _Reading:
    """One unit, from its Exec lines on."""

    def __init__(self, programs_: Programs, unit: str) -> None:
        self.run = Run()
        self._programs, self._unit = programs_, unit
        self._units = programs_._units
        self._tree = programs_._tree
        self._seen: set[str] = set()
        sections = self._units.merged(unit)
        variables = self._environment(sections)
        searched = [place for line in sections.lines("Service", "ExecSearchPath") for place in expand(line, unit).split(":")]
        self._path = (*searched, *_PATH)
        self._directory = expand(sections.last("Service", "WorkingDirectory") or "/", unit).removeprefix("-")
        if any(sections.last("Service", key) for key in ("RootImage", "RootDirectory")):
            self._doubt("it has a root directory of its own, which is not looked into")
        for line in (expand(line, unit) for key in _STARTS for line in sections.lines("Service", key)):
            for program in programs(line, variables):
                self.run.programs.setdefault(program, "")
            for command in commands(line, variables):
                self._command(command, variables, _DEEPEST)

    def _doubt(self, why: str) -> None:
        self.run.doubt = self.run.doubt or why

    def _environment(self, sections: Sections) -> Variables:
        """Environment=, and the files of EnvironmentFile=, which come later and win (systemd.exec(5))."""
        words = [word for line in sections.lines("Service", "Environment") for word in split(expand(line, self._unit))]
        for line in sections.lines("Service", "EnvironmentFile"):
            raw = self._tree.read(expand(line, self._unit).removeprefix("-"), LARGEST_SCRIPT) or b""
            words += [word for text in decode(raw).replace("\\\n", "").splitlines() for word in _assigned(text)]
        pairs = (word.partition("=") for word in words)
        return {name: value for name, equals, value in pairs if equals}

    def _command(self, command: Command, variables: Variables, depth: int, by: str = "") -> None:
        name = last(command[0])
        kind = _VERSIONED.sub("", name)
        if "$" in name or "$(" in command[0] or "`" in command[0]:
            self._doubt(f"what {printable(command[0], 60)} stands for is not known before it runs{_through(by)}")
            return
        if name in catalogue.commands("supervisor"):
            self._doubt(f"{name} starts what its own configuration names")
        elif kind in catalogue.commands("interpreter"):
            self._interpreted(kind, command, by)
        elif name in catalogue.commands("container-client"):
            self._contained(name, command)
        elif name in catalogue.commands("shell") and all(
            word.startswith(("-", "+")) and "c" not in word for word in command[1:]
        ):
            self._doubt(f"{name} reads what it runs from its standard input{_through(by)}")
        elif not wrapper(command[0]):
            self._given(name, command[1:])
        self._file(command[0], command[1:], variables, depth)

    def _given(self, name: str, arguments: Command) -> None:
        """A program that is not known to run others may do so: by a path that is no option's value, after `--`, or by a command
        as text. A bare name is none: an agent may well be told of the kubelet."""
        for before, word in pairwise(("", *arguments)):
            told = _TOKEN.findall(word)
            if name not in catalogue.commands("launcher") and not _TEXT.search(word) and before != "--":
                told = [word] if word.startswith("/") and not before.startswith("-") else []
            elif name == "snap" and protected_unit(f"snap.{word}.service"):
                self._doubt(f"snap runs {printable(word)}")
            if named := next((each for each in told if _names(each)), ""):
                self._doubt(f"{printable(name, 60)} has {printable(named)} among its arguments, and may run it")

    def _interpreted(self, kind: str, command: Command, by: str) -> None:
        options = next(one.code_options for one in catalogue.with_role("interpreter") if kind in one.commands)
        if all(word.startswith("-") for word in command[1:]):
            self._doubt(f"{kind} reads what it runs from its standard input, or from its arguments{_through(by)}")
        for word in command[1:]:
            text = any(word.startswith(option) for option in options)
            if text or re.match(r"-[a-zA-Z]*[ceE]\Z", word):
                self._doubt(f"it runs a program that is given to {kind} as text{_through(by)}")
                return
            if not word.startswith("-"):
                self._file(word, (), {}, _DEEPEST, interpreter=kind)
                return

    def _contained(self, name: str, command: Command) -> None:
        """A container's command, or the image's name, may be a protected program."""
        for word in command[1:]:
            if "$" in word:
                self._doubt(f"{name} runs what {printable(word, 60)} stands for")
            elif _IMAGE.fullmatch(word) and ("/" not in word or not word.startswith("/") or _IN_BIN.search(word)):
                told = last(re.split(r"[:@]", word.rpartition("/")[2])[0])
                if runs(told):
                    self.run.suspect = f"{name} runs {printable(told)}"

    def _file(self, path: str, arguments: Command, variables: Variables, depth: int, interpreter: str = "sh") -> None:
        """What a program is: a copy of a protected one, or a script, which is read."""
        directories = (self._directory.rstrip("/"),) if "/" in path else (*self._path, self._directory.rstrip("/"))
        places = (path,) if path.startswith("/") else tuple(f"{place}/{path}" for place in directories)
        real = next((found for place in places if (found := self._units.real(place))), "")
        if not real or real in self._seen or last(path) in catalogue.commands("cluster-tool"):
            return
        self._seen.add(real)
        entry = self._tree.entry(real)
        if entry is None or entry.kind != "file":
            return
        if original := self._programs.copy_of(real):
            self.run.programs.setdefault(original, f"{printable(path)} is a copy of it")
        head = self._tree.read(real, 4096)
        if head is None:
            self._doubt(f"{printable(path)} cannot be read")
        elif head and not head.startswith(b"\x7fELF") and b"\0" not in head:
            if entry.size > LARGEST_SCRIPT or not depth or len(self._seen) > _MOST_FILES:
                self._doubt(f"{printable(path)} is a script, and is not read to its end")
            else:
                text = decode(self._tree.read(real, LARGEST_SCRIPT) or b"")
                self._script(path, text, {**variables, **_arguments(arguments)}, depth - 1, interpreter)

    def _script(self, path: str, text: str, variables: Variables, depth: int, interpreter: str) -> None:
        first, _, rest = text.partition("\n")
        shebang = split(first.removeprefix("#!").strip()) if first.startswith("#!") else (interpreter,)
        how = f"by {printable(path)}"
        body = _COMMENTS.sub("", rest if first.startswith("#!") else text)
        for command in commands(shlex.join(shebang)):
            self.run.programs.setdefault(command[0], how)
        if any(last(word) == "busybox" or last(word) in catalogue.commands("shell") for word in shebang):
            for command in of_script(self._whole(body), variables):
                self.run.programs.setdefault(command[0], how)
                self._command(command, variables, depth, path)
            body = _LOOKS.sub("", body)
        named = next((token for token in _TOKEN.findall(body) if _names(token)), "")
        if named:
            self._doubt(f"{printable(path)} names {printable(last(named))}")

    def _whole(self, text: str) -> str:
        """A shell script as one text that can be split into words: files that it sources put in, here-documents left out."""
        for path in _SOURCED.findall(text)[:_DEEPEST]:
            text = _COMMENTS.sub("", decode(self._tree.read(path, LARGEST_SCRIPT) or b"")) + "\n" + text
        text = _HERE.sub(r"\3", text.replace("\\\n", " "))
        return text if _balanced(text) else "\n".join(_plain(line) for line in text.splitlines())


def _through(by: str) -> str:
    return f" ({printable(by)})" if by else ""


def _assigned(line: str) -> Iterator[str]:
    """A line of an environment file."""
    name, equals, value = line.strip().partition("=")
    if equals and name.isidentifier():
        yield f"{name}={value.strip().strip(chr(34) + chr(39))}"


def _arguments(words: Command) -> dict[str, str]:
    every = shlex.join(words)
    return {"@": every, "*": every, **{str(place): word for place, word in enumerate(words[:9], 1)}}


def _names(token: str) -> bool:
    return runs(token) and ("/" not in token or _IN_BIN.search(token) is not None)


def _balanced(text: str) -> bool:
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True


def _plain(line: str) -> str:
    return line if _balanced(line) else re.sub(r"[\"'\\]", " ", line)
