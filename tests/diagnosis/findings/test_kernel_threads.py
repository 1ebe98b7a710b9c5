"""Which threads are the kernel's own, whatever they are called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnosis.findings import core_saturated, napi_starved
from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.held import Who
from exhume.diagnosis.findings.kernel_threads import is_kernel_thread
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.sources.latency.stalls import Holder
from tests.diagnosis.findings import made
from tests.diagnosis.findings.found import known, only
from tests.diagnosis.findings.made import SECOND

T = Thresholds()
SERVICE = "/system.slice/db.service"
POD = "/kubepods/burstable/pod11111111-2222-3333-4444-555555555555/" + "a" * 64


@pytest.mark.parametrize(
    ("comm", "cgroup", "stack", "kernel"),
    [
        ("irq/128-nvidia", "/", "_nv000 rm_isr_bh irq_thread_fn irq_thread kthread", True),
        ("UVM GPU1 BH", "", "uvm_x _main_loop kthread ret_from_fork", True),
        ("kauditd", "/", "audit_log_end kauditd_thread kthread ret_from_fork ret_from_fork_asm", True),
        ("jbd2/nvme0n1p1-8", "/", "jbd2_journal_commit_transaction kjournald2 kthread", True),
        ("ksmd", "/", "ksm_scan_thread kthread", True),
        ("odd", "/", "something ret_from_fork", True),
        ("rcu-exporter", POD, "mdelay x_ioctl __x64_sys_ioctl", False),
        ("rcu-exporter", "/", "mdelay x_ioctl __x64_sys_ioctl", False),
        ("kworker/0:1", POD, "mem_cgroup_iter shrink_node kthread", False),
        ("vhost-7001", "/", "vhost_worker vhost_task_fn", False),
        ("vhost-7001", "/", "vhost_worker vhost_task_fn ret_from_fork ret_from_fork_asm", False),
        ("iou-sqp-900", "/", "nvme_poll bio_poll io_do_iopoll io_sq_thread ret_from_fork", False),
        ("iou-wrk-900", SERVICE, "io_wq_worker ret_from_fork", False),
        ("sh", "", "schedule_tail ret_from_fork", False),
        ("nobody", "/", "", False),
    ],
)
def test_a_thread_of_the_kernel_is_known_by_its_stack_and_not_by_its_name(
    comm: str, cgroup: str, stack: str, kernel: bool
) -> None:
    assert is_kernel_thread(made.recording(), Who(comm, 130, 130, cgroup), stack.split()) is kernel


def _with_parents(*rows: tuple[int, int, str]) -> Recording:
    recording = made.recording()
    for pid, parent, comm in rows:
        recording["processes"].add(SECOND, pid, 0, 5, parent, comm, "S", 0, 0, 9, "")
    return recording


def test_a_child_of_kthreadd_is_the_kernels_but_for_the_workers_of_older_vhosts() -> None:
    recording = _with_parents((130, 2, "kworker/0:1-events"), (131, 2, "vhost-7001"), (132, 1, "kworker"), (2, 0, "kthreadd"))
    assert is_kernel_thread(recording, Who("kworker/0:1", 130, 130))
    assert not is_kernel_thread(recording, Who("vhost-7001", 131, 131, "/machine.slice/vm.scope"))
    assert is_kernel_thread(recording, Who("vhost-7001", 131, 131))
    assert not is_kernel_thread(recording, Who("kworker", 132, 132))
    assert not is_kernel_thread(recording, Who("came later with that number", 130, 130))


def test_in_a_container_the_second_process_is_any() -> None:
    assert not is_kernel_thread(_with_parents((130, 2, "worker"), (2, 1, "sh")), Who("worker", 130, 130))


@given(
    st.text(max_size=12), st.text(max_size=6), st.lists(st.sampled_from(["kthread", "ret_from_fork", "x", ".", ""]), max_size=5)
)
def test_names_are_any_bytes(comm: str, cgroup: str, stack: list[str]) -> None:
    found = is_kernel_thread(made.recording(), Who(comm, 130, 130, cgroup), stack)
    assert not found or (cgroup in ("", "/") and stack)


def test_a_full_core_says_that_it_is_the_kernels_own_thread_that_fills_it() -> None:
    for cgroup, kernel in (("/", True), (POD, False)):
        recording = made.recording(on=("samples",))
        made.sample(recording, 1.0, 4.0, 2, "ksmd", 130, ("ksm_scan_thread", "kthread"), cgroup=cgroup)
        made.sample(recording, 0.0, 5.0, 1, "trainer", 99, (), kind="user")
        offender = known(only(core_saturated.detect(recording, T), CoreSaturated).facts.offender)
        assert (offender.process, offender.kernel_thread) == (Process("ksmd", 130), kernel)


def test_so_it_is_told_where_there_are_no_samples() -> None:
    for parent, kernel in ((2, True), (1, False)):
        recording = made.recording()
        made.cores(recording, 6.0, {1: [(1.0, 5.0, "system")]})
        for time, ticks in ((0, 0), (6, 400)):
            recording["processes"].add(time * SECOND, 130, 0, 5, parent, "ksmd", "R", 1, 0, ticks, "")
        offender = known(only(core_saturated.detect(recording, T), CoreSaturated).facts.offender)
        assert (offender.process, offender.kernel_thread) == (Process("ksmd", 130), kernel)


def test_a_late_poll_says_so_too() -> None:
    recording = made.recording(on=("cpu", "latency"))
    made.cores(recording, 3.0, {})
    made.stall(
        recording, 2.0, 600, holder=Holder(130, 130, "irq/9-nv"), stack=("os_delay_us", "irq_thread", "kthread"), cgroup="/"
    )
    offender = known(only(napi_starved.detect(recording, T), NapiStarved).facts.offender)
    assert (offender.process, offender.kernel_thread) == (Process("irq/9-nv", 130), True)
