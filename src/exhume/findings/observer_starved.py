"""observer-starved: exhume itself was kept from running, or a read did not come back. Who cannot look must not say healthy."""

from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "observer-starved"
STUCK = "no answer within"


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    findings = []
    start, end = recording.window
    for name, source in recording.sources().items():
        if source["state"] == "off" and source["reason"].startswith(STUCK):
            stuck = (Evidence("source", name, "", "the recorder"), Evidence("said", source["reason"], "", "the recorder"))
            summary = f"reading {name} did not come back ({source['reason']}): the kernel holds the reader"
            findings.append(Finding(KIND, name, "warning", start, end, summary, stuck))
    waited = recording.counter("own_wait_ns")
    if waited is not None and waited.last >= thresholds.observer_wait_ms * 1_000_000:
        seconds = waited.last / 1e9
        evidence = (Evidence("waited", round(seconds, 2), "s", "/proc/self/schedstat: runnable, not running"),)
        summary = f"exhume itself was kept from running for {seconds:.1f} s: tasks do not get onto a core here"
        findings.append(Finding(KIND, "exhume", "warning", start, end, summary, evidence))
    if findings:
        return Examined(KIND, tuple(findings))
    if waited is None:
        return Examined(KIND, unseen="how long exhume itself waited for a core was not counted (a check does, by schedstat)")
    return Examined(KIND, ruled_out=f"exhume waited {waited.last / 1e6:.0f} ms for a core")
