"""Call traces behind a lockup's line, as kernels from 3.10 to 6.x print them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.root import Root
from exhume.imports import journal as journal_json
from exhume.imports.incoming import Ids, Input, Wanted
from exhume.imports.log_text import opened
from exhume.recording.recording import Node, Recording
from exhume.sources.kernel_lines import Joiner, Line
from exhume.sources.kernel_log import KernelLog
from exhume.sources.kernel_traces import MOST_BYTES, MOST_FRAMES, TRACED, TraceFilter

SECOND = 10**9

SOFT_4_19 = """\
watchdog: BUG: soft lockup - CPU#39 stuck for 22s! [kubelet:3021]
Modules linked in: xt_conntrack ena(OE) overlay
CPU: 39 PID: 3021 Comm: kubelet Tainted: G           OEL    4.19.0-13-amd64 #1 Debian 4.19.160-2
Hardware name: Amazon EC2 p3dn.24xlarge/, BIOS 1.0 10/16/2017
RIP: 0010:mem_cgroup_node_nr_lru_pages+0x5e/0x80
Code: 48 8b 04 c5 a0 e2 d1 a5 48 8b 92 80 04 00 00 48 03 14 01
RSP: 0018:ffffb5f54a6a7d88 EFLAGS: 00000246 ORIG_RAX: ffffffffffffff13
RAX: ffff9b3d3f400000 RBX: 0000000000000001 RCX: ffff9b3d00000000
CS:  0010 DS: 0000 ES: 0000 CR0: 0000000080050033
Call Trace:
 mem_cgroup_nr_lru_pages+0x3c/0x60
 memcg_numa_stat_show+0x18f/0x2a0
 ? seq_vprintf+0x30/0x50
 seq_read+0x15f/0x420
 vfs_read+0x91/0x140
 ksys_read+0x57/0xd0
 do_syscall_64+0x53/0x110
 entry_SYSCALL_64_after_hwframe+0x44/0xa9
RIP: 0033:0x4b1ffb
Code: e8 8a 42 fa ff eb 8e
RSP: 002b:000000c0011a5a38 EFLAGS: 00000206 ORIG_RAX: 0000000000000000
"""
READ = "seq_read;vfs_read;ksys_read;do_syscall_64;entry_SYSCALL_64_after_hwframe"
WALK_4_19 = f"mem_cgroup_node_nr_lru_pages;mem_cgroup_nr_lru_pages;memcg_numa_stat_show;{READ}"

SOFT_3_10 = """\
NMI watchdog: BUG: soft lockup - CPU#7 stuck for 23s! [cadvisor:911]
CPU: 7 PID: 911 Comm: cadvisor Not tainted 3.10.0-957.el7.x86_64 #1
RIP: 0010:[<ffffffffb5a3c0f4>]  [<ffffffffb5a3c0f4>] mem_cgroup_iter+0x94/0x2f0
Call Trace:
 [<ffffffffb5a3e1d2>] memcg_stat_show+0x1b2/0x3a0
 [<ffffffffb5a3e0aa>] ? mem_cgroup_read+0xa/0x10
 [<ffffffffb5a71d4b>] seq_read+0x10b/0x3b0
 [<ffffffffb5f74ddb>] system_call_fastpath+0x22/0x27
"""
SOFT_6 = """\
watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [cat:4711]
CPU: 3 UID: 0 PID: 4711 Comm: cat Kdump: loaded Not tainted 6.13.0 #1
RIP: 0010:smp_call_function_many_cond+0x123/0x560
Call Trace:
 <IRQ>
 ? watchdog_timer_fn+0x206/0x290
 ? __hrtimer_run_queues+0x112/0x2a0
 ? sysvec_apic_timer_interrupt+0x6d/0x90
 </IRQ>
 <TASK>
 ? asm_sysvec_apic_timer_interrupt+0x1a/0x20
 ? smp_call_function_many_cond+0x123/0x560
 on_each_cpu_cond_mask+0x24/0x40
 drain_all_stock.part.0+0x9c/0x150 [kernel_extra]
 mem_cgroup_resize_max+0x8a/0x1c0
 </TASK>
 somebody_elses+0x1/0x2
