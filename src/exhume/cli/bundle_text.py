"""The files of a bundle beside the recording: what it says to whoever opens it, the report, the sources, the versions."""

import json
import platform
from typing import TYPE_CHECKING

from exhume import __version__
from exhume.cli import moments
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.diagnosis.report import Report
    from exhume.recording.folder import Folder
    from exhume.recording.recording import Node


def files(
    folder: "Folder", window: tuple[int, int], thresholds: "Thresholds", pseudonyms: bool, no_samples: bool
) -> dict[str, bytes]:
    """All of them are made from the recording of the bundle as it is on disk: they cannot say more, or other, than it does."""
    from exhume.cli.diagnose import document, pages
    from exhume.diagnosis.report import SCHEMA
    from exhume.recording.source_state import as_json as state_json

    scene, markdown, html = pages(folder, "recording", thresholds, *window)
    report = scene.report
    made: dict[str, tuple[bytes, str]] = {
        "report.json": (_json(document(scene)), f"the report for programs (schema {SCHEMA})"),
        "report.md": (markdown.encode("utf-8", "replace"), "the report for a post-mortem"),
        "report.html": (html.encode("utf-8", "replace"), "the report as a page: open it in a browser, it loads nothing"),
    }
    notes = []
    made["sources.json"] = (
        _json([{"name": s.name, **state_json(s.status), "cost_ns": s.cost_ns} for s in report.sources]),
        "what could be seen and what could not, and why",
    )
    made["versions.json"] = (_json(_versions(folder.node)), "exhume, Python, kernel, distribution")
    if no_samples:
        notes.append("Stack samples were left out (--no-samples).")
    if pseudonyms:
        notes.append(
            "Names are pseudonyms: the same name is the same pseudonym in all files. Functions and threads of the kernel,\n"
            "programs that everybody has, times, numbers and process ids are as they were."
        )
    readme = _readme(folder, report, window, {name: about for name, (_, about) in made.items()}, notes)
    return {"README.txt": readme.encode()} | {name: content for name, (content, _) in made.items()}


def _readme(folder: "Folder", report: "Report", window: tuple[int, int], made: dict[str, str], notes: list[str]) -> str:
    from exhume.render.sentences import node as told_of

    begin, end = (moments.rfc3339(folder.real_ns(time)) for time in window)
    node = folder.node
    listed = "\n".join(f"  {name:<15}{about}" for name, about in made.items())
    return f"""\
A bundle of exhume {__version__}: why a Linux node starved.

  node     {printable(", ".join(told_of(node, str(folder.about.get("format", "")))), 400)}
  from     {begin}
  to       {end}
  verdict  {report.health}: {printable(report.verdict.summary, 400)}

In it:
{listed}
  recording/     everything that was seen in that time, and what was counted of cgroups and units in the hours before it

The tables of the recording are plain Parquet: DuckDB, pandas, Polars and Spark read them as they are. With exhume:

  exhume diagnose recording --from {begin}      the same verdict, from the same data
  exhume info recording                                            what is in it
  exhume flame recording                                           the stacks
  exhume export recording --format perfetto -o trace.pftrace       for other tools
{"".join(f"{chr(10)}{note}{chr(10)}" for note in notes)}"""


def _versions(node: "Node") -> dict[str, object]:
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        distribution = ""
    return {
        "exhume": __version__,
        "recorded on": {"kernel": node.kernel, "cgroups": node.cgroups, "cpus": node.cpus},
        "packed on": {"python": platform.python_version(), "kernel": platform.release(), "distribution": distribution},
    }


def _json(document: object) -> bytes:
    return json.dumps(document, indent=1).encode() + b"\n"
