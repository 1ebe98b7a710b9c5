"""Time in the kernel's walk over memory cgroups: whose, through what, where, and when it is too much."""

import random
from dataclasses import replace

import pytest

from exhume.diagnosis.findings import memcg_walk
from exhume.diagnosis.findings.kernel_work import FLUSH, WALK, work
from exhume.diagnosis.findings.memcg_walk import MemcgWalk
from exhume.diagnosis.findings.model import Finding, of
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.findings.walk_families import family, through
from exhume.recording.recording import Recording
from tests.diagnosis.findings import made
from tests.diagnosis.findings.found import known, only
from tests.diagnosis.findings.made import SECOND

T = Thresholds()
READ = "seq_read vfs_read ksys_read do_syscall_64 entry_SYSCALL_64_after_hwframe"
WRITE = "kernfs_fop_write_iter vfs_write ksys_write do_syscall_64"
NUMA_STAT = tuple(f"mem_cgroup_nr_lru_pages memcg_numa_stat_show {READ}".split())
KUBELET = "/system.slice/kubelet.service"


@pytest.mark.parametrize(
    ("stack", "kind", "way"),
    [
        (f"mem_cgroup_nr_lru_pages memcg_numa_stat_show {READ}", "numa_stat", "memory.numa_stat"),
        (f"mem_cgroup_node_nr_lru_pages.isra.0 mem_cgroup_nr_lru_pages {READ}", "numa_stat", "a read()"),
        (f"mem_cgroup_iter memcg_stat_show {READ}", "memory.stat", "memory.stat"),
        (f"mem_cgroup_node_nr_lru_pages mem_cgroup_nr_lru_pages memcg_stat_show {READ}", "memory.stat", "memory.stat"),
        (f"css_next_descendant_pre memcg_sum_events memcg_stat_show {READ}", "memory.stat", "memory.stat"),
        (f"cgroup_rstat_flush_locked mem_cgroup_flush_stats memory_stat_show {READ}", "rstat flush", "memory.stat"),
        (f"css_rstat_flush mem_cgroup_flush_stats memcg_stat_show {READ}", "rstat flush", "memory.stat"),
        (f"cgroup_rstat_flush cpu_stat_show {READ}", "rstat flush", "cpu.stat"),
        ("css_rstat_flush flush_memcg_stats_dwork process_one_work", "rstat flush", "the kernel's own flush every 2 s"),
        (f"mem_cgroup_iter shrink_node try_to_free_mem_cgroup_pages memory_reclaim {WRITE}", "reclaim", "memory.reclaim"),
        (f"mem_cgroup_iter shrink_node try_to_free_mem_cgroup_pages mem_cgroup_force_empty_write {WRITE}",
         "reclaim", "memory.force_empty"),
        ("shrink_slab drop_slab_node drop_slab drop_caches_sysctl_handler proc_sys_call_handler", "reclaim", "drop_caches"),
        ("mem_cgroup_iter shrink_node_memcgs shrink_node balance_pgdat kswapd kthread", "reclaim", "kswapd"),
        ("mem_cgroup_iter shrink_node try_to_free_pages __alloc_pages_slowpath do_anonymous_page handle_mm_fault",
         "reclaim", "direct reclaim"),
        ("mem_cgroup_iter try_to_free_mem_cgroup_pages try_charge_memcg charge_memcg handle_mm_fault exc_page_fault",
         "charge/limit", "a page fault, charged against its limit"),
        ("mem_cgroup_iter try_to_free_mem_cgroup_pages try_charge mem_cgroup_try_charge add_to_page_cache_lru ext4_readpages",
         "charge/limit", "a charge against its limit"),
        ("mem_cgroup_iter shrink_node reclaim_high mem_cgroup_handle_over_high exit_to_user_mode_loop",
         "charge/limit", "memory.high, which it is above"),
        ("mem_cgroup_iter somewhere_else", "reclaim", ""),
    ],
)  # fmt: skip
def test_a_walk_has_a_family_and_something_that_it_was_asked_through(stack: str, kind: str, way: str) -> None:
    names = stack.split()
    assert work(names) in (WALK, FLUSH)
    assert family(names, work(names)) == kind
    assert through(names) == way


def sampled(cpus: int = 4) -> Recording:
    recording = made.recording(cpus=cpus, on=("cpu", "samples"))
    made.sample(recording, 0.0, 10.0, 0, "trainer", 99, (), kind="user")
    return recording


def one(recording: Recording) -> Finding[MemcgWalk]:
    return only(memcg_walk.detect(recording, T), MemcgWalk)