"""
ARM64 = """\
watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [kswapd0:88]
CPU: 12 PID: 88 Comm: kswapd0 Not tainted 5.10.0 #1
pstate: 60400009 (nZCv daif +PAN -UAO)
pc : mem_cgroup_iter+0xb8/0x348
lr : mem_cgroup_iter+0x2c/0x348
Call trace:
 mem_cgroup_iter+0xb8/0x348
 shrink_node+0x1a0/0x4c8
 balance_pgdat+0x2f0/0x5a8
 kswapd+0x120/0x3d0
 kthread+0x118/0x120
 ret_from_fork+0x10/0x18
"""
# The stall is noticed in an interrupt: its own functions are on top, and what it interrupted is told amid the trace.
RCU_5 = """\
rcu: INFO: rcu_sched self-detected stall on CPU
rcu: \t5-....: (5249 ticks this GP) idle=0fe/1/0x4000000000000002 softirq=1/1 fqs=2
\t(t=5250 jiffies g=1 q=1)
NMI backtrace for cpu 5
CPU: 5 PID: 77 Comm: reader Not tainted 5.4.0 #1
Call Trace:
 <IRQ>
 dump_stack+0x6d/0x8b
 nmi_cpu_backtrace.cold+0x14/0x53
 rcu_dump_cpu_stacks+0xaa/0xdc
 rcu_sched_clock_irq.cold+0x1b3/0x3a2
 update_process_times+0x2c/0x60
 tick_sched_timer+0x38/0x80
 hrtimer_interrupt+0x10b/0x240
 smp_apic_timer_interrupt+0x6f/0x140
 apic_timer_interrupt+0xf/0x20
 </IRQ>
RIP: 0010:css_next_descendant_pre+0x2b/0x50
 mem_cgroup_iter+0x120/0x320
 memcg_stat_show+0x1b2/0x3a0
"""
RCU_4 = RCU_5.replace("RIP: 0010:", " ")
RCU_ARM64 = (
    RCU_5[: RCU_5.index(" <IRQ>")]
    + """\
 dump_backtrace+0x0/0x1b0
 show_stack+0x20/0x30
 rcu_dump_cpu_stacks+0xd0/0x108
 rcu_sched_clock_irq+0x7cc/0xd70
 hrtimer_interrupt+0xf4/0x240
 arch_timer_handler_virt+0x3c/0x50
 handle_percpu_devid_irq+0x8c/0x1b4
 handle_domain_irq+0x64/0x90
 gic_handle_irq+0x58/0x128
 call_on_irq_stack+0x20/0x38
 el1_interrupt+0x2c/0x4c
 el1h_64_irq+0x74/0x78
 css_next_descendant_pre+0x2b/0x50 (P)
 mem_cgroup_iter+0x120/0x320
 memcg_stat_show+0x1b2/0x3a0
"""
)
SOFTIRQ = """\
watchdog: BUG: soft lockup - CPU#2 stuck for 21s! [swapper/2:0]
RIP: 0010:nf_conntrack_in+0x12/0x500
Call Trace:
 <IRQ>
 nf_hook_slow+0x3f/0xb0
 net_rx_action+0x13a/0x370
 __do_softirq+0xe1/0x2d6
 common_interrupt+0xf/0xf
 </IRQ>
RIP: 0010:native_safe_halt+0xe/0x10
 default_idle+0x1c/0x130
"""
HUNG = """\
INFO: task kworker/u8:1:123 blocked for more than 120 seconds.
      Not tainted 5.10.0 #1
"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.
task:kworker/u8:1    state:D stack:    0 pid:  123 ppid:     2 flags:0x00004000
Workqueue: writeback wb_workfn (flush-259:0)
Call Trace:
 __schedule+0x282/0x870
 schedule+0x46/0xb0
 io_schedule+0x42/0x70
"""
GUESSED = """\
BUG: soft lockup - CPU#1 stuck for 22s! [x:9]
RIP: 0010:mem_cgroup_iter+0xb8/0x348
Call Trace:
 ? shrink_node+0x1a0/0x4c8
 ? kswapd+0x120/0x3d0
