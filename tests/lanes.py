"""Runs the suite in lanes, side by side: `./test` starts it.

A lane is a set of test files that use the same resource. Files of one lane run one after the other, because they share that
resource; the pure lane shares nothing and runs in parallel workers. Lanes may run beside each other. A test that needs
something that is missing skips with the reason, in every lane.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).resolve().parent.parent

LANES: dict[str, tuple[str, ...]] = {
    # BPF programs, perf events, memory cgroups, network namespaces, real-time tasks.
    "kernel": (
        "cli/test_latency.py",
        "cli/test_record.py",
        "cli/test_record_trigger.py",
        "cli/test_zombies.py",
        "kernel/",
        "lab/",
        "sources/latency/",
        "sources/test_cgroup_events.py",
        "sources/test_memcg_walk.py",
        "sources/test_zombie_holders.py",
        "sources/sampling/test_offenders.py",
        "sources/sampling/test_profiler.py",
        "sources/sampling/test_sampler.py",
        "recorder/test_recorder.py",
        "recorder/test_cores.py",
        "recorder/test_latency.py",
        "remedy/test_confined.py",
        "remedy/test_evict.py",
        "remedy/test_live_purge.py",
        "remedy/test_plan_twice.py",
        "remedy/test_proof_live.py",
        "remedy/test_steps.py",
        "test_latency_crash.py",
        "test_real_node.py",
        "test_record_crash.py",
        "diagnosis/test_starved_for_real.py",
    ),
    # A systemd of its own in systemd-nspawn, runc, buildah.
    "containers": (
        "agent/test_privacy.py",
        "agent/test_prometheus_exporters.py",
        "agent/test_service_unit.py",
        "cli/test_audit_live.py",
        "cli/test_checklist.py",
        "cli/test_gate_real.py",
        "deploy/test_container.py",
        "deploy/test_debug_pod.py",
        "deploy/test_isolation.py",
        "deploy/test_npd_real.py",
        "deploy/test_privileges.py",
        "deploy/test_uninstall.py",
        "host/systemd/test_debian.py",
        "host/systemd/test_running.py",
        "sources/test_journal.py",
        "sources/test_units.py",
        "remedy/test_end_to_end.py",
        "remedy/test_protected_live.py",
        "remedy/test_steps_systemd.py",
        "remedy/test_together_systemd.py",
    ),
    # Servers on loopback: the agent itself, Prometheus, Alertmanager, a Kubernetes API server, Ray, an object store, a proxy.
    "services": (
        "agent/test_chaos.py",
        "agent/test_cluster_away.py",
        "agent/test_prometheus.py",
        "agent/test_prometheus_agent.py",
        "agent/test_push_agent.py",
        "agent/test_push_collector.py",
        "agent/test_reload.py",
        "agent/test_service.py",
        "cluster/",
        "fleet/test_correlate_prometheus.py",
        "fleet/test_engine.py",
        "fleet/test_engine_ray.py",
        "fleet/test_inventory_kubernetes.py",
        "fleet/test_object_store.py",
        "fleet/test_prometheus.py",
        "fleet/test_prometheus_troubles.py",
        "fleet/test_ray_jobs_real.py",
        "fleet/test_waves_job_cluster.py",
        "host/test_http_proxy.py",
    ),
    "browser": ("browser/",),
    # Other kernels, emulated by QEMU.
    "guests": ("vm/",),
}
PURE = "pure"
STATIC = "static"

TIERS = {
    "everyday": ("not long and not ci", "everyday"),
    "ci": ("not long", "ci"),
    "all": ("", "search"),
}
"""Which tests, and how many examples of each property (tests/conftest.py)."""

MOST_AGAIN = 5

RESULT = "EXHUME_LANE_RESULT"
"""Where a lane's pytest, which has this module as a plugin, writes its counts."""


@dataclass
class Lane:
    name: str
    commands: list[list[str]]
    output: Path
    result: Path
    started: float = 0.0
    seconds: float = 0.0
    codes: list[int] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def failed(self) -> bool:
        return any(self.codes)


def lane_of(path: str) -> str:
    """The lane of a test file, given relative to tests/."""
    return next((name for name, places in LANES.items() if path.startswith(places)), PURE)


def files() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in (*LANES, PURE)}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        relative = path.relative_to(ROOT / "tests").as_posix()
        found[lane_of(relative)].append(f"tests/{relative}")
    return found


def lanes(tier: str, only: list[str], place: Path, coverage: bool) -> list[Lane]:
    expression, _ = TIERS[tier]
    mark = ["-m", expression] if expression else []
    made = []
    for name, paths in files().items():
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.lanes", *mark]
        if name == PURE:
            workers = (os.cpu_count() or 1) + (tier != "everyday")  # the tests of CI wait more
            command += ["-n", str(max(2, workers)), "--dist", "worksteal"]
            if coverage:
                command += ["--cov=src/exhume", "--cov-report=term:skip-covered"]
        made.append(Lane(name, [[*command, *paths]], place / f"{name}.txt", place / f"{name}.json"))
    checks = [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]]
    static = [[sys.executable, "-m", *check] for check in checks]
    made.append(Lane(STATIC, static, place / f"{STATIC}.txt", place / f"{STATIC}.json"))
    return [lane for lane in made if not only or lane.name in only]


