"""Who a sample is of: forks, execs, new names, ends, and numbers that are used again, told by a side-band made by hand."""

import os
from pathlib import Path

import numpy as np
import pytest

from exhume.host.root import Root
from exhume.sources.sampling import tasks
from exhume.sources.sampling.images import Images
from exhume.sources.sampling.records import tasks as side_band
from exhume.sources.sampling.tasks import KEPT, NO_PID, Process, Tasks
from tests.sources.sampling import made_records as made
from tests.trees import Tree


class Heard:
    """Tasks, and who changed."""

    def __init__(self, root: Root, unified: bool = False) -> None:
        self.changed: list[int] = []
        self.images = Images()
        self.tasks = Tasks(root, self.images, unified, self._change)

    def _change(self, process: Process) -> None:
        self.changed.append(process.pid)

    def batch(self, *records: bytes, sampled: tuple[int, ...] = ()) -> None:
        """One second: everything that is told is applied."""
        for told in self.tasks.hear(side_band(b"".join(records)), np.array(sorted(sampled), dtype=np.int64)):
            self.tasks.apply(told)
        for pid in sampled:
            self.tasks.process(pid)

    def name(self, pid: int, tid: int = 0) -> str:
        return self.tasks.name(self.tasks.process(pid), tid or pid)

    def mapped(self, pid: int) -> list[str]:
        space = self.tasks.process(pid).space
        space.settle(self.images.locate)
        return [self.images.module(image) for image in space.table()[:, 3].tolist()]


@pytest.fixture
def nobody(tmp_path: Path) -> Heard:
    """Where /proc knows no process."""
    return Heard(Root(str(tmp_path)))


SECOND = 1_000_000_000
BASH = (made.comm(10, 10, b"bash", 1, by_exec=True), made.mmap2(10, 0x1000, 0x1000, b"/bin/bash", 2))


def test_a_fork_inherits_name_and_mappings_and_goes_its_own_way(nobody: Heard) -> None:
    nobody.batch(*BASH, sampled=(10,))
    nobody.batch(made.fork(11, 10, SECOND), sampled=(11,))
    assert nobody.name(11) == "bash"
    assert nobody.mapped(11) == ["/bin/bash"]
    assert 0 <= SECOND - nobody.tasks.process(11).start < SECOND // 100
    nobody.batch(made.mmap2(11, 0x5000, 0x1000, b"/lib/x.so", SECOND + 2), sampled=(11,))
    assert nobody.mapped(11) == ["/bin/bash", "/lib/x.so"]
    assert nobody.mapped(10) == ["/bin/bash"]


def test_exec_takes_away_names_and_mappings(nobody: Heard) -> None:
    nobody.batch(*BASH, made.comm(10, 12, b"worker", 3), sampled=(10,))
    before = nobody.tasks.process(10).space.number
    nobody.batch(made.comm(10, 10, b"true", 5, by_exec=True), made.mmap2(10, 0x1000, 0x1000, b"/bin/true", 6), sampled=(10,))
    assert nobody.name(10) == "true"
    assert nobody.name(10, 12) == "true"
    assert nobody.mapped(10) == ["/bin/true"]
    assert nobody.tasks.process(10).space.number != before


def test_a_new_name_leaves_mappings_and_other_threads_alone(nobody: Heard) -> None:
    nobody.batch(*BASH, made.comm(10, 12, b"worker", 3), sampled=(10,))
    nobody.changed.clear()
    nobody.batch(made.comm(10, 10, b"\x1b[31mred", 4), sampled=(10,))
    assert nobody.name(10) == "\x1b[31mred"
    assert nobody.name(10, 12) == "worker"
    assert nobody.mapped(10) == ["/bin/bash"]
    assert nobody.changed == [10]


def test_a_name_that_is_not_utf_8_is_decoded(nobody: Heard) -> None:
    nobody.batch(made.comm(10, 10, b"\xffx", 4), sampled=(10,))
    assert nobody.name(10) == "\\xffx"


def test_a_thread_without_a_name_of_its_own_has_that_of_its_process(nobody: Heard) -> None:
    nobody.batch(*BASH, sampled=(10,))
    assert nobody.name(10, 13) == "bash"