"""


def told(text: str) -> list[Line]:
    return Joiner().join((SECOND + i, line) for i, line in enumerate(text.splitlines()))


def stacks(lines: list[Line]) -> list[str | None]:
    return [line.event.get("stack") for line in lines]


@pytest.mark.parametrize(
    ("text", "stack"),
    [
        (SOFT_4_19, WALK_4_19),
        (SOFT_3_10, "mem_cgroup_iter;memcg_stat_show;seq_read;system_call_fastpath"),
        (SOFT_6, "smp_call_function_many_cond;on_each_cpu_cond_mask;drain_all_stock.part.0;mem_cgroup_resize_max"),
        (ARM64, "mem_cgroup_iter;shrink_node;balance_pgdat;kswapd;kthread;ret_from_fork"),
        (SOFTIRQ, "nf_conntrack_in;nf_hook_slow;net_rx_action;__do_softirq;common_interrupt;native_safe_halt;default_idle"),
        (HUNG, "__schedule;schedule;io_schedule"),
        (GUESSED, "mem_cgroup_iter;shrink_node;kswapd"),
    ],
)
def test_the_functions_of_a_trace_are_the_stack_of_its_event(text: str, stack: str) -> None:
    assert stacks(told(text)) == [stack]


@pytest.mark.parametrize("text", [RCU_5, RCU_4, RCU_ARM64])
def test_what_the_detector_interrupted_is_told_and_not_the_detector(text: str) -> None:
    head, cpu = told(text)
    assert head.event.kind == "rcu-stall"
    assert cpu.event.get("stack") == "css_next_descendant_pre;mem_cgroup_iter;memcg_stat_show"
    assert (cpu.event.get("comm"), cpu.event.get("pid")) == ("reader", "77")


def test_the_line_itself_stays_as_it_was() -> None:
    (line,) = told(SOFT_4_19)
    assert line.message == SOFT_4_19.splitlines()[0]
    assert (line.event.get("cpu"), line.event.get("comm"), line.event.get("seconds")) == ("39", "kubelet", "22")


def test_two_cores_that_print_one_after_the_other_have_their_own_traces() -> None:
    lines = [*SOFT_4_19.splitlines()[:1], *SOFT_6.splitlines()[:1], *SOFT_4_19.splitlines()[1:], *SOFT_6.splitlines()[1:]]
    first, second = told("\n".join(lines))
    assert first.event.get("stack") == WALK_4_19
    assert str(second.event.get("stack")).startswith("smp_call_function_many_cond;on_each_cpu_cond_mask;")


def test_the_line_of_another_core_amid_a_trace_does_not_take_the_rest_of_it() -> None:
    one, other = SOFT_4_19.splitlines(), SOFT_3_10.splitlines()
    first, second = told("\n".join([*one[:12], other[0], *one[12:], *other[1:]]))
    assert first.event.get("stack") == WALK_4_19
    assert second.event.get("stack") == "mem_cgroup_iter;memcg_stat_show;seq_read;system_call_fastpath"


def test_the_trace_of_a_core_that_nobody_asked_about_is_nobodys() -> None:
    bystander = SOFT_4_19.replace("CPU: 39 PID", "CPU: 40 PID")
    assert stacks(told(bystander)) == [None]


def test_of_two_dumps_the_first_is_of_the_moment() -> None:
    assert stacks(told(SOFT_4_19 + "NMI backtrace for cpu 39\n" + "\n".join(ARM64.splitlines()[5:]))) == [WALK_4_19]


def test_a_trace_that_comes_with_the_next_batch_is_an_event_that_says_whose_it_is() -> None:
    lines = [(SECOND + i, line) for i, line in enumerate(SOFT_4_19.splitlines())]
    joiner = Joiner()
    (first,) = joiner.join(lines[:12])
    assert first.event.get("stack") == ";".join(WALK_4_19.split(";")[:3])
    (rest,) = joiner.join(lines[12:])
    assert (rest.event.kind, rest.event.get("of"), rest.event.get("of_ns")) == ("call-trace", "soft-lockup", str(SECOND))
    assert (rest.event.get("stack"), rest.event.get("cpu")) == (WALK_4_19, "39")
    assert joiner.join([]) == []


def test_a_frame_much_later_is_not_of_that_trace() -> None:
    joiner = Joiner()
    (line,) = joiner.join([(0, SOFT_4_19.splitlines()[0]), (60 * SECOND, "Call Trace:"), (60 * SECOND, " f+0x1/0x2")])
    assert line.event.get("stack") is None


def test_a_trace_without_end_is_cut() -> None:
    frames = "\n".join(f" {'f' * 100}{i}+0x1/0x2" for i in range(500))
    (stack,) = stacks(told(f"{SOFT_4_19.splitlines()[0]}\nCall Trace:\n{frames}"))
    assert stack is not None
    assert 1 < stack.count(";") + 1 <= MOST_FRAMES
    assert len(stack) <= MOST_BYTES


# Through the readers: the lines of a trace say nothing by themselves, and must pass their filters.


def test_the_live_log_keeps_the_trace(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    records = "".join(f"6,{i},{5_000_000 + i},-;{line}\n" for i, line in enumerate(SOFT_4_19.splitlines()))
    (tmp_path / "dev/kmsg").write_text(records + "6,99,6000000,-; of_no_trace+0x1/0x2\n")
    recording = Recording(Node("", "", "", "", 0))
    KernelLog(Root(str(tmp_path))).read(recording, 1)
    (row,) = recording["events"].rows()
    assert dict(row["fields"])["stack"] == WALK_4_19


@pytest.mark.parametrize("head", ["[ 5000.{:06}] ", "Nov 16 10:00:00 node-7 kernel: [ 5000.{:06}] "])
def test_an_imported_log_keeps_the_trace(tmp_path: Path, head: str) -> None:
    file = tmp_path / "log"
    noise = [f"usb 1-{i}: new device" for i in range(30)]
    file.write_text("".join(head.format(i) + line + "\n" for i, line in enumerate([*noise, *SOFT_4_19.splitlines(), *noise])))
    source = Input(str(file))
    try:
        (batch,) = opened(source, Wanted()).batches(Ids())
    finally:
        source.close()
    (row,) = batch["events"].rows()
    assert dict(row["fields"])["stack"] == WALK_4_19


def test_an_imported_journal_keeps_the_trace(tmp_path: Path) -> None:
    file = tmp_path / "journal.json"
    entries = [
        {"__REALTIME_TIMESTAMP": f"{1_794_700_000_000_000 + i}", "__MONOTONIC_TIMESTAMP": f"{5_000_000 + i}",
         "_BOOT_ID": "a" * 32,
         "_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "_SOURCE_MONOTONIC_TIMESTAMP": f"{5_000_000 + i}", "MESSAGE": line}
        for i, line in enumerate(SOFT_4_19.splitlines())
    ]  # fmt: skip
    file.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    source = Input(str(file))
    try:
        (batch,) = journal_json.opened(source, Wanted()).batches(Ids())
    finally:
        source.close()
    (row,) = batch["events"].rows()
    assert dict(row["fields"])["stack"] == WALK_4_19


def test_no_line_is_taken_for_a_trace_before_one_was_opened_or_long_after() -> None:
    lines = TraceFilter()
    frame = b" mem_cgroup_iter+0x1/0x2"
    assert not lines.takes(frame)
    lines.opened(SOFT_4_19.splitlines()[0].encode())
    assert lines.takes(frame)
    assert not lines.takes(b"usb 1-1: new device")
    for _ in range(1000):
        lines.takes(b"usb 1-1: new device")
    assert not lines.takes(frame)


_ALL = [line for text in (SOFT_4_19, SOFT_3_10, SOFT_6, ARM64, RCU_5, SOFTIRQ, HUNG) for line in text.splitlines()]


@given(st.lists(st.one_of(st.sampled_from(_ALL), st.text(max_size=40), st.sampled_from(_ALL).flatmap(
    lambda line: st.integers(0, len(line)).map(lambda cut: line[:cut])
)), max_size=60))  # fmt: skip
def test_lines_in_any_order_cut_anywhere_give_bounded_stacks_of_names(lines: list[str]) -> None:
    for line in Joiner().join(enumerate(lines)):
        stack = line.event.get("stack")
        if stack is not None:
            assert line.event.kind in TRACED
            assert len(stack.encode()) <= MOST_BYTES
            assert all(name and name.isascii() and " " not in name for name in stack.split(";"))


@given(st.binary(max_size=80))
def test_the_filter_takes_any_bytes(raw: bytes) -> None:
    lines = TraceFilter()
    lines.opened(b"BUG: soft lockup - CPU#1")
    assert lines.takes(raw) in (True, False)
    assert lines.armed > 0
