"""`exhume lab score`: each incident is made for real, recorded by the real recorder, and the verdicts are held against the
truth: those that the recorder printed while it went on, and the one on the whole recording."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from exhume.diagnosis.report import Report, Verdict
from exhume.diagnosis.report import from_json as report_of
from exhume.errors import ExhumeError, UsageError
from exhume.host.quantities import SECOND, compact
from exhume.lab.held import Held, held
from exhume.lab.scenario import Felt, Scenario, Settings, Truth, passing
from exhume.lab.workshop import Lab
from exhume.python import python
from exhume.recording.recording import Node
from exhume.text import from_json

SCHEMA: Final = "exhume.score/1"
# Until it has read every source once: zombies are named and directories counted once a minute.
_SETTLES_S = 2.0
_PATIENCE_S = 60
# A recorder that nobody stops any more ends by itself.
_LONGEST_S = 300


@dataclass(frozen=True, slots=True)
class Run:
    """One incident and what was said about it."""

    held: Held
    report: Report
    seconds_to_verdict: float | None
    """From the first symptom, or from when it was under way, to the first printed verdict that was right."""
    printed: tuple[tuple[float, Report], ...]
    """Verdicts that the recorder printed meanwhile, each with the seconds since then."""
    accused: tuple[str, ...]
    """Falsely, in any verdict."""
    broken: tuple[str, ...]
    """What the incident itself did not do as promised."""
    ground: dict[str, Any]
    """The truth and what was measured, as `exhume lab run --json` prints it."""

    @property
    def right(self) -> bool:
        return self.held.right and not self.accused

    def as_json(self) -> dict[str, Any]:
        verdict = self.report.verdict
        return {
            "cause": verdict.cause,
            "subject": verdict.subject,
            "culprits": [culprit.subject for culprit in verdict.culprits],
            "confidence": verdict.confidence,
            "health": self.report.health,
            "summary": verdict.summary,
            "cause_right": self.held.cause_right,
            "culprit_right": self.held.culprit_right,
            "health_right": self.held.health_right,
            "accused_falsely": list(self.held.accused),
            "accused_meanwhile": [name for name in self.accused if name not in self.held.accused],
            "seconds_to_verdict": self.seconds_to_verdict,
            "printed": [
                {
                    "seconds": seconds,
                    **{name: getattr(report.verdict, name) for name in ("cause", "subject", "confidence", "summary")},
                }
                for seconds, report in self.printed
            ],
            "not_as_promised": list(self.broken),
        }


class Recorder:
    """`exhume record` in trigger mode, with what it prints and when."""

    def __init__(self, path: Path, log_root: Path) -> None:
        command = python("-m", "exhume", "record", str(path), "--on", "any", "--json", "--log-root", str(log_root))
        command += ["--budget", "512MiB", "--for", compact(_LONGEST_S * SECOND)]
        self._errors: list[str] = []
        self._ready = threading.Event()
        self._printed: list[tuple[float, Report]] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            start_new_session=True,
        )  # fmt: skip
        self._listeners = [threading.Thread(target=listen, daemon=True) for listen in (self._hear, self._read)]
        for listener in self._listeners:
            listener.start()
        self._ready.wait(_PATIENCE_S)
        if not any("recording to" in line for line in self._errors):
            with suppress(subprocess.TimeoutExpired):  # it is on its way out, and has said why
                self._process.wait(_SETTLES_S)
            self.stop()
            raise ExhumeError(f"the recorder did not begin: {''.join(self._errors[-3:]).strip() or 'no reason given'}")
        time.sleep(_SETTLES_S)

    def _hear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-20:], line]
            self._ready.set()
        self._ready.set()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            now = time.monotonic()
            with suppress(ValueError, KeyError, UsageError):
                self._printed.append((now, report_of(from_json(line)["report"])))

    def stop(self) -> list[tuple[float, Report]]:
        """The verdicts that it printed, and when."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for listener in self._listeners:
            listener.join(5)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()
        return list(self._printed)


