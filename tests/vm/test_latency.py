"""The watch for stalls on other kernels: what it reads is where it looks for it, and a thread that is held off is found."""

import json
from typing import Any

import pytest

from exhume.cli.check import CODES
from tests.vm import late, vm

SCRIPT = "from tests.vm import late; late.main()"
SOURCES = ("latency", "latency-stacks", "latency-windows", "latency-reclaim")
# Tracepoints that came late: cgroup_rstat_* with 6.10 (fc29e04ae1ad), memcg_flush_stats with 6.13 (f914ac96ee88).
NEWER = {"cgroup_rstat_lock_contended", "cgroup_rstat_locked", "memcg_flush_stats"}
WITHOUT = {"5.10": NEWER, "6.1": NEWER, "6.12": {"memcg_flush_stats"}, "7.2": set[str]()}


class Story:
    def __init__(self, kernel: str, seen: dict[str, Any]) -> None:
        self.kernel = kernel
        self.tid: int = seen["tid"]
        self.looks: dict[str, Any] = seen["looks"]
        self.watch: dict[str, Any] = seen["watch"]
        self.weak: dict[str, Any] = seen["weak"]
        self.command: dict[str, Any] = seen["command"]


def machine(kernel: str) -> Any:
    return pytest.param(kernel, id=kernel, marks=[pytest.mark.long])


@pytest.fixture(scope="module", params=[machine("6.1"), machine("5.10"), machine("6.12"), machine("7.2")])
def story(request: pytest.FixtureRequest) -> Story:
    kernel = request.param
    if why := vm.unavailable(kernel):
        pytest.skip(why)
    return Story(kernel, json.loads(vm.run(kernel, "v2", SCRIPT).check().stdout))


def test_every_part_of_the_watch_loads(story: Story) -> None:
    assert story.watch["failure"] == ""
    for name in SOURCES:
        assert story.watch["sources"][name][0] != "off", story.watch["sources"][name]
    assert not story.watch["sources"]["latency"][1].startswith("weaker")
    assert story.looks["sees_softirqs"]


def test_probes_that_the_kernel_has_no_tracepoint_for_are_named(story: Story) -> None:
    assert story.watch["sources"]["latency-windows"][1] == "500 ms of each 2 s, the run queue 200 ms"
    _, _, said = story.watch["sources"]["latency-reclaim"][1].partition("without ")
    missing = dict(part.split(": ", 1) for part in said.split("; ")) if said else {}
    assert missing == {name: f"this kernel has no tracepoint {name}" for name in sorted(WITHOUT[story.kernel])}


def test_each_core_and_the_named_thread_are_looked_at(story: Story) -> None:
    assert [name for name, _ in story.looks["ksoftirqd"]] == ["ksoftirqd/0", "ksoftirqd/1"]
    assert story.looks["known"] == [1, 1]
    assert story.looks["threads"] == [[late.WAITER, story.tid]]
    assert (story.looks["there"], story.looks["cpu"]) == (1, late.CORE)


def test_softirqs_are_counted_as_in_proc(story: Story) -> None:
    before, seen, after = story.looks["softirqs"]
    assert sum(map(sum, before)) > 0
    for core in (0, 1):
        for least, count, most in zip(before[core], seen[core], after[core], strict=True):
            assert least <= count <= most


def test_waits_are_counted_as_in_proc(story: Story) -> None:
    before, seen, after = story.looks["schedstat"]
    assert before[1] > 0
    for least, count, most in zip(before, seen, after, strict=True):
        assert least <= count <= most


def test_a_thread_that_is_held_off_its_core_is_found_with_its_holder(story: Story) -> None:
    watch = story.watch
    held = [stall for stall in watch["stalls"] if stall["holder"] == watch["holder"] and stall["tid"] == story.tid]
    over = [stall for stall in held if stall["over"]]
    assert over, watch["stalls"]
    assert {(stall["what"], stall["core"]) for stall in over} == {("runqueue", late.CORE)}
    # The emulator runs both cores by turns, so that not even the holder has its core all the time.
    assert max(stall["ns"] for stall in over) >= watch["held_ns"] / 2
    assert any(stall["samples"] for stall in over)


def test_it_is_found_without_bpf_too(story: Story) -> None:
    weak = story.weak
    assert weak["failure"] == ""
    state, reason = weak["sources"]["latency"]
    assert state == "partial"
    assert reason.startswith("weaker, from /proc/PID/schedstat: BPF is not to be used")
    long = [stall["ns"] for stall in weak["stalls"] if stall["over"] and stall["tid"] == story.tid]
    # When it began is known no better than how far apart the looks were, and they were far apart on this machine.
    assert max(long, default=0) >= weak["held_ns"] / 4, weak["stalls"]


def test_windows_have_counted(story: Story) -> None:
    rows = {tuple(row) for row in story.watch["rows"]}
    assert {("softirq", "wait"), ("softirq", "run"), ("runqueue", "wait"), ("runqueue", "stall")} <= rows


def test_the_command_reports(story: Story) -> None:
    assert story.command["stderr"] == ""
    report = story.command["report"]
    assert report["schema"] == "exhume.latency/1"
    # The emulator itself is kept from running now and then, and a watch that could not look does not say that all is well.
    assert report["health"] != "unknown" or "kept from looking" in report["summary"], report["summary"]
    assert story.command["exit"] == CODES[report["health"]]
    assert {probe["what"] for probe in report["probes"]} >= {"softirq", "runqueue"}
