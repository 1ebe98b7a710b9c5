"""exhume on real kernels of other versions, each with a real systemd whose unit crash-loops and leaks memory cgroups."""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from exhume.cli.check import CODES
from tests.vm import crash_loop, vm

SCRIPT = "from tests.vm import crash_loop; crash_loop.main()"


@dataclass(frozen=True, slots=True)
class Looked:
    """One `exhume check` on a machine, and what the kernel said at the same time."""

    exit: int
    report: dict[str, Any]
    dying: int

    def source(self, name: str) -> dict[str, Any]:
        return next(source for source in self.report["sources"] if source["name"] == name)

    def zombies(self) -> tuple[int, str]:
        """How many exhume counted, and by which method."""
        finding = next(finding for finding in self.report["findings"] if finding["kind"] == "zombie-memcgs")
        return finding["facts"]["zombies"], finding["facts"]["counted_in"]


@dataclass(frozen=True, slots=True)
class Story:
    kernel: str
    hierarchy: vm.Hierarchy
    method: str
    release: str
    before: Looked
    during: Looked
    after: Looked
    starts: int
    named: dict[str, Any]
    purged: dict[str, Any]

    def looks(self) -> tuple[Looked, Looked, Looked]:
        return self.before, self.during, self.after


def machine(kernel: str, hierarchy: vm.Hierarchy, method: str, always: bool = False) -> Any:
    marks = [pytest.mark.ci if always else pytest.mark.long]
    return pytest.param((kernel, hierarchy, method), id=f"{kernel}-{hierarchy}", marks=marks)


# No v1 on 6.12 and 7.2: Debian builds them without CONFIG_MEMCG_V1, and such a kernel offers memory to v2 only.
# The counters of single controllers in cgroup.stat came with 6.12 (ab0312526867).
@pytest.fixture(
    scope="module",
    params=[
        machine("6.1", "v2", "cgroup-stat", always=True),
        machine("6.1", "v1", "proc-cgroups"),
        machine("6.1", "hybrid", "proc-cgroups"),
        machine("5.10", "v2", "cgroup-stat"),
        machine("5.10", "v1", "proc-cgroups"),
        machine("6.12", "v2", "cgroup-stat-memory"),
        machine("7.2", "v2", "cgroup-stat-memory"),
    ],
)
def story(request: pytest.FixtureRequest) -> Story:
    kernel, hierarchy, method = request.param
    if why := vm.unavailable(kernel):
        pytest.skip(why)
    done = vm.run(kernel, hierarchy, SCRIPT).check()
    seen = json.loads(done.stdout)
    before, during, after = (Looked(**seen[when]) for when in ("before", "during", "after"))
    return Story(kernel, hierarchy, method, done.release, before, during, after, seen["starts"], seen["named"], seen["purged"])


def test_the_report_is_about_the_kernel_and_the_hierarchy_that_run(story: Story) -> None:
    assert story.release.startswith(f"{story.kernel}.")
    for looked in story.looks():
        assert looked.report["node"]["kernel"] == story.release
        assert looked.report["node"]["cgroups"] == story.hierarchy


def test_the_exit_code_is_that_of_the_health_it_reports(story: Story) -> None:
    for looked in story.looks():
        assert looked.exit == CODES[looked.report["health"]]


@pytest.mark.parametrize("name", ["memcg", "kernel-log", "units", "cpu", "vmstat", "pressure"])
def test_root_on_a_whole_machine_sees_each_source(story: Story, name: str) -> None:
    for looked in story.looks():
        assert looked.source(name)["state"] != "off", looked.source(name)["reason"]


def test_zombies_are_counted_by_the_best_that_the_kernel_offers(story: Story) -> None:
    assert story.after.zombies()[1] == story.method


def test_as_many_zombies_are_seen_as_the_kernel_has(story: Story) -> None:
    assert story.after.zombies()[0] == story.after.dying


def test_the_unit_that_restarts_is_named_while_it_does(story: Story) -> None:
    loops = [finding for finding in story.during.report["findings"] if finding["kind"] == "crash-loop"]
    assert [loop["subject"] for loop in loops] == [crash_loop.UNIT]


def test_a_crash_loop_that_writes_a_file_leaves_a_zombie_for_each_start(story: Story) -> None:
    grown = story.after.dying - story.before.dying
    # A page of the loop's own that is freed early lets one group go; a unit of the machine's own that ends adds one.
    assert story.starts * 0.9 <= grown <= story.starts + 3


def test_every_zombie_is_named_and_the_leaking_unit_has_all_of_its_own(story: Story) -> None:
    report = story.named["report"]
    assert report["method"] == "bpf-walk", report["note"]
    assert report["zombies"] == story.named["dying"] == sum(group["zombies"] for group in report["groups"])
    leak = next(group for group in report["groups"] if group["path"].endswith(f"/{crash_loop.UNIT}"))
    assert leak["owner"]["unit"] == crash_loop.UNIT
    assert story.starts * 0.9 <= leak["zombies"] <= story.starts
    # From 7.1 on a dead group's pages are on its parent's lists, and no page of its own is to be seen.
    assert leak["pinned_bytes"]["file"] > 0 or leak["empty"] > 0


def test_they_go_without_a_reboot_or_it_is_said_which_way_they_would(story: Story) -> None:
    report = story.purged["report"]
    left = [one for one in report["left"] if one["holder"] == "page-cache"]
    if left:
        assert all(one["frees"] and one["commands"] for one in left)
        return
    assert story.purged["dying"] <= story.before.dying + 0.1 * story.starts + 3


@pytest.mark.long
def test_a_node_whose_memory_controller_is_in_no_hierarchy_is_judged_without_it() -> None:
    """6.12 as Debian builds it, started with v1: memory is not among the controllers that can be mounted."""
    if why := vm.unavailable("6.12"):
        pytest.skip(why)
    done = vm.run("6.12", "v1", "import json; from tests.vm import crash_loop; print(json.dumps(crash_loop.check()))").check()
    looked = Looked(**json.loads(done.stdout))
    assert looked.report["node"]["cgroups"] == "v1"
    assert looked.source("memcg")["state"] == "off"
    assert "memory controller" in looked.source("memcg")["reason"]
    assert looked.source("units")["state"] == "on"
    assert looked.exit == CODES[looked.report["health"]]