def diagnosis(path: Path) -> Report:
    """Of a whole recording, by a process of its own."""
    command = python("-m", "exhume", "diagnose", str(path), "--json")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    try:
        return report_of(from_json(done.stdout))
    except (ValueError, UsageError):
        said = done.stderr.strip().rpartition("\n")[2]
        return no_report(f"it could not be diagnosed: {said or f'exit code {done.returncode}'}")


def no_report(why: str) -> Report:
    """In the place of one: wrong about everything but that nobody is to blame."""
    return Report(Node("", "", "", "none", 0), "", "", "unknown", Verdict(None, "", 0.0, why), (), {}, ())


def score_run(
    scenario: Scenario, settings: Settings, path: Path, progress: Callable[[float], None], stop: Callable[[], bool]
) -> Run | None:
    """One incident, recorded to `path`; None if it was stopped."""
    recorders: list[Recorder] = []
    begun = 0.0

    with Lab() as lab:

        def begin() -> None:
            nonlocal begun
            if not recorders:
                recorders.append(Recorder(path, lab.home))
                begun = time.monotonic()

        lab.begins = begin
        if not scenario.prepares:
            begin()
        try:
            with scenario.make(lab, settings) as incident:
                begin()
                under_way = time.monotonic()
                for part in passing(settings.seconds):
                    progress(part)
                    if stop():
                        return None
                measured = incident.measured()
                felt = incident.first_symptom() if isinstance(incident, Felt) else under_way
                printed = recorders[0].stop()
        finally:
            for recorder in recorders:
                recorder.stop()
        run = lab.name
    ground = scenario.ground_truth(run, settings, measured)
    since = None if felt is None else max(felt, begun)
    return judged(scenario.truth.of(run), ground, diagnosis(path), printed, since)


def judged(
    truth: Truth, ground: dict[str, Any], report: Report, printed: Sequence[tuple[float, Report]], since: float | None
) -> Run:
    """`since`: when it was first felt, on the clock of what was printed."""
    broken = tuple(promise["what"] for promise in ground["promises"] if not promise["kept"])
    final = held(truth, report)
    meanwhile = [(at, held(truth, each)) for at, each in printed]
    accused = dict.fromkeys([*final.accused, *(name for _, each in meanwhile for name in each.accused)])
    right = next((at for at, each in meanwhile if each.cause_right and each.culprit_right and not each.accused), None)
    seconds = None
    if right is not None and since is not None and truth.cause is not None:
        seconds = round(max(0.0, right - since), 1)
    told = tuple((round(at - (since or 0.0), 1), each) for at, each in printed)
    return Run(final, report, seconds, told, tuple(accused), broken, ground)


def scored(name: str, runs: Sequence[Run]) -> dict[str, Any]:
    """All runs of a scenario as one row."""
    seconds = [run.seconds_to_verdict for run in runs]
    known = [each for each in seconds if each is not None]
    return {
        "name": name,
        "cause_right": all(run.held.cause_right for run in runs),
        "culprit_right": all(run.held.culprit_right for run in runs),
        "health_right": all(run.held.health_right for run in runs),
        "false_accusations": sum(len(run.accused) for run in runs),
        "seconds_to_verdict": max(known) if known else None,
        "as_promised": all(not run.broken for run in runs),
        "runs": len(runs),
        "right": sum(run.right for run in runs),
        "verdicts": [run.as_json() for run in runs],
    }


def all_right(rows: Sequence[dict[str, Any]]) -> bool:
    return all(row["right"] == row["runs"] for row in rows)


def place(keep: Path, name: str, number: int) -> Path:
    """Where a run's recording goes; what an earlier one left there is not touched."""
    path = keep / (name if not number else f"{name}-{number + 1}")
    while os.path.lexists(path):
        number += 1
        path = keep / f"{name}-{number + 1}"
    return path
