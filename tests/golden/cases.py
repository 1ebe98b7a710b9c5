"""All cases of the oracle, by golden file; and the cases that are reports, recordings and plans."""

from collections.abc import Callable
from functools import cache, partial

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import Report
from exhume.recording.recording import Recording
from exhume.remedy.node import Node
from tests.golden import adapter, edges, fleets, images, node_files, proofs, reviewed
from tests.golden.adapter import Data
from tests.golden.proofs import RECORDINGS
from tests.incidents import zombies
from tests.incidents.test_incidents import INCIDENTS
from tests.incidents.truth import Told
from tests.remedy.nodes import scratch


def _told(make: Callable[[], Told]) -> Callable[[], Recording]:
    return lambda: make().recording


SCENES: dict[str, dict[str, Callable[[], Recording]]] = {
    "scenes": {make.__name__: _told(make) for make in dict.fromkeys((*INCIDENTS, *zombies.UNREAPED))},
    "reviewed": {make.__name__: make for make in reviewed.SCENES},
    "edges": {make.__name__: make for make in edges.SCENES},
}


@cache
def diagnosed(family: str, name: str) -> tuple[Report, int]:
    """The report, and when the recording began."""
    if family == "recordings":
        return adapter.diagnosed_folder(RECORDINGS / name)
    recording = SCENES[family][name]()
    return adapter.diagnosed(recording), recording.window[0]


def report(family: str, name: str, thresholds: Thresholds | None = None) -> Data:
    """The data of one report."""
    if family == "trees":
        make, cpus, full = node_files.TREES[name]
        with scratch() as path:
            recording = node_files.recorded(make, cpus, full, path)
        return adapter.report(adapter.checked(recording, thresholds), recording.window[0])
    if thresholds is not None:
        recording = SCENES[family][name]()
        return adapter.report(adapter.diagnosed(recording, thresholds), recording.window[0])
    return adapter.report(*diagnosed(family, name))


def _reports(family: str) -> dict[str, Data]:
    return {name: report(family, name) for name in (node_files.TREES if family == "trees" else SCENES[family])}


def recordings() -> list[str]:
    return sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())


def _recordings() -> dict[str, Data]:
    """Each as `exhume diagnose` judges the whole of it, and as it shows the last incident."""
    found = {name: diagnosed("recordings", name) for name in recordings()}
    return {name: {"whole": adapter.report(*one), "last": adapter.last_incident(*one)} for name, one in found.items()}


def _plans(family: str) -> dict[str, Data]:
    """Of all reports that have a remedy."""
    names = recordings() if family == "recordings" else list(SCENES[family])
    reports = {name: diagnosed(family, name)[0] for name in names}
    with scratch() as path:
        node = node_files.fixable(path)
        return {name: _plan(found, node) for name, found in reports.items() if found.verdict.remedies}


def _plan(found: Report, node: Node) -> Data:
    """For the node; and for each finding that a user may name, where that is another plan."""
    whole = adapter.plan(found, node)
    kinds = sorted({finding.kind for finding in found.findings if finding.severity != "info"})
    apart = {kind: adapter.plan(found, node, kind) for kind in kinds}
    return {"node": whole, "findings": {kind: made for kind, made in apart.items() if made.get("steps") and made != whole}}


def _metrics() -> dict[str, Data]:
    return {name: adapter.metrics(make(), diagnosed("scenes", name)[0]) for name, make in SCENES["scenes"].items()}


FILES: dict[str, Callable[[], dict[str, Data]]] = {
    "scenes": partial(_reports, "scenes"),
    "scenes_plans": partial(_plans, "scenes"),
    "reviewed": partial(_reports, "reviewed"),
    "reviewed_plans": partial(_plans, "reviewed"),
    "edges": partial(_reports, "edges"),
    "trees": partial(_reports, "trees"),
    "recordings": _recordings,
    "recordings_plans": partial(_plans, "recordings"),
    "metrics": _metrics,
    "proofs": proofs.proofs,
    "audits": images.audits,
    "gates": images.gates,
    "cohorts": fleets.cohorts,
}
"""What makes the data of each golden file, by case. `X` and `X_plans` use the same reports, which are cached."""
