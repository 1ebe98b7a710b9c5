"""exhume latency as people and scripts see it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from exhume.cli.check import CODES
from exhume.cli.latency_text import render
from exhume.cli.main import main
from exhume.cli.terminal import Style
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.latency import LatencyReport, latency_report
from exhume.kernel.bpf import unavailable
from exhume.recorder.latency_rows import Key
from exhume.recording.source_state import Failed, SourceState
from exhume.sources.latency.stalls import Holder
from tests.diagnosis.findings.made import stall
from tests.diagnosis.test_latency import ISSUE, counted, histogram, recording
from tests.recorders import exhume
from tests.render.told import write
from tests.sources.latency import loaded
from tests.sources.latency.waiting import CORE, HELD_MS, WAITED_NS, named, needs_a_core_to_hold
from tests.starved import held, hold_now, off_the_core, ready_to_hold
from tests.waiting import wait_for

HOSTILE = "\x1b]0;owned\x07\x1b[2J\n\u202e"


def latency(*arguments: str, code: int | None = None) -> tuple[int, str, str]:
    done = exhume("latency", *arguments)
    out, err = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in err, err
    if code is not None:
        assert done.returncode == code, (out, err)
    return done.returncode, out, err


def document(*arguments: str) -> dict[str, Any]:
    code, out, _ = latency("--json", *arguments)
    found: dict[str, Any] = json.loads(out)
    assert code == CODES[found["health"]]
    return found


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    """This machine for two seconds, every event measured."""
    if why := unavailable():
        pytest.skip(why)
    return document("--for", "2s", "--full")


def test_the_json_has_the_schema_that_is_promised(here: dict[str, Any]) -> None:
    assert here["schema"] == "exhume.latency/1"
    assert here["probes"]
    for probe in here["probes"]:
        assert probe.keys() >= ISSUE
        assert probe["what"] in ("napi", "softirq", "runqueue", "reclaim", "rstat")
        assert probe["count"] == sum(probe["histogram_us"].values()) > 0
        assert 0 <= probe["p50_us"] <= probe["p99_us"] <= probe["max_us"]
        for worst in probe["worst"]:
            assert worst["us"] <= probe["max_us"] + 1
            assert worst["offender"] is None or worst["offender"].keys() >= {"pid", "comm", "stack"}
            assert worst["at"] is None or re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", worst["at"])


def test_this_machines_cores_and_sources_are_in_it(here: dict[str, Any]) -> None:
    assert {probe["what"] for probe in here["probes"]} >= {"softirq", "runqueue"}
    assert {probe["cpu"] for probe in here["probes"]} >= {0}
    assert {"latency", "latency-stacks", "latency-windows"} <= {one["name"] for one in here["sources"] if one["state"] != "off"}
    assert all(probe["measured_share"] > 0.05 for probe in here["probes"] if probe["what"] == "softirq")


def test_a_device_that_is_not_there_has_no_probes() -> None:
    found = document("--for", "300ms", "--device", "exhume-none0")
    assert (found["probes"], found["stalls"]) == ([], [])
    assert found["health"] in ("healthy", "unknown")
    assert "exhume-none0" in found["summary"] or found["health"] == "unknown"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--threads", "(kube"), "--threads '(kube' is not a regular expression"),
        (("--for", "1ms"), "--for must be between 200ms and 24h"),
        (("--for", "soon"), "soon"),
        (("--threshold", "1ms"), "--threshold must be between 5ms and 1m"),
        (("--host", "/nowhere/at/all"), "--host '/nowhere/at/all' is not a directory"),
        (("--nonsense",), "--nonsense"),
    ],
)
def test_what_cannot_be_meant_is_said_and_ends_with_64(arguments: tuple[str, ...], said: str) -> None:
    _, out, err = latency(*arguments, code=64)
    assert out == ""
    assert said in err


def all_loaded(pid: int) -> bool:
    """Whether it has BPF programs, and no more of them after half a second."""
    before = len(loaded.of_process(pid))
    time.sleep(0.5)
    return len(loaded.of_process(pid)) == before > 2


def test_a_stall_of_a_thread_that_was_named_is_told_as_it_lasts_and_at_the_end() -> None:
    needs_a_core_to_hold()
    if why := unavailable():
        pytest.skip(why)
    holder = ready_to_hold(HELD_MS)
    with named(b"exhume-waits", spin=True) as pid, off_the_core():
        command = [sys.executable, "-m", "exhume", "latency", "--for", "6s", "--threads", "^exhume-waits$", "--json", "-v"]
        watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(lambda: all_loaded(watch.pid))
        hold_now(holder)
        held(holder)
        out, err = watch.communicate(timeout=300)
    found = json.loads(out)
    assert watch.returncode == CODES[found["health"]] >= 1
    stalls = [one for one in found["stalls"] if one["offender"] and one["offender"]["pid"] == holder.pid]
    stalls = [one for one in stalls if one["thread"] == "exhume-waits"]
    assert {(one["what"], one["cpu"]) for one in stalls} == {("runqueue", CORE)}
    assert max(one["us"] for one in stalls) > WAITED_NS / 1000
    # On a busy core it may have waited before, for others.
    lines = [line for line in err.splitlines() if f"exhume-waits [{pid}]" in line]
    ends = [at for at, line in enumerate(lines) if f"[{holder.pid}]" in line and "and lasts" not in line]
    assert any("and lasts" in lines[at - 1] for at in ends if at), err


def test_watching_goes_on_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "exhume", "latency", "--watch", "--for", "300ms", "--json"]
    watch = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watch.stdout is not None
    lines = [watch.stdout.readline() for _ in range(3)]
    watch.send_signal(signal.SIGINT)
    out, err = watch.communicate(timeout=300)
    assert "Traceback" not in err
    reports = [json.loads(line) for line in (*lines, *out.splitlines())]
    assert {report["schema"] for report in reports} == {"exhume.latency/1"}
    assert watch.returncode == max(CODES[report["health"]] for report in reports)


# As in test_check.py: once as root, so that every module is loaded when the interpreter's own files are out of reach; heapq is
# what Counter.most_common loads when there is a stall to tell.
AS_NOBODY = """
import contextlib, heapq, io, os, sys
from exhume.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["latency", "--for", "200ms", "--json"])
    main(["latency", "--for", "200ms"])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(["latency", "--for", "400ms", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("arguments", [(), ("--json",)], ids=["text", "json"])
def test_without_privileges_it_is_weaker_and_says_so(arguments: tuple[str, ...]) -> None:
    if os.geteuid():
        pytest.skip("needs root to become nobody")
    done = subprocess.run([sys.executable, "-c", AS_NOBODY, *arguments], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    if arguments:
        report = json.loads(done.stdout)
        assert done.returncode == CODES[report["health"]]
        sources = {source["name"]: source for source in report["sources"]}
        assert sources["latency"]["state"] == "partial"
        assert sources["latency"]["reason"].startswith("weaker, from /proc/PID/schedstat: ")
        assert sources["latency"]["reasons"][0]["code"] == "weaker"
        assert sources["latency"]["reasons"][0]["instead"] == "/proc/PID/schedstat"
        for name in ("latency-windows", "latency-reclaim", "latency-stacks"):
            assert sources[name]["state"] == "off"
            assert sources[name]["reason"]
    else:
        assert done.stdout.lower().startswith(tuple(health for health, code in CODES.items() if code == done.returncode))
        assert "latency partial: weaker, from /proc/PID/schedstat: " in done.stdout
        assert "latency-windows off: " in done.stdout


def test_a_root_that_is_not_of_this_kernel_cannot_be_watched(tmp_path: Path) -> None:
    _, out, err = latency("--host", str(tmp_path), "--for", "300ms", code=3)
    assert out.startswith("UNKNOWN  nothing could be watched: ")
    assert err == ""


def test_it_is_among_the_commands_and_explains_itself() -> None:
    _, out, _ = latency("--help", code=0)
    assert "--device" in out
    assert "exit code:" in out
    assert b"latency" in exhume("--help").stdout


@pytest.mark.parametrize(("critical_ms", "warning_ms", "code"), [(1000, 200, 1), (100, 50, 2), (2000, 1000, 0)])
def test_the_thresholds_of_the_configuration_decide(tmp_path: Path, critical_ms: int, warning_ms: int, code: int) -> None:
    it = recording()
    stall(it, 5, 300)
    write(tmp_path / "rec", it)
    config = tmp_path / "exhume.toml"
    config.write_text(f"[thresholds]\nnapi_stall_critical_ms = {critical_ms}\nnapi_stall_warning_ms = {warning_ms}\n")
    assert main(["latency", str(tmp_path / "rec"), "--config", str(config)]) == code


# The text, of reports made of numbers


def report(stalls: bool = True) -> LatencyReport:
    it = recording()
    it.add_source(0, "latency-reclaim", SourceState.off(Failed("this kernel has no tracepoint of the kind")))
    eth0 = Key("napi", "wait", 1, "eth0")
    counted(it, 1, {eth0: histogram(*[3] * 900, *[40] * 99, 700), eth0._replace(stage="run"): histogram(*[9] * 1000)})
    counted(it, 1, {Key("runqueue", "wait", core): histogram(*[2] * (10 + core)) for core in range(5)})
    if stalls:
        counted(it, 4, {eth0._replace(stage="stall"): histogram(690_000)})
        stall(it, 4, 690, netns=0)
        stall(it, 6, 80, holder=Holder(44, 45, "burn"), stack=(), core=2, device="", what="softirq", cgroup="")
        stall(it, 7, 70, holder=None, device="eth1", netns=7)
        stall(it, 8, 60, holder=Holder(0, 0, "swapper/3"), core=3, device="eth1", netns=7)
        stall(it, 9, 55, device="eth2", netns=0, over=False)
    return latency_report(it, Thresholds())


def text(of: LatencyReport, columns: int = 100, **options: bool) -> str:
    return render(of, Style(sys.stdout, colour=False), columns, **options)


def test_a_report_with_stalls_is_worth_reading() -> None:
    assert text(report()).splitlines() == [
        "CRITICAL  5 stalls, the longest of 1,055 ms: eth2 on core 1, while kubelet [11] held the core",
        "",
        "                                      count      p50      p99      max   1µs 16µs  1ms 16ms  1s  16s",
        "  napi  due to polled",
        "    eth0 core 1                       1,000   2.9 µs    60 µs   690 ms  ··█···▅···▁·········!·······",
        "  napi  one poll",
        "    eth0 core 1                       1,000   8.5 µs     9 µs     9 µs  ····█·······················",
        "  runqueue  runnable to running",
        "    core 0                               10     2 µs     2 µs     2 µs  ··█·························",
        "    core 1                               11     2 µs     2 µs     2 µs  ··█·························",
        "    core 2                               12     2 µs     2 µs     2 µs  ··█·························",
        "  2 more: -v shows them all",
        "",
        "  stalls  2023-11-14, UTC, the longest first",
        "    22:13:28.945  1,055 ms and lasts  eth2 on core 1 was due and not polled",
        "      kubelet [11], /system.slice/kubelet.service: held the core",
        "    22:13:23.310  690 ms  eth0 on core 1 was due and not polled",
        "      kubelet [11], /system.slice/kubelet.service: walked memory cgroups (mem_cgroup_iter)",
        "      in mem_cgroup_iter < shrink_node < do_try_to_free_pages < try_to_free_pages <",
        "         __alloc_pages_direct_reclaim",
        "    22:13:25.920  80 ms  softirqs NET_RX on core 2 was due and not run",
        "      burn [44]: ran its own code",
        "    22:13:26.930  70 ms  eth1@7 on core 1 was due and not polled",
        "      who held the core is not known",
        "    22:13:27.940  60 ms  eth1@7 on core 3 was due and not polled",
        "      the core was idle, in a softirq, had interrupts off, or did not run at all (a virtual CPU",
        "        without its core)",
        "",
        "  histograms from 5% of the time, stalls from all of it; --full measures every event, and costs more",
        "  source latency-reclaim off: this kernel has no tracepoint of the kind",
    ]


def test_a_quiet_report_says_so_first() -> None:
    lines = text(report(stalls=False)).splitlines()
    assert lines[0] == "HEALTHY  no stall: no poll, softirq or watched thread was 50 ms late"
    assert not any("kubelet" in line for line in lines)


def test_everything_is_shown_when_asked_for() -> None:
    shown = text(report(), verbose=True)
    assert "more: -v" not in shown
    assert "core 4" in shown
    assert {"  source latency on", "  source latency-windows on"} <= {*shown.splitlines()}


def test_colours_only_when_asked_for() -> None:
    assert "\x1b[31;1mCRITICAL" in render(report(), Style(sys.stdout, colour=True), 100)
    assert "\x1b" not in text(report(), verbose=True)


@pytest.mark.parametrize("columns", [50, 80, 140])
def test_words_are_wrapped_to_the_terminal(columns: int) -> None:
    lines = text(report(), columns, verbose=True).splitlines()
    words = [line for line in lines if not re.search(r"[·▁█]|p50", line)]  # pictures are not broken
    assert len(words) > 8
    assert max(len(line) for line in words) <= columns


def test_hostile_names_are_shown_safely() -> None:
    it = recording()
    counted(
        it,
        1,
        {Key("napi", "wait", 1, HOSTILE[:15], 12): histogram(3), Key("reclaim", "memcg", 0, name=HOSTILE * 500): histogram(3)},
    )
    stall(it, 4, 300, device=HOSTILE[:15], holder=Holder(5, 5, HOSTILE[:15]), cgroup="/" + HOSTILE * 900, stack=(HOSTILE,))
    stall(it, 6, 80, device=HOSTILE, over=False, cgroup=HOSTILE)
    it.add_source(0, "latency-stacks", SourceState.off(Failed(HOSTILE * 90)))
    for verbose in (False, True):
        shown = text(latency_report(it, Thresholds()), verbose=verbose)
        assert all(character == "\n" or character.isprintable() for character in shown)
        assert len(shown) < 10_000
        assert "\\x1b]0;owned" in shown