def test_who_walked_how_long_through_what_and_on_which_core() -> None:
    recording = sampled()
    made.sample(recording, 2.0, 4.0, 2, "kubelet", 12, NUMA_STAT, cgroup=KUBELET)
    made.sample(recording, 4.0, 4.5, 2, "kubelet", 12, ("futex_wake", "do_futex"), cgroup=KUBELET)
    made.sample(recording, 7.0, 7.2, 1, "kubelet", 12, NUMA_STAT, cgroup=KUBELET)
    finding = one(recording)
    facts, walker = finding.facts, finding.facts.walker
    assert (finding.kind, finding.subject, finding.severity) == ("memcg-walk", "kubelet.service", "warning")
    assert (walker.process, walker.cgroup, walker.unit) == (Process("kubelet", 12), KUBELET, "kubelet.service")
    assert abs(facts.walked_ms - 2_200) <= 25
    assert abs(facts.longest_ms - 2_000) <= 25
    assert abs(known(facts.samples_ratio) - 2.2 / 2.7) < 0.01
    assert facts.core == 2
    assert abs(known(facts.core_ratio) - 2.0 / 2.5) < 0.01
    assert (facts.family, facts.through) == ("numa_stat", "memory.numa_stat")
    assert facts.function == "mem_cgroup_nr_lru_pages"
    assert facts.stack[:3] == ("mem_cgroup_nr_lru_pages", "memcg_numa_stat_show", "seq_read")
    assert [span.core for span in finding.spans] == [2, 1]
    assert abs(finding.start - 2 * SECOND) < 0.02 * SECOND
    assert abs(finding.end - 7.2 * SECOND) < 0.02 * SECOND
    assert "kubelet [12] walked memory cgroups for 2," in finding.summary


def on(kernel: str) -> Recording:
    """The same node, with another kernel."""
    recording = sampled()
    recording.node = replace(recording.node, kernel=kernel)
    return recording


def test_reading_a_counter_is_no_walk_unless_this_kernel_is_seen_to_walk_for_it() -> None:
    recording = on("5.15.0-91-generic")
    made.sample(recording, 2.0, 4.0, 2, "kubelet", 12, NUMA_STAT, cgroup=KUBELET)
    made.sample(recording, 5.0, 5.5, 2, "kubelet", 12, ("mem_cgroup_iter", "shrink_node", "try_to_free_pages"), cgroup=KUBELET)
    assert abs(one(recording).facts.walked_ms - 500) <= 25
    made.sample(recording, 4.0, 4.1, 2, "kubelet", 12, ("mem_cgroup_iter", *NUMA_STAT[1:]), cgroup=KUBELET)
    assert abs(one(recording).facts.walked_ms - 2_600) <= 50


def test_stalls_and_traces_know_the_kernel_too() -> None:
    for kernel, found in (("5.4.0", 1), ("5.15.0", 0)):
        recording = made.recording(on=("cpu", "latency"))
        recording.node = replace(recording.node, kernel=kernel)
        made.cores(recording, 3.0, {})
        made.stall(recording, 2.0, 600, samples=(54, 60), stack=NUMA_STAT)
        assert len(memcg_walk.detect(recording, T).findings) == found


def test_a_thread_of_the_kernel_that_walks_is_told_as_one() -> None:
    recording = sampled()
    walk = ("mem_cgroup_iter", "shrink_node", "balance_pgdat", "kswapd", "kthread", "ret_from_fork")
    made.sample(recording, 2.0, 4.0, 2, "kswapd0", 88, walk)
    made.sample(recording, 2.0, 4.0, 1, "kubelet", 12, NUMA_STAT, cgroup=KUBELET)
    walkers = [finding.facts.walker for finding in of(memcg_walk.detect(recording, T).findings, MemcgWalk)]
    assert {walker.process: walker.kernel_thread for walker in walkers} == {
        Process("kswapd0", 88): True,
        Process("kubelet", 12): False,
    }


def test_threads_of_a_process_are_one_and_so_are_runs_of_a_program() -> None:
    recording = sampled()
    for i in range(5):
        made.sample(recording, 1.0 + i, 1.2 + i, i % 4, "cadvisor", 20 + i, NUMA_STAT, cgroup="/docker/x")
    finding = one(recording)
    assert finding.facts.walker.process == Process("cadvisor", 24, more=4)
    assert finding.subject == "cadvisor [24 and 4 more]"
    assert abs(finding.facts.walked_ms - 1_000) <= 55


def test_each_program_that_asks_has_its_own_finding_the_longest_first() -> None:
    recording = sampled()
    made.sample(recording, 1.0, 2.0, 1, "cadvisor", 20, NUMA_STAT, cgroup="/system.slice/cadvisor.service")
    made.sample(recording, 1.0, 4.0, 2, "kubelet", 12, NUMA_STAT, cgroup=KUBELET)
    found = memcg_walk.detect(recording, T).findings
    assert [finding.subject for finding in found] == ["kubelet.service", "cadvisor.service"]


