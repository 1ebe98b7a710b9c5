"""A node that is played: the agent's own metrics and door, fed with made recordings, and moved on by each scrape."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from exhume.agent.exposition import Exposition
from exhume.agent.gathering import Gathered
from exhume.agent.http import Door, Page
from exhume.diagnosis.findings.model import Facts, Finding, Span
from exhume.diagnosis.findings.registry import examine
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.judge import judge
from exhume.recording.recording import Recording
from tests.diagnosis.findings.made import stall
from tests.incidents.recorded import BASE, SECOND, Recorded

THRESHOLDS = Thresholds()
_LATENCY = [0] * 27


def _later(finding: Finding[Facts], by_ns: int) -> Finding[Facts]:
    spans = tuple(Span(span.core, span.start + by_ns, span.end + by_ns) for span in finding.spans)
    return replace(finding, start=finding.start + by_ns, end=finding.end + by_ns, spans=spans)


class Played:
    """`step_s` are the seconds that pass on the node from one scrape to the next."""

    def __init__(self, step_s: float, cpus: int = 96) -> None:
        self.gathered = Gathered(cpus)
        self._step_s = step_s
        self._steps = 0
        self._live, self._dying, self._per_second = 240, 300.0, 0.0
        self._found: list[Finding[Facts]] = []
        self.gathered.set("exhume_build_info", 1.0, "test")
        self.gathered.set("exhume_agent_resident_memory_bytes", 1e8)
        self.gathered.set("exhume_agent_disk_bytes", 1e8)
        self.gathered.set("exhume_audit_units", 1.0, "unused")
        self.gathered.set("exhume_audit_timestamp_seconds", 4e9)
        self.gathered.health("healthy")

    def show(self, recording: Recording, dying: int, per_second: float = 0.0, reset: bool = True) -> None:
        """What the agent would say after this recording; without its reset, if that is not to have happened."""
        findings = [one for examined in examine(recording, THRESHOLDS) for one in examined.findings]
        self.gathered.add(recording)
        self.gathered.verdict(judge(recording, THRESHOLDS), time.time())
        self._dying, self._per_second = float(dying), per_second
        self._found = [one for one in findings if reset or one.kind != "nic-reset"]

    def quieten(self, dying: int = 300) -> None:
        self._dying, self._per_second, self._found = float(dying), 0.0, []
        self.gathered.health("healthy")
        self.gathered.no_verdict()

    def fill(self) -> None:
        """What an agent has only on a bad day, so that every panel has something to show."""
        self.gathered.set("exhume_source_up", 0.0, "journal")
        self.gathered.set("exhume_agent_stepped_down", 1.0, "samples")
        self.gathered.set("exhume_agent_lost_total", 7.0, "samples")
        self.gathered.set("exhume_audit_drift", 1.0, "new")
        self.gathered.set("exhume_profiles_waiting", 1.0)
        self.gathered.verdict_failed()

    def _step(self) -> None:
        """Time passes on the node; what was found goes on in it."""
        self._steps += 1
        self.gathered.judged([_later(one, round(self._steps * self._step_s * SECOND)) for one in self._found])
        self._dying += self._per_second * self._step_s
        rows = Recorded(cpus=2, seconds=0)
        at = 200 + self._steps * self._step_s
        rows.row(
            "memcg",
            time=BASE + round(at * SECOND),
            path="/",
            live=self._live,
            dying=round(self._dying),
            method="proc-cgroups",
            scope="node",
            complete=1,
        )
        for what, device in (("napi", "eth0"), ("softirq", ""), ("runqueue", "")):
            rows.row("latency", time=BASE, what=what, stage="wait", device=device, histogram=[5, 3, 1], count=9, sum=9000)
        stall(rows.recording, BASE / SECOND, 100)
        for name in ("vmstat_pgscan_direct", "cpu_periods", "cpu_throttled_periods"):
            rows.recording.count(BASE, name, self._steps)
        rows.recording.count(BASE, "pressure_us", self._steps, (("kind", "some"), ("resource", "memory")))
        self.gathered.add(rows.recording)
        self.gathered.set("exhume_agent_batches_total", float(self._steps))
        self.gathered.set("exhume_agent_judged_timestamp_seconds", time.time())
        if self._found:  # what goes on is diagnosed again and again
            self.gathered.set("exhume_verdict_timestamp_seconds", time.time())
        self.gathered.set("exhume_agent_cpu_seconds_total", self._steps * 0.01)

    def scraped(self, accept: str) -> Page:
        self._step()
        body, kind = Exposition(self.gathered).text(accept)
        return 200, body, kind

    @contextmanager
    def served(self) -> Iterator[str]:
        """Its address."""
        door = Door(("127.0.0.1", 0), {"/metrics": self.scraped})
        try:
            yield f"127.0.0.1:{door.address[1]}"
        finally:
            door.close()