def test_a_threads_number_that_is_used_again_is_another_thread(nobody: Heard) -> None:
    nobody.batch(*BASH, made.comm(10, 12, b"worker", 3), sampled=(10,))
    nobody.changed.clear()
    nobody.batch(made.exit_of(10, 4, tid=12), made.fork(10, 10, 5, tid=12), sampled=(10,))
    assert nobody.changed == [10]
    assert nobody.name(10, 12) == "bash"
    assert nobody.name(10) == "bash"


def test_samples_that_come_just_after_the_end_still_have_a_name(nobody: Heard) -> None:
    nobody.batch(*BASH, sampled=(10,))
    nobody.batch(made.exit_of(10, 5), sampled=(10,))
    assert nobody.name(10) == "bash"
    nobody.batch()
    assert nobody.name(10) == ""


def test_a_number_that_is_used_again_is_another_process(nobody: Heard) -> None:
    nobody.batch(*BASH, sampled=(10,))
    nobody.batch(made.exit_of(10, 5), made.fork(10, 99, 6), made.comm(10, 10, b"new", 7, by_exec=True), sampled=(10,))
    assert nobody.name(10) == "new"
    assert nobody.mapped(10) == []
    nobody.batch()
    assert nobody.name(10) == "new"


def test_what_happens_to_a_known_process_while_it_has_no_sample_is_not_missed(nobody: Heard) -> None:
    nobody.batch(*BASH, sampled=(10,))
    nobody.batch(made.comm(10, 10, b"sleep", 5, by_exec=True), made.mmap2(10, 0x2000, 0x1000, b"/bin/sleep", 6))
    for _ in range(KEPT + 2):
        nobody.batch()
    assert nobody.name(10) == "sleep"
    assert nobody.mapped(10) == ["/bin/sleep"]


def test_a_number_used_again_while_nobody_had_samples_is_another_process(nobody: Heard) -> None:
    nobody.batch(*BASH, sampled=(10,))
    nobody.batch(made.exit_of(10, 5))
    nobody.batch(made.fork(10, 99, 6), made.comm(10, 10, b"new", 7, by_exec=True))
    nobody.batch(sampled=(10,))
    assert nobody.name(10) == "new"


def test_what_was_told_some_batches_ago_is_found_when_the_first_sample_comes(nobody: Heard) -> None:
    nobody.batch(made.fork(11, 10, 1), made.comm(11, 11, b"late", 2, by_exec=True), made.mmap2(11, 0, 9, b"/bin/late", 3))
    for _ in range(KEPT - 1):
        nobody.batch()
    nobody.batch(sampled=(11,))
    assert nobody.name(11) == "late"
    assert nobody.mapped(11) == ["/bin/late"]


def test_the_side_band_of_those_without_samples_is_kept_for_so_many_batches_only(nobody: Heard) -> None:
    nobody.batch(made.comm(11, 11, b"late", 2, by_exec=True))
    for _ in range(KEPT):
        nobody.batch()
    nobody.batch(sampled=(11,))
    assert nobody.name(11) == ""


def test_a_storm_of_side_band_is_not_kept(nobody: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "LARGEST_KEPT", 1000)
    nobody.batch(*(made.comm(pid, pid, b"storm", 2, by_exec=True) for pid in range(20, 60)))
    nobody.batch(sampled=(25,))
    assert nobody.name(25) == ""


def test_a_process_of_which_nobody_knows_anything_is_a_number_without_a_name(nobody: Heard) -> None:
    nobody.batch(sampled=(4242,))
    assert nobody.name(4242) == ""
    assert nobody.mapped(4242) == []
    assert nobody.tasks.cgroup(nobody.tasks.process(4242), 3) == ""


def test_the_idle_task_and_tasks_that_are_being_taken_apart_have_names(nobody: Heard) -> None:
    assert nobody.name(0) == "swapper"
    assert nobody.name(NO_PID) == "(exiting)"


def test_in_a_container_the_processes_of_others_do_not_pass_for_the_idle_task(nobody: Heard) -> None:
    """All of them have the number 0 there."""
    nobody.batch(
        made.comm(0, 0, b"others", 1, by_exec=True), made.mmap2(0, 0x1000, 9, b"/x", 2), made.exit_of(0, 3), sampled=(0,)
    )
    nobody.batch(made.fork(11, 0, 4), sampled=(0, 11))
    assert nobody.name(0) == "swapper"
    assert nobody.mapped(0) == []
    assert nobody.name(11) == ""


