"""The standing service: the recorder, the judges, the metrics and what leaves the node, in one process that is small.

The recorder's own thread does the work, once a batch: rows to disk, to the metrics, to the trigger. Whatever takes longer
(verdicts, audits, profiles) is a child at low priority. When it steps down or its settings change, the recorder is begun anew;
the recording goes on in the same place.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from exhume import __version__
from exhume.agent import auditing, http
from exhume.agent.cluster_report import ClusterReport
from exhume.agent.exposition import Exposition
from exhume.agent.gathering import Gathered
from exhume.agent.hierarchy import memory_hierarchy
from exhume.agent.limits import FEW_HZ, Cost, Limits, steps
from exhume.agent.notify import notify
from exhume.agent.own_cost import children_bytes, ended_children_s
from exhume.agent.push import Pusher
from exhume.agent.recurring import Recurring
from exhume.agent.settings import Settings, address
from exhume.agent.standing import Standing
from exhume.diagnosis.detect import detect, incidents
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import Report, from_json
from exhume.host.quantities import SECOND, duration
from exhume.host.root import Root
from exhume.recorder import own
from exhume.recorder.policy import DEFAULT, Policy
from exhume.recorder.profiles import FLIGHT, Profile
from exhume.recorder.recorder import Options, Recorder, Status
from exhume.recorder.samples import Options as SampleOptions
from exhume.recorder.session import OncePerEpisode, Session
from exhume.recorder.trigger import Incident
from exhume.recorder.verdicts import Case, Verdicts
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.recording.recording import Recording

# A recorder that has brought nothing for so long is not healthy.
STUCK_S = 15.0
# Own cost is looked at so often.
COST_EVERY_S = 5.0
# What cannot be changed while it runs, because somebody relies on it.
KEPT = ("dir", "host", "listen", "tls_cert", "tls_key", "auth_file", "kubernetes")
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
        log: Root | None = None,
        segment_ns: int = 60 * 10**9,
        policy: Policy = DEFAULT,
    ) -> None:
        """`kinds` of findings make an incident; `diagnose` and `audit` are the commands that print a report as JSON, the
        latter without its policy; `log` is where the kernel's log is, if not below the node's root."""
        from exhume.recording.writer import Writer

        self._thresholds, self._kinds, self._say, self._policy = thresholds, kinds, say, policy
        self.settings = settings
        self._diagnose, self._audit, self._log = diagnose, audit, log
        self._limits = _limits(settings)
        self._root = Root(settings.host)
        self._seen_to = 0
        self._last_batch = self._cost_at = 0.0
        self._batches = 0
        self._again = False
        self._tell = OncePerEpisode(say)
        tls, secret = http.context(settings.tls_cert, settings.tls_key), http.secret(settings.auth_file)
        self._recorder = Recorder(self._root, *self._wanted())
        try:
            self.gathered = Gathered(self._recorder.node.cpus)
            self.gathered.count_only(memory_hierarchy(self._root))
            self.gathered.set("exhume_build_info", 1.0, __version__)
            self.gathered.set("exhume_agent_judged_timestamp_seconds", time.time())
            self._recurring = self._audits()
            self._standing = Standing(self.gathered)
            self._exposition = Exposition(self.gathered)
            self._pusher = Pusher(settings, self._recorder.node.boot_id, self.gathered, say)
            pages = {"/metrics": self._metrics, "/": self._about}
            pages |= dict.fromkeys(("/-/healthy", "/healthz"), self._healthy)
            pages |= dict.fromkeys(("/-/ready", "/readyz"), self._ready)
            kept = {"budget_bytes": settings.budget_mib << 20, "keep_ns": settings.keep_s * 10**9}
            # The door first: where it cannot be opened, nothing is left behind.
            self.door = http.Door(address(settings.listen), pages, tls, secret)
            try:
                about = self._about_it()
                self._writer = Writer(settings.dir, self._recorder.node, about, segment_ns=segment_ns, pins_go=True, **kept)
            except BaseException:
                self.door.close()
                raise
        except BaseException:
            self._recorder.close()
            raise
        verdicts = Verdicts(diagnose, from_json, self._say_verdict, self._no_verdict, self._verdict, policy)
        self._session = Session(
            self._recorder.node,
            self._writer,
            self._detect,
            verdicts,
            self._tell,
            policy,
            settings.around_s * 10**9,
            self._incident,
        )
        self._cluster = ClusterReport(settings.kubernetes, self._tell)

    # The pages

    def _metrics(self, accept: str) -> http.Page:
        body, kind = self._exposition.text(accept)
        return 200, body, kind

    def _about(self, _: str) -> http.Page:
        return 200, b"exhume agent: /metrics, /-/healthy, /-/ready\n", _PLAIN

    def _healthy(self, _: str) -> http.Page:
        silent = time.monotonic() - self._last_batch
        if self._last_batch and silent > STUCK_S:
            return 503, f"the recorder has brought nothing for {duration(silent * SECOND)}\n".encode(), _PLAIN
        return 200, b"healthy\n", _PLAIN

    def _ready(self, _: str) -> http.Page:
        return (200, b"ready\n", _PLAIN) if self._batches else (503, b"nothing was read yet\n", _PLAIN)

    # The recorder

    def run(self, stop: Callable[[], bool]) -> None:
        self._last_batch = time.monotonic()  # a first one that never comes is missed, too
        try:
            while not stop():
                self._recorder.run(self._writer, 0, lambda: stop() or self._again, self._batch)
                self._recorder.close()
                if not stop():
                    self._go_on()
        finally:
            notify("STOPPING=1")
            self._session.end()
            self._writer.close()
            self._session.finish()
            self._recurring.close()
            self._cluster.close()
            self._pusher.close()
            self.door.close()
            self._recorder.close()

    def _go_on(self) -> None:
        """A recorder with other options, into the same recording. Settings that come meanwhile begin it again."""
        self._again = False
        settings = self.settings
        self._recorder = Recorder(self._root, *self._wanted(), self._recorder.streams)
        kept_ns = settings.keep_s * 10**9
        self._writer.change(self._about_it(), budget_bytes=settings.budget_mib << 20, keep_ns=kept_ns)

    def _about_it(self) -> dict[str, str | int | bool]:
        return {**self._recorder.about, "keep_ns": self.settings.keep_s * 10**9}

    def begin_again(self, settings: Settings, thresholds: Thresholds, kinds: tuple[str, ...]) -> None:
        """Other settings: the recorder begins anew with them. Where it listens and writes stays as it was; a certificate and a
        password that were replaced in their place are taken. Raises UsageError if those are wrong, and changes nothing."""
        self.door.change(http.context(self.settings.tls_cert, self.settings.tls_key), http.secret(self.settings.auth_file))
        if changed := [name for name in KEPT if getattr(settings, name) != getattr(self.settings, name)]:
            self._say(f"{', '.join(f'agent.{name}' for name in changed)}: changed, and that needs a restart of the agent")
        before = self.settings
        self.settings = replace(settings, **{name: getattr(before, name) for name in KEPT})
        self._thresholds, self._kinds = thresholds, kinds
        self._pusher.change(settings.push)
        self._limits = _limits(settings)
        self.gathered.stepped_down(())
        if settings.audit != before.audit:
            self._recurring.close()
            self._recurring = self._audits()
        self._again = True

    def _audits(self) -> Recurring:
        audit = self.settings.audit
        command = [*self._audit, *(["--policy", audit.policy] if audit.policy else [])] if audit.every_h else []
        values = self.gathered.values
        if not command:
            for name in ("exhume_audit_units", "exhume_audit_drift", "exhume_audit_timestamp_seconds"):
                values[name] = {}
        elif not values["exhume_audit_timestamp_seconds"]:
            # From then on it is late: one that never succeeds would otherwise be missed by nobody.
            self.gathered.set("exhume_audit_timestamp_seconds", time.time())
        return Recurring(command, audit.every_h * 3600.0, self._audited)

    def _wanted(self) -> tuple[Profile, Options]:
        settings, without = self.settings, self._limits.given_up
        hz = 0 if "samples" in without else min(settings.hz, FEW_HZ) if "most-samples" in without else settings.hz
        kernel_only = settings.user_stacks == "none" or "user-stacks" in without
        latency = settings.latency and "latency-windows" not in without
        samples = SampleOptions(hz, kernel_only, hide_tenants=settings.user_stacks == "host") if hz else None
        profile = FLIGHT if latency else replace(FLIGHT, latency=None)
        return profile, Options(samples, log=self._log, events_after=self._seen_to, policy=self._policy)

    def _batch(self, status: Status) -> None:
        self._last_batch = time.monotonic()
        self._batches += 1
        self.gathered.set("exhume_agent_batches_total", float(self._batches))
        self._see(status.rows)
        self._tell_off(status.rows)
        diagnoses = "verdicts" not in self._limits.given_up
        try:
            self.gathered.add(status.rows)
            self._pusher.look(status.rows.window[1], diagnoses)
        except Exception as error:  # must not stop the recorder
            self._tell(f"could not count ({type(error).__name__}: {printable(str(error))}); the recording goes on")
        self._session.diagnoses, self._session.around_ns = diagnoses, self.settings.around_s * 10**9
        self._session.see(status.rows)
        for trouble in self._writer.take_troubles():
            self._tell(trouble)
        notify("READY=1" if self._batches == 1 else "WATCHDOG=1")
        if self._last_batch - self._cost_at >= COST_EVERY_S:
            self._cost_at = self._last_batch
            self._watch(status)

    def _see(self, rows: "Recording") -> None:
        """The last event that is known: a recorder that goes on from this one is not to tell of it again. Not the end of the
        batch: what was said since the log was read last is not known yet."""
        self._seen_to = max(self._seen_to, int(rows["events"].ints("time").max(initial=0)))

    def _tell_off(self, rows: "Recording") -> None:
        """What cannot be seen on this node and why, said once: metrics and verdicts are made without it."""
        for row in rows.sources().values():
            if not row.state.up:
                self._tell(f"{row.name} is off: {printable(row.state.reason, 300)}")

    def _watch(self, status: Status) -> None:
        cpu_s = status.own_cpu_ns / 1e9 + ended_children_s()
        memory = own.memory_bytes() + children_bytes()
        self.gathered.at_least("exhume_agent_cpu_seconds_total", cpu_s)
        self.gathered.set("exhume_agent_resident_memory_bytes", float(memory))
        self.gathered.set("exhume_agent_disk_bytes", float(status.size_bytes))
        before = self._wanted()
        if said := self._limits.watch(Cost(time.monotonic(), cpu_s, memory)):
            self._say(said)
            self.gathered.stepped_down(self._limits.given_up)
            if self._wanted() != before:
                self._again = True
        self._recurring.look()

    # The judges

    def _detect(self, recording: "Recording", since: int) -> list[Incident]:
        found, loops, whole = detect(recording, self._thresholds, since, self._tell)
        self.gathered.judged(found, loops)
        self._cluster.observe(found)
        self._standing.found(found, self._kinds, time.monotonic(), recording.on("cpu"))
        if whole:
            self.gathered.set("exhume_agent_judged_timestamp_seconds", time.time())
        return incidents(recording, found, self._kinds)

    def _incident(self, incident: Incident) -> None:
        self.gathered.incident(incident.kind)
        self._pusher.incident(incident.start)
        self._say(f"pinned: {incident.kind}: {printable(incident.summary)}")

    def _verdict(self, case: Case, report: Report) -> None:
        self._standing.verdict(report, time.monotonic(), time.time())

    def _no_verdict(self, said: str) -> None:
        self.gathered.verdict_failed()
        self._tell(said)

    def _say_verdict(self, case: Case, report: Report) -> None:
        verdict = report.verdict
        sure = f" (confidence {verdict.confidence:.0%})" if verdict.cause is not None else ""
        self._say(f"{report.health}: {printable(verdict.summary, 500)}{sure}")

    def _audited(self, report: dict[str, Any] | None, trouble: str) -> None:
        if report is None:
            self._say(f"no audit: {trouble}")  # each time, they are hours apart
            return
        units, drift = auditing.units(report), auditing.drift(report)
        self.gathered.values["exhume_audit_units"] = units
        self.gathered.values["exhume_audit_drift"] = drift
        self.gathered.set("exhume_audit_timestamp_seconds", time.time())


def _limits(settings: Settings) -> Limits:
    may_go = steps(settings.user_stacks != "none", settings.latency, settings.hz)
    return Limits(settings.cpu_limit_ratio, settings.memory_limit_mib << 20, may_go)
