"""Makes a recording fit for the repository: small, and without a name of the machine that it was made on.

Nothing that the incident is made of is left out. What goes is other runs of this project's tests beside it (cgroups below
exhume-test*), and threads, stacks and frames that no sample has. Random ids of containers become counted ones, which compress.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from exhume.recording.bundle import write_recording
from exhume.recording.folder import Folder
from exhume.recording.recording import Labels, Recording, Table
from exhume.recording.schema import TABLES

BOOT_ID = "00000000-0000-4000-8000-000000000000"
BEGIN_NS = 1_000 * 10**9
"""After boot, when a kept recording begins; and the time of day then."""
REAL_NS = 1_767_225_600 * 10**9
_RUN = re.compile(r"exhume-lab-[0-9]+-[0-9a-f]{6}")
_FIRST = re.escape(Path("/proc/1/comm").read_text().strip())
_SESSION = re.compile(rf"{_FIRST}/([0-9a-f]{{32}})")
_INIT = re.compile(rf"\b{_FIRST}\b")
_RELEASE = re.compile(r"[0-9.]+")
_TAG = re.compile(r"\bexhume-[0-9a-f]{6}\b")
_ID = re.compile(r"\b[0-9a-f]{64}\b")
_TESTS = re.compile(r"/exhume-test")


class Names:
    """The same name gets the same replacement in all of a recording."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def _counted(self, form: str) -> Callable[[re.Match[str]], str]:
        return lambda match: self._known.setdefault(match[0], form.format(len(self._known) + 1))

    def text(self, text: str) -> str:
        text = _TAG.sub("exhume-000000", _RUN.sub("exhume-lab-1-000000", text))
        text = _INIT.sub("init", _SESSION.sub(self._counted("session-{}.scope"), text))
        return _ID.sub(self._counted("{:064x}"), text)

    def labels(self, labels: Labels) -> Labels:
        return tuple((key, self.text(value)) for key, value in labels)


def reduce(raw: Path, out: Path) -> int:
    """Bytes of the reduced recording."""
    folder = Folder(str(raw))
    recording = folder.load(tables=[name for name in TABLES if name != "summary"])
    shift, names = recording.window[0] - BEGIN_NS, Names()
    real = REAL_NS - int(recording["anchors"].ints("real")[0])
    release = _RELEASE.match(recording.node.kernel)
    made = Recording(replace(recording.node, hostname="node", boot_id=BOOT_ID, kernel=release[0] if release else ""))
    for name, table in recording.tables.items():
        keep = _kept(name, table)
        columns = {
            column.name: _column(table, column.name, column.kind, names, shift, real, keep) for column in table.schema.columns
        }
        made[name].add_columns(columns)
    _only_used(made)
    write_recording(str(out), made, {name: folder.about[name] for name in ("hz", "kernel_only") if name in folder.about})
    (out / "lock").unlink(missing_ok=True)
    for path in (out, *out.rglob("*")):  # readable without root
        path.chmod(0o755 if path.is_dir() else 0o644)
    return sum(file.stat().st_size for file in out.rglob("*") if file.is_file())


def _kept(name: str, table: Table) -> list[int]:
    if name != "cgroup_events":
        return list(range(len(table)))
    return [i for i, path in enumerate(table.texts("path")) if not _TESTS.match(path)]


def _column(table: Table, name: str, kind: str, names: Names, shift: int, real: int, keep: list[int]) -> Any:
    """Times are counted from BEGIN_NS on: a recording says nothing of when it was made."""
    if kind in ("time", "int"):
        values = table.ints(name)[keep]
        if kind == "time" or (table.schema.name, name) in (("anchors", "monotonic"), ("anchors", "boot")):
            return values - shift
        if (table.schema.name, name) in (("latency", "worst_at"), ("threads", "start")):
            return np.where(values > 0, values - shift, values)
        return values + real if (table.schema.name, name) == ("anchors", "real") else values
    whole = table.lists(name) if kind == "list" else table.texts(name)
    kept = [whole[i] for i in keep]
    if kind == "list":
        return kept
    change: Callable[[Any], Any] = names.labels if kind == "labels" else names.text
    return [change(value) for value in kept]


def _only_used(made: Recording) -> None:
    _filter(made, "stacks", set(made["samples"].ints("stack").tolist()))
    _filter(made, "frames", {int(frame) for stack in made["stacks"].lists("frames") for frame in stack})
    _filter(made, "threads", set(made["samples"].ints("thread").tolist()))


def _filter(made: Recording, name: str, ids: set[int]) -> None:
    rows = [tuple(row.values()) for row in made[name].rows() if row["id"] in ids]
    made.tables[name] = Table(TABLES[name])
    made[name].add_rows(rows)
