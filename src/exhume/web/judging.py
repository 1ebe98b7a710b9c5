"""Verdicts as answers have them. As a program it judges a recording in a process of its own: minutes of work of which the page
that is open meanwhile must feel nothing, neither in time nor in memory.

    python -m exhume.web.judging < {"path", "boot", "origin", "start", "end", "thresholds"}
"""

import json
import subprocess
import sys
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from exhume.findings.thresholds import Thresholds
from exhume.recording.folder import Folder
from exhume.web import children

if TYPE_CHECKING:
    from exhume.findings.model import Finding

MOST_SPANS = 500


def verdict(folder: Folder, thresholds: Thresholds, origin: int, start: int, end: int) -> dict[str, Any]:
    """exhume.report/1 as `exhume diagnose --json` gives it, and all times also in microseconds from the origin on."""
    from exhume.verdict.diagnose import diagnose_folder  # the first picture does not wait for these
    from exhume.verdict.report import as_json

    report = diagnose_folder(folder, thresholds, start, end)
    document = as_json(report)
    for told, finding in zip(document["findings"], report.findings, strict=True):
        told |= _when(finding, origin)
    document["incidents"] = [
        {**told, "start_us": (one.start - origin) // 1000, "end_us": (one.end - origin) // 1000}
        for told, one in zip(document["incidents"], report.incidents, strict=True)
    ]
    document["judged"] = {"from": (start - origin) // 1000, "to": (end - origin) // 1000}
    return document


def incidents(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What the overview marks. A report on one incident alone may not list it."""
    kept = ("health", "cause", "subject", "summary")
    return [
        {"start": one["start_us"], "end": one["end_us"], **{name: one[name] for name in kept}} for one in document["incidents"]
    ]


def _when(finding: "Finding", origin: int) -> dict[str, Any]:
    """The longest of its spans, by time."""
    longest = sorted(finding.spans, key=lambda span: span.start - span.end)[:MOST_SPANS]
    spans = sorted((span.start, span.end, span.core) for span in longest)
    return {
        "start_us": (finding.start - origin) // 1000,
        "end_us": (finding.end - origin) // 1000,
        "spans": [[(start - origin) // 1000, (end - origin) // 1000, core] for start, end, core in spans],
    }


class Judges:
    """Processes that judge. They end with us: what they would find nobody waits for any more."""

    def __init__(self) -> None:
        self._children: set[subprocess.Popen[bytes]] = set()
        self._ended = False
        self._lock = threading.Lock()

    def verdict(self, folder: Folder, thresholds: Thresholds, origin: int, start: int, end: int) -> dict[str, Any] | None:
        """As the function of that name; None where it could not be judged."""
        boot = folder.boots.index(folder.boot_id) - len(folder.boots) + 1
        given = {"path": folder.path, "boot": boot, "origin": origin, "start": start, "end": end}
        with self._lock:
            if self._ended:
                return None
            child = children.begin("exhume.web.judging", {**given, "thresholds": asdict(thresholds)})
            self._children.add(child)
        assert child.stdout is not None
        try:
            written = child.stdout.read()
            children.finish(child)
        finally:
            with self._lock:
                self._children.discard(child)
        if child.returncode:
            return None
        found: dict[str, Any] = json.loads(written)
        return found

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for child in self._children:
                child.kill()


def _main() -> int:
    given = children.task()
    folder = Folder(given["path"], given["boot"])
    document = verdict(folder, Thresholds(**given["thresholds"]), given["origin"], given["start"], given["end"])
    json.dump(document, sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