def start(lane: Lane, examples: str) -> None:
    """The next command of a lane, with its output appended to the lane's file."""
    command = lane.commands[len(lane.codes)]
    with open(lane.output, "ab") as out:
        lane.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={
                **os.environ,
                "EXHUME_EXAMPLES": examples,
                "COVERAGE_FILE": str(lane.result.with_suffix(".coverage")),
                RESULT: str(lane.result),
            },
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def run(todo: list[Lane], examples: str) -> None:
    for lane in todo:
        lane.started = time.monotonic()
        start(lane, examples)
    running = list(todo)
    try:
        while running:
            pid, status = os.waitpid(-1, 0)
            (lane,) = [one for one in running if one.process is not None and one.process.pid == pid]
            assert lane.process is not None
            code = lane.process.returncode = os.waitstatus_to_exitcode(status)
            lane.codes.append(0 if code == 5 and lane.name != STATIC else code)  # 5: no test of this tier is in the lane
            if len(lane.codes) < len(lane.commands):
                start(lane, examples)
                continue
            running.remove(lane)
            lane.seconds = time.monotonic() - lane.started
            print(f"{lane.name}: {'failed' if lane.failed else 'passed'} after {lane.seconds:.0f} s", flush=True)
    finally:
        for lane in running:
            if lane.process is not None and lane.process.returncode is None:
                os.killpg(lane.process.pid, signal.SIGINT)
        for lane in running:
            if lane.process is not None and lane.process.returncode is None:
                lane.process.wait()


def again(done: list[Lane], place: Path, examples: str) -> list[str]:
    """Run what failed once more, by itself, with all lanes quiet: only in CI, and only a few. Returns what passed then.

    A lane may still disturb a test of another one. This goes when `./test` has passed beside tests/disturbance.py often enough.
    """
    tests = [test for lane in done if lane.result.exists() for test in json.loads(lane.result.read_text())["failed"]]
    if not 0 < len(tests) <= MOST_AGAIN or any(lane.failed and not lane.result.exists() for lane in done):
        return []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.lanes", *tests]
    alone = Lane("again", [command], place / "again.txt", place / "again.json")
    run([alone], examples)
    if alone.failed:
        print(f"\n===== failed again, alone =====\n{alone.output.read_text(errors='replace')}")
        return []
    return tests


def summary(done: list[Lane], slowest: int, disturbed: list[str] | None = None) -> int:
    """Print what failed and what was skipped; the closing line counts all lanes. Returns the exit code."""
    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    durations: list[tuple[float, str]] = []
    for lane in done:
        if lane.failed or not lane.codes:
            print(f"\n===== {lane.name} =====\n{lane.output.read_text(errors='replace')}")
        if lane.result.exists():
            result = json.loads(lane.result.read_text())
            counts.update(result["counts"])
            skipped.update(result["skipped"])
            durations += [(seconds, test) for test, seconds in result["durations"].items()]
        covered = [line for line in lane.output.read_text(errors="replace").splitlines() if line.startswith("TOTAL ")]
        if covered:
            print(f"the {lane.name} lane covers {covered[-1].split()[-1]} of src/exhume, child processes not counted")
    if slowest:
        print("\nslowest tests:")
        for seconds, test in sorted(durations, reverse=True)[:slowest]:
            print(f"{seconds:7.1f} s  {test}")
    if skipped:
        print("\nskipped:")
        for reason, number in skipped.most_common():
            print(f"{number:5}  {reason}")
    failed = [] if disturbed else [lane.name for lane in done if lane.failed]
    for test in disturbed or ():
        print(f"failed beside other lanes, passed alone: {test}")
        counts["passed"] += 1
        counts["failed"] -= 1
    print(f"\n{'  '.join(f'{lane.name} {lane.seconds:.0f} s' for lane in done)}")
    if failed:
        print(f"failed lanes: {', '.join(failed)}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if failed else 0


_reports: dict[str, tuple[str, str, float]] = {}


def pytest_runtest_logreport(report: "pytest.TestReport") -> None:
    """The worst outcome of a test's phases, and how long they took together."""
    outcome, reason, seconds = _reports.get(report.nodeid, ("passed", "", 0.0))
    if report.outcome != "passed" and outcome != "failed":
        outcome = report.outcome
        reason = report.longrepr[2].removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
    _reports[report.nodeid] = outcome, reason, seconds + report.duration


def pytest_sessionfinish() -> None:
    if RESULT not in os.environ or "PYTEST_XDIST_WORKER" in os.environ:
        return
    document = {
        "counts": Counter(outcome for outcome, _, _ in _reports.values()),
        "skipped": Counter(reason for outcome, reason, _ in _reports.values() if outcome == "skipped"),
        "failed": [test for test, (outcome, _, _) in _reports.items() if outcome == "failed"],
        "durations": {test: seconds for test, (_, _, seconds) in _reports.items()},
    }
    Path(os.environ[RESULT]).write_text(json.dumps(document))


def _interrupted(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, _interrupted)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job of a shell
    parser = argparse.ArgumentParser(prog="./test", description="Run the test suite in lanes.")
    parser.add_argument("--tier", choices=TIERS, default="everyday")
    parser.add_argument(
        "--lane", action="append", default=[], choices=[*LANES, PURE, STATIC], help="only this lane (repeatable)"
    )
    parser.add_argument("--coverage", action="store_true", help="measure what the pure lane covers of src/exhume")
    parser.add_argument("--slowest", type=int, default=0, metavar="N", help="print the N slowest tests")
    args = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="exhume-test-"))
    begun = time.monotonic()
    try:
        todo = lanes(args.tier, args.lane, place, args.coverage)
        try:
            run(todo, TIERS[args.tier][1])
        except KeyboardInterrupt:
            print("interrupted")
            summary(todo, args.slowest)
            return 130
        disturbed = again(todo, place, TIERS[args.tier][1]) if args.tier == "ci" else []
        code = summary(todo, args.slowest, disturbed)
        print(f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
        return code
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
