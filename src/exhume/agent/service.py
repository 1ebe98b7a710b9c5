"""The standing service: the recorder, the judges, the metrics and what leaves the node, in one process that is small.

The recorder's own thread does the work, once a batch: rows to disk, to the metrics, to the trigger. Whatever takes longer
(verdicts, audits, profiles) is a child at low priority. When it steps down or its settings change, the recorder is begun anew;
the recording goes on in the same place.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from exhume import __version__
from exhume.agent import http
from exhume.agent.exposition import Exposition
from exhume.agent.gathering import Gathered, worst
from exhume.agent.limits import FEW_HZ, Cost, Limits
from exhume.agent.recurring import Recurring
from exhume.agent.settings import Settings, address
from exhume.findings.detectors import examine
from exhume.findings.model import Finding
from exhume.findings.thresholds import Thresholds
from exhume.node.root import Root
from exhume.recorder.flight import Flight, Options, Status
from exhume.recorder.trigger import Incident, Trigger
from exhume.recorder.verdicts import Case, Report, Verdicts
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.recording.recording import Recording
    from exhume.recording.writer import Writer

# A recorder that has brought nothing for so long is not healthy.
STUCK_S = 15.0
# Own cost is looked at so often; the heap is given back so often.
COST_EVERY_S = 5.0
TIDY_EVERY = 50
_PLAIN = "text/plain; charset=utf-8"


class Service:
    """`run` blocks until `stop`. `say` is called with sentences, for the journal."""

    def __init__(
        self,
        settings: Settings,
        thresholds: Thresholds,
        kinds: tuple[str, ...],
        say: Callable[[str], None],
        diagnose: list[str],
        audit: list[str],
    ) -> None:
        """`kinds` of findings make an incident; `diagnose` and `audit` are the commands that print a report as JSON."""
        self._thresholds, self._kinds, self._say = thresholds, kinds, say
        self.settings = settings
        self._diagnose = diagnose
        self._limits = Limits(settings.cpu_limit_ratio, settings.memory_limit_mib << 20)
        self._root = Root(settings.host)
        self._flight = Flight(self._root, self._options())
        self.gathered = Gathered(self._flight.node.cpus)
        self.gathered.count_only(_memory_hierarchy(self._root))
        self.gathered.set("exhume_build_info", 1.0, __version__)
        self._exposition = Exposition(self.gathered)
        self._last_batch = 0.0
        self._cost_at = 0.0
        self._children_s = 0.0
        self._batches = 0
        self._again = False
        self._report: Report | None = None
        self._told: set[str] = set()
        self._writer: Writer | None = None
        self._verdicts: Verdicts | None = None
        self._trigger: Trigger | None = None
        every_s = settings.audit.every_h * 3600.0
        self._recurring = Recurring(audit if every_s else [], every_s, self._audited)
        pages = {"/metrics": self._metrics, "/": self._about}
        pages |= dict.fromkeys(("/-/healthy", "/healthz"), self._healthy)
        pages |= dict.fromkeys(("/-/ready", "/readyz"), self._ready)
        tls, secret = http.context(settings.tls_cert, settings.tls_key), http.secret(settings.auth_file)
        self.door = http.Door(address(settings.listen), pages, tls, secret)

    # The pages

    def _metrics(self, accept: str) -> http.Page:
        body, kind = self._exposition.text(accept)
        return 200, body, kind

    def _about(self, _: str) -> http.Page:
        return 200, b"exhume agent: /metrics, /-/healthy, /-/ready\n", _PLAIN

    def _healthy(self, _: str) -> http.Page:
        silent = time.monotonic() - self._last_batch
        if self._last_batch and silent > STUCK_S:
            return 503, f"the recorder has brought nothing for {silent:.0f} s\n".encode(), _PLAIN
        return 200, b"healthy\n", _PLAIN

    def _ready(self, _: str) -> http.Page:
        return (200, b"ready\n", _PLAIN) if self._batches else (503, b"nothing was read yet\n", _PLAIN)

    # The recorder

    def run(self, stop: Callable[[], bool]) -> None:
        from exhume.recording.writer import Writer

        settings = self.settings
        self._trigger = Trigger(self._flight.node, self._judge)
        self._verdicts = Verdicts(self._diagnose, self._verdict, lambda trouble: self._tell(trouble))
        keep_ns = settings.keep_s * 10**9
        about = {**self._flight.about, "keep_ns": keep_ns}
        self._writer = Writer(settings.dir, self._flight.node, about, budget_bytes=settings.budget_mib << 20, keep_ns=keep_ns)
        try:
            while not stop():
                self._again = False
                if self._flight.off and self._options().hz:
                    self._tell(f"no stack samples: {self._flight.off}")
                self._flight.run(self._writer, lambda: stop() or self._again, self._batch)
                self._flight.close()
                if not stop():
                    self._flight = Flight(self._root, self._options())
        finally:
            self._writer.close()
            self._verdicts.finish()
            self._recurring.close()
            self.door.close()
            self._flight.close()

    def begin_again(self, settings: Settings, thresholds: Thresholds) -> None:
        """Other settings: the recorder begins anew with them. Where it listens and writes stays as it was."""
        kept = ("dir", "host", "listen", "tls_cert", "tls_key", "auth_file")
        changed = [name for name in kept if getattr(settings, name) != getattr(self.settings, name)]
        if changed:
            self._say(f"{', '.join(f'agent.{name}' for name in changed)}: changed, and that needs a restart of the agent")
        self.settings = replace(settings, **{name: getattr(self.settings, name) for name in kept})
        self._thresholds = thresholds
        self._limits = Limits(settings.cpu_limit_ratio, settings.memory_limit_mib << 20)
        self._again = True

    def _options(self) -> Options:
        settings, without = self.settings, self._limits.given_up
        hz = 0 if "samples" in without else min(settings.hz, FEW_HZ) if "most-samples" in without else settings.hz
        kernel_only = not settings.user_stacks or "user-stacks" in without
        return Options(hz, kernel_only, latency=settings.latency and "latency-windows" not in without)

    def _batch(self, status: Status) -> None:
        assert self._trigger is not None
        assert self._writer is not None
        self._last_batch = time.monotonic()
        self._batches += 1
        try:
            self.gathered.add(status.rows)
            self._incidents(*self._trigger.add(status.rows))
        except Exception as error:
            # A detector of ours that stumbles over what it sees is no reason to stop seeing.
            self._tell(f"could not judge ({type(error).__name__}: {printable(str(error))}); the recording goes on")
        for trouble in self._writer.troubles:
            self._tell(trouble)
        if self._last_batch - self._cost_at >= COST_EVERY_S:
            self._cost_at = self._last_batch
            self._watch(status)
        if self._batches % TIDY_EVERY == 0:
            import gc

            from exhume.profile.memory import give_back

            gc.collect()
            give_back()

    def _watch(self, status: Status) -> None:
        times = os.times()
        cpu_s = status.own_cpu_ns / 1e9 + times.children_user + times.children_system
        gathered = self.gathered
        gathered.set("exhume_agent_cpu_seconds_total", cpu_s)
        gathered.set("exhume_agent_resident_memory_bytes", float(status.own_memory_bytes))
        gathered.set("exhume_agent_disk_bytes", float(status.size_bytes))
        before = self._options()
        said = self._limits.watch(Cost(time.monotonic(), cpu_s, status.own_memory_bytes))
        if said:
            self._say(said)
            gathered.values["exhume_agent_stepped_down"] = {(name,): 1.0 for name in self._limits.given_up}
            self._again = self._again or self._options() != before
        self._recurring.look()

    # The judges

    def _judge(self, recording: "Recording") -> list[Incident]:
        found: list[Finding] = [one for examined in examine(recording, self._thresholds) for one in examined.findings]
        self.gathered.judged(found)
        serious = [one for one in found if one.kind in self._kinds and one.severity != "info"]
        if not serious:
            self._report = None
            self.gathered.quiet()
        elif self._report is None:
            self.gathered.health(worst(serious))
        return [
            Incident(one.kind, one.subject, one.start, one.end, one.summary, one.severity, recording.real_ns(one.start))
            for one in serious
        ]

    def _incidents(self, new: list[Incident], found: list[Incident]) -> None:
        assert self._writer is not None
        around = self.settings.around_s * 10**9
        for incident in found:
            self._writer.pin(incident.start - around, incident.end + around, f"{incident.kind}: {incident.summary}")
        for incident in new:
            self.gathered.incident(incident.kind)
            self._say(f"pinned: {incident.kind}: {printable(incident.summary)}")
        if new and self._verdicts is not None and "verdicts" not in self._limits.given_up:
            self._verdicts.ask(new)

    def _verdict(self, case: Case, report: Report) -> None:
        self._report = report
        self.gathered.verdict(report, time.time())
        verdict = report["verdict"]
        sure = f" (confidence {verdict['confidence']:.0%})" if verdict["cause"] is not None else ""
        self._say(f"{report['health']}: {printable(str(verdict['summary']), 500)}{sure}")

    def _audited(self, report: dict[str, Any] | None, trouble: str) -> None:
        if report is None:
            self._tell(f"no audit: {trouble}")
            return
        counted = dict.fromkeys(("needed", "unused", "harmful", "unknown"), 0)
        for unit in report.get("units", []):
            counted[unit["judgement"]] = counted.get(unit["judgement"], 0) + 1
        self.gathered.values["exhume_audit_units"] = {(name,): float(count) for name, count in counted.items()}
        drift: dict[tuple[str, ...], float] = {}
        for one in report.get("drift", []):
            drift[str(one["kind"]),] = drift.get((str(one["kind"]),), 0.0) + 1.0
        self.gathered.values["exhume_audit_drift"] = dict(list(drift.items())[:5])
        self.gathered.set("exhume_audit_timestamp_seconds", time.time())

    def _tell(self, trouble: str) -> None:
        if trouble not in self._told and len(self._told) < 1000:
            self._told.add(trouble)
            self._say(trouble)


def _memory_hierarchy(root: Root) -> int | None:
    """Column 2 of /proc/cgroups, of the row memory; 0 is cgroup v2. None where that cannot be read."""
    from exhume.errors import Unreadable

    try:
        for line in root.read("proc/cgroups", 1 << 16).decode("ascii", "replace").splitlines():
            words = line.split()
            if len(words) >= 2 and words[0] == "memory" and words[1].isdecimal():
                return int(words[1])
    except Unreadable:
        return None
    return 0
