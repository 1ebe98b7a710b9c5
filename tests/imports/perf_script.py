"""What `perf script` says of a file, for comparing: every sample, with its frames innermost first."""

import re
import subprocess
from typing import NamedTuple

_HEAD = re.compile(r"^(.*?)\s+(-?\d+)/(-?\d+)\s+(?:\[(\d+)\]\s+)?(\d+)\.(\d{9}):(\s+[0-9a-f]+ .*)?\s*$", re.S)
_FRAME = re.compile(r"^\s+([0-9a-f]+) (.*?) \(((?:[^()]|\(deleted\))*)\)$")


class Said(NamedTuple):
    comm: str
    pid: int
    tid: int
    cpu: int
    time: int
    frames: list[tuple[str, str]]
    """Name and file; "" for a name that perf does not know."""


def said(path: str, *options: str, cpu: bool = True) -> list[Said]:
    fields = "comm,pid,tid,cpu,time,ip,sym,dso" if cpu else "comm,pid,tid,time,ip,sym,dso"
    command = ["perf", "script", "-i", path, "--ns", "--no-inline", "-F", fields, *options]
    done = subprocess.run(command, capture_output=True, check=True)
    found: list[Said] = []
    begun = ""
    for line in done.stdout.decode("utf-8", "backslashreplace").split("\n"):
        line, begun = begun + line, ""
        frame = _FRAME.match(line)
        if head := _HEAD.match(line):
            frame = _FRAME.match(head[7] or "")
            time = int(head[5]) * 1_000_000_000 + int(head[6])
            found.append(Said(head[1].strip(), int(head[2]), int(head[3]), int(head[4] or -1), time, []))
        if frame:
            found[-1].frames.append(("" if frame[2] == "[unknown]" else frame[2], frame[3]))
        elif line.strip() and not head:
            begun = f"{line}\n"  # the name of a process may have a line break in it
    assert not begun, f"perf script said {begun!r}"
    return found


class Aliases:
    """Which names are of one address: perf and exhume choose differently among `write`, `__write` and `__GI___libc_write`."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, set[str]]] = {}

    def same(self, one: str, other: str, path: str) -> bool:
        one, other = _plain(one), _plain(other)
        return one == other or bool(self._of(path).get(one, set()) & self._of(path).get(other, set()))

    def _of(self, path: str) -> dict[str, set[str]]:
        if path not in self._known:
            found: dict[str, set[str]] = {}
            if path == "[kernel.kallsyms]":
                with open("/proc/kallsyms") as file:
                    for line in file:
                        words = line.split()
                        found.setdefault(words[2], set()).add(words[0])
            elif path.startswith("/"):
                for each in _with_debug(path):
                    told = subprocess.run(["readelf", "-sW", each], capture_output=True).stdout.decode("utf-8", "replace")
                    for line in told.split("\n"):
                        words = line.split()
                        if len(words) >= 8 and words[3] in ("FUNC", "IFUNC", "NOTYPE"):
                            found.setdefault(_plain(words[7]), set()).add(words[1])
            self._known[path] = found
        return self._known[path]


def _plain(name: str) -> str:
    """Without the version that perf leaves at names of dynamic symbols, and without what compilers add to a part."""
    return re.sub(r"@@?[A-Z][A-Z0-9_.]+$", "", name.split("(")[0])


def _with_debug(path: str) -> list[str]:
    notes = subprocess.run(["readelf", "-n", path], capture_output=True).stdout.decode("utf-8", "replace")
    build_id = re.search(r"Build ID: ([0-9a-f]+)", notes)
    return [path, *([f"/usr/lib/debug/.build-id/{build_id[1][:2]}/{build_id[1][2:]}.debug"] if build_id else [])]
