"""The flight recorder on other kernels, where a CPU can be taken away and the wall clock be set without harm to anybody."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.vm import vm

SECOND = 1_000_000_000
HOUR = 3600 * SECOND

# No pyarrow in the guest: the store is a list. What it costs is left out, the machine is emulated.
SCRIPT = """
import json, threading, time
from exhume.kernel.clock import Clock
from exhume.host.root import Root
from exhume.recorder.profiles import FLIGHT
from exhume.recorder.recorder import Options, Recorder
from exhume.recorder.samples import Options as SampleOptions
from exhume.recording.recording import Recording

class Memory:
    chapter, lost, size_bytes, next_ids = 1, {}, 0, {"stacks": 1, "frames": 1, "threads": 1}
    def __init__(self): self.rows = []
    def append(self, rows): self.rows.append(rows)
    def turn(self): self.chapter += 1

def online(what):
    with open("/sys/devices/system/cpu/cpu1/online", "w") as file:
        file.write(what)

moments, done = {}, threading.Event()

def disturb():
    with Clock() as clock:
        time.sleep(1.5)
        moments["away"] = clock.now()
        online("0")
        time.sleep(2.5)
        moments["back"] = clock.now()
        online("1")
        time.sleep(0.5)
        moments["set"] = clock.now()
        time.clock_settime_ns(time.CLOCK_REALTIME, time.time_ns() + 3600 * 10**9)
        time.sleep(6)  # emulated: what it does every 2.5 s may take a while
    done.set()

flight = Recorder(Root(), FLIGHT, Options(SampleOptions(97), strict=True))
store = Memory()
threading.Thread(target=disturb, daemon=True).start()
try:
    flight.run(store, stop=done.is_set)
finally:
    flight.close()
rows = Recording(flight.node)
for each in store.rows:
    rows.extend(each)
times, cores = rows["samples"].ints("time"), rows["samples"].ints("core")
stacks = dict(zip(rows["stacks"].ints("id").tolist(), rows["stacks"].texts("class")))
print(json.dumps({
    "moments": moments, "off": flight.off, "event": flight.about["event"],
    "first": times[cores == 0].tolist(), "second": times[cores == 1].tolist(),
    "classes": sorted({stacks[stack] for stack in rows["samples"].ints("stack").tolist()}),
    "names": sorted(set(rows["threads"].texts("process"))),
    "kernel": sorted(set(rows["frames"].texts("name")))[:50],
    "events": [{"time": e["time"], "kind": e["kind"], "message": e["message"], "fields": dict(e["fields"])}
               for e in rows["events"].rows() if e["kind"] in ("cpu-hotplug", "clock-step")],
    "anchors": [[a["time"], a["real"]] for a in rows["anchors"].rows()],
    "sources": {name: [row.state.state, row.state.reason] for name, row in rows.sources().items()},
    "cgroups": sorted(set(rows["threads"].texts("cgroup"))),
}))
"""


@dataclass(frozen=True, slots=True)
class Story:
    kernel: str
    hierarchy: str
    seen: dict[str, Any]

    def at(self, moment: str) -> int:
        return int(self.seen["moments"][moment])

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.seen["events"] if event["kind"] == kind]


def machine(kernel: str, hierarchy: vm.Hierarchy) -> Any:
    return pytest.param((kernel, hierarchy), id=f"{kernel}-{hierarchy}", marks=[pytest.mark.long])


@pytest.fixture(
    scope="module",
    params=[
        machine("6.1", "v2"),
        machine("6.1", "v1"),
        machine("5.10", "v1"),
        machine("6.12", "v2"),
        machine("7.2", "v2"),
    ],
)
def story(request: pytest.FixtureRequest) -> Story:
    kernel, hierarchy = request.param
    if why := vm.unavailable(kernel):
        pytest.skip(why)
    return Story(kernel, hierarchy, json.loads(vm.run(kernel, hierarchy, SCRIPT).check().stdout))


def test_both_cpus_have_samples_at_first(story: Story) -> None:
    assert story.seen["off"] == ""
    for cpu in ("first", "second"):
        assert [time for time in story.seen[cpu] if time < story.at("away")]


def test_a_cpu_that_was_taken_away_has_none_and_is_told(story: Story) -> None:
    gone = [time for time in story.seen["second"] if story.at("away") + SECOND < time < story.at("back")]
    assert gone == []
    told = [event["message"] for event in story.events("cpu-hotplug")]
    assert {"CPU 1 went offline", "CPU 1 was away"} & {*told}
    assert "CPU 1 came online" in told


def test_samples_come_again_when_it_is_back(story: Story) -> None:
    assert [time for time in story.seen["second"] if time > story.at("back")]


def test_the_other_cpu_is_sampled_all_the_time(story: Story) -> None:
    begin, end = story.at("away"), story.at("set")
    for second in range(begin, end - SECOND, SECOND):
        assert [time for time in story.seen["first"] if second <= time < second + SECOND]


def test_a_wall_clock_that_was_set_is_told_and_anchors_follow(story: Story) -> None:
    (event,) = story.events("clock-step")
    assert abs(int(event["fields"]["step_ns"]) - HOUR) < SECOND
    assert event["message"].startswith("the wall clock was set forward by 3")
    offsets = [(time, real - time) for time, real in story.seen["anchors"]]
    before = [offset for time, offset in offsets if time < story.at("set")]
    after = [offset for time, offset in offsets if time > event["time"]]
    assert before
    assert after
    assert all(abs(offset - before[0]) < SECOND for offset in before)
    assert all(abs(offset - before[0] - HOUR) < SECOND for offset in after)


def test_samples_are_told_apart_and_named(story: Story) -> None:
    assert {"idle", "system"} <= {*story.seen["classes"]} or {"idle", "user"} <= {*story.seen["classes"]}
    assert "swapper" in story.seen["names"]
    assert [name for name in story.seen["kernel"] if name]
    assert story.seen["sources"]["samples"] == ["on", ""]


def test_on_one_hierarchy_threads_have_their_cgroup(story: Story) -> None:
    if story.hierarchy != "v2":
        pytest.skip("samples carry the id of another hierarchy on v1")
    assert any("exhume-vm.service" in path for path in story.seen["cgroups"])