def test_readers_that_wait_for_each_other_are_told_apart_from_one_that_walks() -> None:
    recording = sampled()
    flush = tuple(f"cgroup_rstat_flush_locked mem_cgroup_flush_stats memory_stat_show {READ}".split())
    made.sample(recording, 1.0, 4.0, 1, "cadvisor", 20, flush, cgroup="/system.slice/cadvisor.service")
    made.sample(recording, 1.0, 4.0, 2, "kubelet", 12, ("native_queued_spin_lock_slowpath", *flush), cgroup=KUBELET)
    walks, waits = of(memcg_walk.detect(recording, T).findings, MemcgWalk)
    assert (walks.facts.lock_ratio, waits.facts.lock_ratio) == (0.0, 1.0)
    assert walks.facts.walkers == waits.facts.walkers == 2
    assert "waiting for a lock" in waits.summary
    assert "waiting for a lock" not in walks.summary


def test_short_walks_now_and_then_are_information_and_many_in_a_second_a_warning() -> None:
    seldom, often = sampled(), sampled()
    for i in range(9):
        made.sample(seldom, 1.0 + i, 1.05 + i, 1, "kubelet", 12, NUMA_STAT, cgroup=KUBELET)
        made.sample(often, 1.0 + i / 9, 1.05 + i / 9, 1, "kubelet", 12, NUMA_STAT, cgroup=KUBELET)
    assert one(seldom).severity == "info"
    assert one(often).severity == "warning"


def test_less_than_is_worth_telling_rules_it_out_with_the_number() -> None:
    recording = sampled()
    assert memcg_walk.detect(recording, T).ruled_out == "none of the 990 stack samples shows one"
    made.sample(recording, 1.0, 1.1, 1, "kubelet", 12, NUMA_STAT, cgroup=KUBELET)
    assert memcg_walk.detect(recording, T).ruled_out == "most by kubelet with 101 ms"


def test_what_an_interrupt_did_and_reclaim_that_finds_pages_are_no_walks() -> None:
    recording = sampled()
    on_top = ("ena_io_poll", "net_rx_action", "handle_softirqs", "common_interrupt", *NUMA_STAT)
    made.sample(recording, 1.0, 3.0, 1, "kubelet", 12, on_top, kind="softirq", cgroup=KUBELET)
    made.sample(recording, 1.0, 3.0, 2, "kswapd0", 50, ("shrink_inactive_list", "shrink_lruvec", "shrink_node", "kswapd"))
    assert not memcg_walk.detect(recording, T).findings


def test_a_check_has_only_the_stacks_of_stalls() -> None:
    recording = made.recording(on=("cpu", "latency"))
    made.cores(recording, 3.0, {})
    assert memcg_walk.detect(recording, T).ruled_out == "none of the stalls shows one"
    made.stall(recording, 2.0, 600, samples=(54, 60))
    finding = one(recording)
    facts = finding.facts
    assert (finding.subject, finding.severity) == ("kubelet.service", "warning")
    assert (facts.walked_ms, facts.core) == (540, 1)
    assert facts.core_ratio == pytest.approx(0.9, abs=0.0005)
    assert (facts.family, facts.through) == ("reclaim", "direct reclaim")
    assert facts.samples_ratio is None
    assert [span.core for span in finding.spans] == [1]


def test_without_samples_and_probes_nothing_was_seen() -> None:
    assert memcg_walk.detect(made.recording(on=("cpu",)), T).unseen == "samples was not read"


@pytest.mark.ci
def test_the_order_of_the_rows_does_not_matter() -> None:
    recording, shuffled = sampled(), sampled()
    for i in range(6):
        made.sample(recording, 1.0 + i, 1.5 + i, i % 3, f"reader{i % 2}", 20 + i, NUMA_STAT)
    for name in ("samples", "stacks", "frames", "threads"):
        rows = [row for row in recording[name].rows() if row not in list(shuffled[name].rows())]
        random.Random(1).shuffle(rows)
        for row in rows:
            shuffled[name].add(*row.values())
    assert memcg_walk.detect(recording, T) == memcg_walk.detect(shuffled, T)


@pytest.mark.parametrize(("groups", "severity"), [(60, "info"), (60_000, "warning")])
def test_few_groups_are_walked_in_no_time_whoever_is_seen_there(groups: int, severity: str) -> None:
    recording = sampled()
    recording["memcg"].add(0, "/", 60, groups - 60, groups, "proc-cgroups", "node", 1)
    made.sample(recording, 1.0, 6.0, 1, "backup", 50, tuple("mem_cgroup_iter shrink_node balance_pgdat kswapd kthread".split()))
    assert one(recording).severity == severity
