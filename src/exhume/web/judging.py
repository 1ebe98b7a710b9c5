"""Verdicts as answers have them. As a program it judges a recording in a process of its own: minutes of work of which the page
that is open meanwhile must feel nothing, neither in time nor in memory.

    python -m exhume.web.judging < {"path", "boot", "origin", "start", "end", "thresholds"}
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from exhume import budget
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.folder import Folder
from exhume.text import from_json
from exhume.web import children

if TYPE_CHECKING:
    from exhume.diagnosis.findings.model import Facts, Finding
    from exhume.web.store import Store

MOST_SPANS = 500
_NOT_JUDGED = {"health": "warning", "cause": None, "subject": "", "summary": "not judged by itself: select it and judge it"}


def verdict(folder: Folder, thresholds: Thresholds, origin: int, start: int, end: int) -> dict[str, Any]:
    """exhume.report/2 as `exhume diagnose --json` prints it, with the displayed evidence of each finding, and all times also in
    microseconds from the origin on."""
    from exhume.diagnosis.diagnose import diagnose_folder  # the first picture does not wait for these
    from exhume.diagnosis.report import as_json

    report = diagnose_folder(folder, thresholds, start, end)
    document = as_json(report)
    for told, finding in zip(document["findings"], report.findings, strict=True):
        told |= _when(finding, origin) | {"evidence": _evidence(finding)}
    document["incidents"] = [
        {**told, "start_us": (one.start - origin) // 1000, "end_us": (one.end - origin) // 1000}
        for told, one in zip(document["incidents"], report.incidents, strict=True)
    ]
    document["incidents_not_judged"] = [
        {**told, "start_us": (start - origin) // 1000, "end_us": (end - origin) // 1000}
        for told, (start, end) in zip(document.get("incidents_not_judged", ()), report.further, strict=True)
    ]
    document["judged"] = {"from": (start - origin) // 1000, "to": (end - origin) // 1000}
    return document


def incidents(document: dict[str, Any]) -> list[dict[str, Any]]:
    """What the overview marks. A report on one incident alone may not list it."""
    kept = ("health", "cause", "subject", "summary")
    found = [{name: one[name] for name in kept} | _times(one) | {"judged": True} for one in document["incidents"]]
    found += [_NOT_JUDGED | _times(one) | {"judged": False} for one in document["incidents_not_judged"]]
    return sorted(found, key=lambda one: (one["start"], one["end"]))


def _times(one: dict[str, Any]) -> dict[str, Any]:
    return {"start": one["start_us"], "end": one["end_us"]}


def kept(store: "Store", folder: Folder, start: int, end: int, judge: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """A verdict that was made before, if nothing was added since: that on the whole recording has its incidents, too. By
    microseconds, as the page asks for it."""
    if not store.settled(folder, end):
        return judge()
    key = ("verdict", store.us(start), store.us(end))
    document: dict[str, Any] = store.answers.get(key, judge, lambda found: len(json.dumps(found)))
    return document


def _when(finding: "Finding[Facts]", origin: int) -> dict[str, Any]:
    """The longest of its spans, by time."""
    longest = sorted(finding.spans, key=lambda span: span.start - span.end)[:MOST_SPANS]
    spans = sorted((span.start, span.end, span.core) for span in longest)
    return {
        "start_us": (finding.start - origin) // 1000,
        "end_us": (finding.end - origin) // 1000,
        "spans": [[(start - origin) // 1000, (end - origin) // 1000, core] for start, end, core in spans],
    }


def _evidence(finding: "Finding[Facts]") -> list[dict[str, Any]]:
    return [
        {"what": one.what, "value": one.value, "unit": one.unit, "source": one.source, "text": one.text}
        for one in finding.evidence
    ]


class Judges:
    """Processes that judge. They end with us: what they would find nobody waits for any more."""

    def __init__(self) -> None:
        self._children: dict[subprocess.Popen[bytes], threading.Event] = {}
        """And whether nobody waits for it any more."""
        self._ended = False
        self._lock = threading.Lock()

    def verdict(
        self,
        folder: Folder,
        thresholds: Thresholds,
        origin: int,
        start: int,
        end: int,
        unwanted: threading.Event | None = None,
    ) -> dict[str, Any] | None:
        """As the function of that name; None where it could not be judged, or is unwanted meanwhile."""
        boot = folder.boots.index(folder.boot_id) - len(folder.boots) + 1
        given = {"path": folder.path, "boot": boot, "origin": origin, "start": start, "end": end}
        with self._lock:
            if self._ended or (unwanted is not None and unwanted.is_set()):
                return None
            child = children.begin("exhume.web.judging", {**given, "thresholds": asdict(thresholds)})
            self._children[child] = unwanted or threading.Event()
        assert child.stdout is not None
        try:
            written = child.stdout.read()
            children.finish(child)
        finally:
            with self._lock:
                self._children.pop(child, None)
        if child.returncode:
            return None
        found: dict[str, Any] = from_json(written)
        return found

    def end_unwanted(self) -> None:
        """Somebody does not wait any more: a verdict on days must not hold up the next one."""
        with self._lock:
            for child, unwanted in self._children.items():
                if unwanted.is_set():
                    child.kill()

    def end(self) -> None:
        with self._lock:
            self._ended = True
            for child in self._children:
                child.kill()


def _main() -> int:
    given = children.task()
    folder = Folder(given["path"], given["boot"])
    try:
        with budget.enforced():
            document = verdict(folder, Thresholds(**given["thresholds"]), given["origin"], given["start"], given["end"])
    except budget.Exhausted as error:
        return error.exit_code
    json.dump(document, sys.stdout)
    return 0


if __name__ == "__main__":
    raise SystemExit(_main())