def test_what_was_lost_is_counted(nobody: Heard) -> None:
    nobody.batch(made.lost(5), made.lost(2))
    assert nobody.tasks.lost == 7


def test_a_process_from_before_is_read_from_proc(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("proc/77/stat", "77 (old) one) S 1 " + " ".join(["0"] * 17) + " 500 " + " ".join(["0"] * 30))
    tree.write("proc/77/maps", "1000-2000 r-xp 00000000 08:01 42 /opt/old\n3000-4000 r--p 00000000 08:01 42 /opt/old\n")
    tree.write("proc/77/cgroup", "4:memory:/system.slice/old.service\n0::/system.slice/old.service\n")
    heard = Heard(Root(str(tmp_path)))
    heard.tasks.boot_offset_ns = 1_000_000_000
    process = heard.tasks.process(77)
    assert heard.name(77) == "old) one"
    assert 0 <= 4 * SECOND - process.start < SECOND // 100
    assert heard.tasks.cgroup(process, 9) == "/system.slice/old.service"
    assert process.owner.unit == "old.service"
    process.space.read(Root(str(tmp_path)), heard.images.locate)
    assert heard.mapped(77) == ["/opt/old"]


def test_our_own_threads_have_the_names_that_proc_has() -> None:
    heard = Heard(Root())
    assert heard.name(os.getpid()) == Path("/proc/self/comm").read_text().rstrip("\n")


def test_on_one_hierarchy_a_cgroup_is_known_by_its_number(tmp_path: Path) -> None:
    heard = Heard(Root(str(tmp_path)), unified=True)
    heard.batch(made.cgroup(9, b"/system.slice/short.service"), made.fork(11, 10, 1), sampled=(11,))
    assert heard.tasks.cgroup(heard.tasks.process(11), 9) == "/system.slice/short.service"
    assert heard.tasks.process(11).owner.unit == "short.service"


@pytest.mark.parametrize("number", [-1, 0])
def test_a_number_that_says_no_cgroup_is_not_taken_for_one(tmp_path: Path, number: int) -> None:
    """Before 5.7 every sample says 0."""
    tree = Tree(tmp_path)
    for pid in (77, 78):
        tree.write(f"proc/{pid}/cgroup", f"0::/system.slice/{pid}.service\n")
    heard = Heard(Root(str(tmp_path)), unified=True)
    for pid in (77, 78):
        assert heard.tasks.cgroup(heard.tasks.process(pid), number) == f"/system.slice/{pid}.service"


def test_two_forks_of_unknown_parents_are_in_the_cgroups_of_their_own(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    for pid in (77, 78):
        tree.write(f"proc/{pid}/cgroup", f"0::/system.slice/{pid}.service\n")
    heard = Heard(Root(str(tmp_path)), unified=True)
    heard.batch(made.fork(11, 77, 1), made.fork(12, 78, 2), sampled=(11, 12))
    assert [heard.tasks.process(pid).cgroup for pid in (11, 12)] == ["/system.slice/77.service", "/system.slice/78.service"]


def test_processes_are_bounded_and_those_without_samples_for_longest_go_first(
    nobody: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "MOST_PROCESSES", 4)
    nobody.batch(*(made.comm(pid, pid, b"p%d" % pid, pid) for pid in range(10, 14)), sampled=(10, 11, 12, 13))
    nobody.batch(sampled=(10,))
    nobody.changed.clear()
    nobody.batch(made.comm(14, 14, b"p14", 20), sampled=(14,))
    assert nobody.changed == [11, 14]
    assert [nobody.name(pid) for pid in (10, 12, 13, 14)] == ["p10", "p12", "p13", "p14"]


def test_names_of_threads_are_bounded_and_that_of_the_process_stays(nobody: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MOST_NAMES", 5)
    nobody.batch(*BASH, *(made.comm(10, tid, b"t%d" % tid, tid) for tid in range(100, 130)), sampled=(10,))
    assert len(nobody.tasks.process(10).names) <= 5
    assert nobody.name(10) == "bash"
    assert nobody.name(10, 129) == "t129"
