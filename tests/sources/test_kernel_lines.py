"""Every known form of a line, old and new, as the kernel prints it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.sources.kernel_event import Event
from exhume.sources.kernel_forms import ENA_RESET_REASONS
from exhume.sources.kernel_lines import FORMS, KINDS, Joiner, classify, interesting

ENA = "ena 0000:20:03.0 eth0: "
ENA_FIELDS = {"driver": "ena", "pci": "0000:20:03.0", "device": "eth0"}

NIC = [
    # ENA, from the oldest form to the newest
    (ENA + "Transmit time out", "nic-tx-timeout", {}),
    (ENA + "TX timeout on invalid queue 77", "nic-tx-timeout", {"queue": "77"}),
    (ENA + "timeout was called, but no offending queue was found", "nic-tx-timeout", {}),
    (
        ENA + "TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1",
        "nic-queue-paused",
        {"queue": "5", "threshold_ms": "5000", "napi_age_ms": "6596", "napi_scheduled": "1"},
    ),
    (
        ENA + "TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1. "
        "msecs since last interrupt: 6600",
        "nic-queue-paused",
        {
            "queue": "5",
            "threshold_ms": "5000",
            "napi_age_ms": "6596",
            "napi_scheduled": "1",
            "interrupt_age_ms": "6600",
        },
    ),
    (
        ENA + "TX q 5 is paused for too long (threshold 5000000). usecs since napi 6596000. napi scheduled: 1. "
        "napi CPU: 39. msecs since interrupt: 6600",
        "nic-queue-paused",
        {
            "queue": "5",
            "threshold_ms": "5000",
            "napi_age_ms": "6596",
            "napi_scheduled": "1",
            "cpu": "39",
            "interrupt_age_ms": "6600",
        },
    ),
    (
        ENA + "napi handler hasn't been called for a long time but is scheduled",
        "nic-napi-late",
        {"reset_reason": "suspected-poll-starvation"},
    ),
    (
        ENA + "Found a Tx that wasn't completed on time, qid 4, index 219.",
        "nic-tx-not-completed",
        {"queue": "4", "index": "219"},
    ),
    (
        ENA + "Found a Tx that wasn't completed on time, qid 4, index 219. 5044000 usecs have passed since last napi "
        "execution. Missing Tx timeout value 5000 msecs",
        "nic-tx-not-completed",
        {"queue": "4", "index": "219", "napi_age_ms": "5044", "threshold_ms": "5000"},
    ),
    (
        ENA + "TX hasn't completed, qid 4, index 219. 5044000 usecs from last napi execution, napi scheduled: 1",
        "nic-tx-not-completed",
        {"queue": "4", "index": "219", "napi_age_ms": "5044", "napi_scheduled": "1"},
    ),
    (
        ENA + "TX hasn't completed, qid 4, index 219. 10052 msecs since last interrupt, 10044 msecs since last napi "
        "execution, napi scheduled: 1",
        "nic-tx-not-completed",
        {"queue": "4", "index": "219", "interrupt_age_ms": "10052", "napi_age_ms": "10044", "napi_scheduled": "1"},
    ),
    (
        ENA + "TX hasn't completed, qid: 4, index: 219, 10052 msecs since interrupt, 10044 msecs since napi, napi scheduled: 0",
        "nic-tx-not-completed",
        {"queue": "4", "index": "219", "interrupt_age_ms": "10052", "napi_age_ms": "10044", "napi_scheduled": "0"},
    ),
    (
        ENA + "[1/2] 12 new missed TX completions, qid: 4, 10052 msecs since interrupt, 10044 msecs since napi, "
        "napi scheduled: 1",
        "nic-tx-not-completed",
        {"missed": "12", "queue": "4", "interrupt_age_ms": "10052", "napi_age_ms": "10044", "napi_scheduled": "1"},
    ),
    (
        ENA + "[2/2] qid: 4, highest TX completion pending time (msec): 10230, napi sched changes: 0, napi CPU: 39",
        "nic-queue-cpu",
        {"queue": "4", "pending_ms": "10230", "napi_sched_changes": "0", "cpu": "39"},
    ),
    (
        ENA + "The number of lost tx completions is above the threshold (361 > 128). Reset the device",
        "nic-tx-lost",
        {"lost": "361", "lost_threshold": "128"},
    ),
    (
        ENA + "Lost TX completions are above the threshold (361 > 128). Completion transmission timeout: 5000.",
        "nic-tx-lost",
        {"lost": "361", "lost_threshold": "128", "threshold_ms": "5000"},
    ),
    (
        ENA + "[1/2] Lost TX completions are above threshold (361 > 128), completion timeout: 5000 (msec), "
        "10052 msecs since interrupt, 10044 msecs since napi, qid: 4",
        "nic-tx-lost",
        {
            "lost": "361",
            "lost_threshold": "128",
            "threshold_ms": "5000",
            "interrupt_age_ms": "10052",
            "napi_age_ms": "10044",
            "queue": "4",
        },
    ),
    (ENA + "[2/2] qid: 39, napi CPU: 4", "nic-queue-cpu", {"printed_qid": "39", "printed_cpu": "4"}),
    (ENA + "Keep alive watchdog timeout.", "nic-keepalive-lost", {}),
    (
        ENA + "Keep alive watchdog timeout, 6544 msecs since last keep alive.",
        "nic-keepalive-lost",
        {"keepalive_age_ms": "6544"},
    ),
    (ENA + "ENA admin queue is not in running state!", "nic-admin-queue-down", {}),
    (
        ENA + "Potential MSIX issue on Tx side Queue = 3. Reset the device",
        "nic-interrupt-lost",
        {"direction": "Tx", "queue": "3"},
    ),
    (ENA + "Trigger refill for ring 7", "nic-rx-ring-empty", {"queue": "7"}),
    (ENA + "FW isn't responsive, skipping reset routine", "nic-firmware-silent", {}),
    (ENA + "Trigger reset is on", "nic-reset-triggered", {}),
]

DEVICE_ONLY = [
    ("ena 0000:20:03.0: Reset attempt failed. Can not reset the device", "nic-reset-failed", {}),
    (
        "ena 0000:20:03.0: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g",
        "nic-reset-done",
        {"driver_version": "2.11.0g"},
    ),
    ("ena 0000:20:03.0: Device reset completed successfully", "nic-reset-done", {}),
    (
        "ena 0000:20:03.0: Device reset completed, status: 0, Driver info: Elastic Network Adapter (ENA) v2.17.0g\n",
        "nic-reset-done",
        {"status": "0", "driver_version": "2.17.0g"},
    ),
    (
        "ena 0000:20:03.0: Device reset completed, status: -19, Driver info: Elastic Network Adapter (ENA) v2.13.1g",
        "nic-reset-failed",
        {"status": "-19", "driver_version": "2.13.1g"},
    ),
]

OTHER_NICS = [
    (
        (
            "mlx5_core 0000:3b:00.0 enp59s0f0: TX timeout on queue: 5, SQ: 0x1c2, CQ: 0x84, SQ Cons: 0x0 SQ Prod: 0x3f, "
            "usecs since last trans: 15672000"
        ),
        "nic-tx-timeout",
        "enp59s0f0",
        {"driver": "mlx5_core", "pci": "0000:3b:00.0", "device": "enp59s0f0", "queue": "5", "tx_age_ms": "15672"},
    ),
    (
        "mlx5_core 0000:3b:00.0 enp59s0f0: TX timeout on queue: 5, SQ: 0x1c2, CQ: 0x84, SQ Cons: 0x0 SQ Prod: 0x3f",
        "nic-tx-timeout",
        "enp59s0f0",
        {"driver": "mlx5_core", "pci": "0000:3b:00.0", "device": "enp59s0f0", "queue": "5"},
    ),
    (
        "mlx5_core 0000:3b:00.0 enp59s0f0: TX timeout detected",
        "nic-tx-timeout",
        "enp59s0f0",
        {"driver": "mlx5_core", "pci": "0000:3b:00.0", "device": "enp59s0f0"},
    ),
    (
        "virtio_net virtio0 eth0: TX timeout on queue: 1, sq: output.1, vq: 0x3, name: output.1, 5284000 usecs ago",
        "nic-tx-timeout",
        "eth0",
        {"driver": "virtio_net", "bus": "virtio0", "device": "eth0", "queue": "1", "tx_age_ms": "5284"},
    ),
    (
        (
            "ixgbe 0000:01:00.0 eth2: Detected Tx Unit Hang\n  Tx Queue             <3>\n  TDH, TDT             <1f>, <2e>\n"
            "  next_to_use          <2e>\n  next_to_clean        <1f>"
        ),
        "nic-tx-hang",
        "eth2",
        {"driver": "ixgbe", "pci": "0000:01:00.0", "device": "eth2", "queue": "3"},
    ),
    (
        "ixgbe 0000:01:00.0 eth2: Detected Tx Unit Hang (XDP)\n  Tx Queue             <3>\n",
        "nic-tx-hang",
        "eth2",
        {"driver": "ixgbe", "pci": "0000:01:00.0", "device": "eth2", "queue": "3"},
    ),
    (
        "ixgbe 0000:01:00.0: eth2: Detected Tx Unit Hang",
        "nic-tx-hang",
        "eth2",
        {"driver": "ixgbe", "pci": "0000:01:00.0", "device": "eth2"},
    ),
    (
        "ixgbe 0000:01:00.0 eth2: tx hang 1 detected on queue 3, resetting adapter",
        "nic-reset-triggered",
        "eth2",
        {"driver": "ixgbe", "pci": "0000:01:00.0", "device": "eth2", "queue": "3"},
    ),
    (
        "i40e 0000:3d:00.0 eno1: tx_timeout: VSI_seid: 390, Q 4, NTC: 0x0, HWB: 0x0, NTU: 0x1, TAIL: 0x1, INT: 0x1",
        "nic-tx-timeout",
        "eno1",
        {"driver": "i40e", "pci": "0000:3d:00.0", "device": "eno1", "queue": "4"},
    ),
    (
        "ice 0000:18:00.0 ens801f0: tx_timeout: VSI_num: 11, Q 4, NTC: 0x0, HW_HEAD: 0x0, NTU: 0x1, INT: 0x1",
        "nic-tx-timeout",
        "ens801f0",
        {"driver": "ice", "pci": "0000:18:00.0", "device": "ens801f0", "queue": "4"},
    ),
    (
        "bnxt_en 0000:af:00.0 ens1f0np0: TX timeout detected, starting reset task!",
        "nic-tx-timeout",
        "ens1f0np0",
        {"driver": "bnxt_en", "pci": "0000:af:00.0", "device": "ens1f0np0"},
    ),
    (
        "gve 0000:00:04.0 ens4: Timeout on tx queue, 2",
        "nic-tx-timeout",
        "ens4",
        {"driver": "gve", "pci": "0000:00:04.0", "device": "ens4", "queue": "2"},
    ),
    (
        "NETDEV WATCHDOG: eth0 (ena): transmit queue 5 timed out",
        "nic-tx-timeout",
        "eth0",
        {"driver": "ena", "device": "eth0", "queue": "5"},
    ),
    (
        "NETDEV WATCHDOG: eth0 (): transmit queue 5 timed out 5010 ms",
        "nic-tx-timeout",
        "eth0",
        {"device": "eth0", "queue": "5", "tx_age_ms": "5010"},
    ),
    (
        "mlx5_core 0000:3b:00.0 enp59s0f0: NETDEV WATCHDOG: CPU: 39: transmit queue 5 timed out 15360 ms",
        "nic-tx-timeout",
        "enp59s0f0",
        {
            "driver": "mlx5_core",
            "pci": "0000:3b:00.0",
            "device": "enp59s0f0",
            "watchdog_cpu": "39",
            "queue": "5",
            "tx_age_ms": "15360",
        },
    ),
    (
        "atlantic 0000:05:00.0 enp5s0: NETDEV WATCHDOG: CPU: 1: transmit queue 0 timed out 5008 ms",
        "nic-tx-timeout",
        "enp5s0",
        {
            "driver": "atlantic",
            "pci": "0000:05:00.0",
            "device": "enp5s0",
            "watchdog_cpu": "1",
            "queue": "0",
            "tx_age_ms": "5008",
        },
    ),
]

LOCKUP = {"cpu": "39", "seconds": "22", "comm": "kubelet", "pid": "4242"}
KILLED = (
    "Killed process 4242 (python3) total-vm:9437184kB, anon-rss:8388608kB, file-rss:1024kB, shmem-rss:0kB, "
    "UID:1000 pgtables:16500kB oom_score_adj:985"
)
VICTIM = {"pid": "4242", "comm": "python3", "anon_kb": "8388608", "file_kb": "1024", "shmem_kb": "0"}
KERNEL = [
    ("watchdog: BUG: soft lockup - CPU#39 stuck for 22s! [kubelet:4242]", "soft-lockup", "cpu39", LOCKUP),
    ("NMI watchdog: BUG: soft lockup - CPU#39 stuck for 22s! [kubelet:4242]", "soft-lockup", "cpu39", LOCKUP),
    ("BUG: soft lockup - CPU#39 stuck for 22s! [kubelet:4242]", "soft-lockup", "cpu39", LOCKUP),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 3", "hard-lockup", "cpu3", {"cpu": "3"}),
    ("watchdog: Watchdog detected hard LOCKUP on cpu 3", "hard-lockup", "cpu3", {"cpu": "3"}),
    ("watchdog: CPU7: Watchdog detected hard LOCKUP on cpu 3", "hard-lockup", "cpu3", {"cpu": "3"}),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", "rcu-stall", "node", {"flavour": "sched"}),
    ("INFO: rcu_preempt self-detected stall on CPU", "rcu-stall", "node", {"flavour": "preempt"}),
    (
        "INFO: rcu_sched self-detected stall on CPU { 39}  (t=21000 jiffies g=1 c=0 q=2)",
        "rcu-stall",
        "cpu39",
        {"flavour": "sched", "cpu": "39"},
    ),
    ("rcu: INFO: rcu_sched detected stalls on CPUs/tasks:", "rcu-stall", "node", {"flavour": "sched"}),
    (
        "rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 39-... } 5696 jiffies s: 81 root: 0x1/.",
        "rcu-stall",
        "cpu39",
        {"flavour": "sched", "cpu": "39"},
    ),
    (
        "rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { P4122 } 2641 jiffies s: 2877 root: 0x0/T",
        "rcu-stall",
        "node",
        {"flavour": "preempt"},
    ),
    (
        "rcu: \t39-....: (20999 ticks this GP) idle=64a/1/0x4000000000000002 softirq=4091/4091 fqs=2437",
        "rcu-stall-cpu",
        "cpu39",
        {"cpu": "39", "ticks": "20999"},
    ),
    ("\t39-...!: (1 GPs behind) idle=64a/0/0x3", "rcu-stall-cpu", "cpu39", {"cpu": "39"}),
    (
        "rcu: rcu_sched kthread starved for 21003 jiffies! g4321 f0x0 RCU_GP_WAIT_FQS(5) ->state=0x0 ->cpu=39",
        "rcu-kthread-starved",
        "cpu39",
        {"flavour": "sched", "jiffies": "21003", "cpu": "39"},
    ),
    (
        "rcu_sched kthread starved for 21003 jiffies!",
        "rcu-kthread-starved",
        "node",
        {"flavour": "sched", "jiffies": "21003"},
    ),
    (
        "rcu: rcuc/39 kthread starved for 21003 jiffies",
        "rcu-kthread-starved",
        "cpu39",
        {"cpu": "39", "jiffies": "21003"},
    ),
    (
        "INFO: task kworker/u193:2:1234 blocked for more than 120 seconds.",
        "hung-task",
        "kworker/u193:2",
        {"comm": "kworker/u193:2", "pid": "1234", "seconds": "120"},
    ),
    (
        "INFO: task dd:456 blocked in I/O wait for more than 122 seconds.",
        "hung-task",
        "dd",
        {"comm": "dd", "pid": "456", "seconds": "122", "waits_for": "I/O"},
    ),
    (
        "BUG: workqueue lockup - pool cpus=39 node=0 flags=0x0 nice=0 stuck for 31s!",
        "workqueue-lockup",
        "cpu39",
        {"cpu": "39", "seconds": "31"},
    ),
    (
        "workqueue: drain_local_memcg_stock hogged CPU for >10000us 4 times, consider switching to WQ_UNBOUND",
        "workqueue-hog",
        "drain_local_memcg_stock",
        {"function": "drain_local_memcg_stock", "hog_ms": "10", "count": "4"},
    ),
    (
        "NOHZ tick-stop error: local softirq work is pending, handler #08!!!",
        "softirq-left-pending",
        "08",
        {"softirqs": "08"},
    ),
    (
        "NOHZ tick-stop error: Non-RCU local softirq work is pending, handler #08!!!",
        "softirq-left-pending",
        "08",
        {"softirqs": "08"},
    ),
    ("NOHZ: local_softirq_pending 08", "softirq-left-pending", "08", {"softirqs": "08"}),
    ("Memory cgroup out of memory: " + KILLED, "memcg-oom-kill", "python3", VICTIM),
    (
        "Memory cgroup out of memory: Kill process 4242 (python3) score 1985 or sacrifice child",
        "memcg-oom-kill",
        "python3",
        {"pid": "4242", "comm": "python3"},
    ),
    ("Out of memory: " + KILLED, "oom-kill", "python3", VICTIM),
    (
        "Out of memory: Kill process 4242 (python3) score 985 or sacrifice child",
        "oom-kill",
        "python3",
        {"pid": "4242", "comm": "python3"},
    ),
    (
        "Out of memory (oom_kill_allocating_task): " + KILLED,
        "oom-kill",
        "python3",
        {"pid": "4242", "comm": "python3"},
    ),
    (
        (
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods/pod1,"
            "task_memcg=/kubepods/pod1/abc,task=python3,pid=4242,uid=1000"
        ),
        "oom-summary",
        "python3",
        {
            "constraint": "CONSTRAINT_MEMCG",
            "limit_cgroup": "/kubepods/pod1",
            "cgroup": "/kubepods/pod1/abc",
            "comm": "python3",
            "pid": "4242",
        },
    ),
    (
        (
            "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,"
            "task_memcg=/user.slice,task=python3,pid=4242,uid=1000"
        ),
        "oom-summary",
        "python3",
        {"constraint": "CONSTRAINT_NONE", "cgroup": "/user.slice", "comm": "python3", "pid": "4242"},
    ),
    (
        "python3: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP|__GFP_ZERO)",
        "page-allocation-failure",
        "python3",
        {"comm": "python3", "order": "4"},
    ),
    (
        "cgroup: fork rejected by pids controller in /kubepods/burstable/pod1",
        "fork-rejected",
        "/kubepods/burstable/pod1",
        {"cgroup": "/kubepods/burstable/pod1"},
    ),
    (
        "net_ratelimit: 1523 callbacks suppressed",
        "printk-suppressed",
        "net_ratelimit",
        {"function": "net_ratelimit", "count": "1523"},
    ),
    ("sched: RT throttling activated", "rt-throttled", "node", {}),
    (
        "perf: interrupt took too long (2503 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
        "perf-rate-lowered",
        "node",
        {"took_ns": "2503", "limit_ns": "2500"},
    ),
    ("hrtimer: interrupt took 2500123 ns", "timer-interrupt-slow", "node", {"took_ns": "2500123"}),
    (
        "clocksource: timekeeping watchdog on CPU3: Marking clocksource 'tsc' as unstable because the skew is too large:",
        "clock-unstable",
        "tsc",
        {"clock": "tsc"},
    ),
    ("nf_conntrack: nf_conntrack: table full, dropping packet", "conntrack-full", "node", {}),
    ("nf_conntrack: table full, dropping packet.", "conntrack-full", "node", {}),
    ("TCP: out of memory -- consider tuning tcp_mem", "tcp-memory-full", "node", {}),
]

ALL = (
    [(line, kind, "eth0", ENA_FIELDS | fields) for line, kind, fields in NIC]
    + [(line, kind, "0000:20:03.0", {"driver": "ena", "pci": "0000:20:03.0"} | fields) for line, kind, fields in DEVICE_ONLY]
    + OTHER_NICS
    + KERNEL
)


def as_in_kmsg(text: str) -> bytes:
    """The escapes of /dev/kmsg."""
    return b"".join(b"%c" % c if 32 <= c < 127 and c != 92 else b"\\x%02x" % c for c in text.encode())


def only(lines: list[str]) -> Event:
    joined = Joiner().join(enumerate(lines))
    assert len(joined) == 1
    return joined[0].event


@pytest.mark.parametrize(("line", "kind", "subject", "fields"), ALL, ids=[line[:70] for line, *_ in ALL])
def test_a_known_line_says_what_it_says(line: str, kind: str, subject: str, fields: dict[str, str]) -> None:
    event = classify(line)
    assert event is not None
    assert (event.kind, event.subject, dict(event.fields)) == (kind, subject, fields)
    assert event.severity in ("info", "warning", "critical")


@pytest.mark.parametrize("line", [line for line, *_ in ALL], ids=[line[:70] for line, *_ in ALL])
def test_the_prefilter_lets_every_known_line_pass(line: str) -> None:
    assert interesting(as_in_kmsg(line))


def test_every_kind_has_a_line_here() -> None:
    assert {kind for _, kind, *_ in ALL} == KINDS


def test_no_form_is_hidden_behind_a_shorter_one() -> None:
    for i, form in enumerate(FORMS):
        for earlier in FORMS[:i]:
            if earlier.driver == form.driver:
                assert not form.format.startswith(earlier.format), f"{form.format!r} is never reached"


@pytest.mark.parametrize(
    "raw",
    [
        b"docker0: port 3(veth1234567) entered blocking state",
        b"IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
        b"EXT4-fs (nvme0n1p1): mounted filesystem with ordered data mode. Opts: (null)",
        b"nvme 0000:00:1f.0: I/O 13 QID 2 timeout, aborting",
        b'audit: type=1400 audit(1700000000.000:12): apparmor="ALLOWED"',
        b"Call Trace:",
        b" mem_cgroup_iter+0x1c/0x2a0",
        b"",
    ],
)
def test_the_prefilter_stops_everyday_lines(raw: bytes) -> None:
    assert not interesting(raw)
    assert classify(raw.decode()) is None


@pytest.mark.parametrize(
    "line",
    [
        "ena 0000:20:03.0 eth0: queue_5_tx_cnt: 4056",
        "ena 0000:20:03.0: Elastic Network Adapter (ENA) v2.11.0g",
        "rcu: Hierarchical RCU implementation.",
        "watchdog: Delayed init of the lockup detector failed: -19",
        "INFO: task dd:456 is blocked on a mutex likely owned by task cp:457.",
        "nvme 0000:00:1f.0 eth0: Transmit time out",  # the words of ENA from another driver
    ],
)
def test_a_line_that_only_looks_alike_is_no_event(line: str) -> None:
    assert classify(line) is None


@pytest.mark.parametrize("state", ["uninitialized", "unregistering", "unregistered", "released"])
def test_the_device_is_found_whatever_state_it_is_registered_in(state: str) -> None:
    event = classify(f"ena 0000:20:03.0 eth0 ({state}): Trigger reset is on")
    assert event is not None
    assert (event.subject, event.get("pci")) == ("eth0", "0000:20:03.0")


def test_a_device_without_a_name_goes_by_its_address() -> None:
    event = classify("ena 0000:20:03.0 (unnamed net_device) (uninitialized): Trigger reset is on")
    assert event is not None
    assert (event.subject, event.get("device")) == ("0000:20:03.0", None)


def test_the_cpu_that_noticed_is_not_taken_for_the_starved_one() -> None:
    event = classify("ena 0000:20:03.0 eth0: NETDEV WATCHDOG: CPU: 7: transmit queue 5 timed out 5010 ms")
    assert event is not None
    assert event.get("watchdog_cpu") == "7"
    assert event.get("cpu") is None


def test_a_queue_of_xdp_has_no_cpu() -> None:
    event = classify(
        ENA + "TX q 70 is paused for too long (threshold 5000000). usecs since napi 6596000. napi scheduled: 1. "
        "napi CPU: -1. msecs since interrupt: 6600"
    )
    assert event is not None
    assert event.get("cpu") is None
    assert event.get("interrupt_age_ms") == "6600"


@pytest.mark.parametrize("name", ["a) total-vm:1", "x:1] [y:2", "%s%n", "sh\nINFO: task", ") score 1 (", ":::", ""])
def test_a_process_name_cannot_break_its_line(name: str) -> None:
    killed = classify(f"Out of memory: Killed process 4242 ({name}) total-vm:10kB, anon-rss:1kB")
    locked = classify(f"watchdog: BUG: soft lockup - CPU#39 stuck for 22s! [{name}:4242]")
    hung = classify(f"INFO: task {name}:4242 blocked for more than 120 seconds.")
    for event in (killed, locked, hung):
        assert event is not None
        assert event.get("comm") == (name or None)
        assert event.get("pid") == "4242"


def test_a_cgroup_path_that_quotes_a_driver_is_a_path() -> None:
    path = "/x/\n" + ENA + "Trigger reset is on"
    event = classify("cgroup: fork rejected by pids controller in " + path)
    assert event is not None
    assert (event.kind, event.subject) == ("fork-rejected", path)


def test_the_path_of_a_rejected_fork_may_have_come_in_another_record() -> None:
    event = classify("cgroup: fork rejected by pids controller in ")
    assert event is not None
    assert (event.kind, event.fields) == ("fork-rejected", ())


LOST = ENA + (
    "[1/2] Lost TX completions are above threshold (361 > 128), completion timeout: 5000 (msec), "
    "10052 msecs since interrupt, 10044 msecs since napi, qid: 4"
)


@pytest.mark.parametrize("second", ["[2/2] qid: 39, napi CPU: 4", "[2/2] qid: 4, napi CPU: 39"])
def test_the_swapped_pair_of_ena_2_17_is_put_right_and_a_mended_driver_is_left_alone(second: str) -> None:
    event = only([LOST, ENA + second])
    assert (event.kind, event.get("queue"), event.get("cpu"), event.get("lost")) == ("nic-tx-lost", "4", "39", "361")
    assert event.get("printed_qid") is None


def test_both_lines_stay_as_evidence_in_a_joined_event() -> None:
    (line,) = Joiner().join([(10, LOST), (11, ENA + "[2/2] qid: 39, napi CPU: 4")])
    assert line.time == 10
    assert line.message == LOST + " " + ENA + "[2/2] qid: 39, napi CPU: 4"


def test_the_pair_of_missed_completions_becomes_one_event() -> None:
    event = only(
        [
            ENA + "[1/2] 12 new missed TX completions, qid: 4, 10052 msecs since interrupt, 10044 msecs since napi, "
            "napi scheduled: 1",
            ENA + "[2/2] qid: 4, highest TX completion pending time (msec): 10230, napi sched changes: 0, napi CPU: 39",
        ]
    )
    assert (event.kind, event.get("missed"), event.get("cpu"), event.get("pending_ms")) == (
        "nic-tx-not-completed",
        "12",
        "39",
        "10230",
    )


def test_pairs_of_two_devices_do_not_mix() -> None:
    other = "ena 0000:21:03.0 eth1: "
    first, second = Joiner().join(
        [
            (0, LOST),
            (1, LOST.replace(ENA, other).replace("qid: 4", "qid: 9")),
            (2, other + "[2/2] qid: 50, napi CPU: 9"),
            (3, ENA + "[2/2] qid: 39, napi CPU: 4"),
        ]
    )
    assert (first.event.subject, first.event.get("queue"), first.event.get("cpu")) == ("eth0", "4", "39")
    assert (second.event.subject, second.event.get("queue"), second.event.get("cpu")) == ("eth1", "9", "50")


def test_a_second_half_that_comes_with_the_next_batch_still_names_the_cpu() -> None:
    joiner = Joiner()
    joiner.join([(0, LOST)])
    (line,) = joiner.join([(1, ENA + "[2/2] qid: 39, napi CPU: 4")])
    assert (line.event.kind, line.event.get("queue"), line.event.get("cpu")) == ("nic-queue-cpu", "4", "39")


def test_a_second_half_whose_first_is_gone_accuses_no_cpu() -> None:
    event = only([ENA + "[2/2] qid: 39, napi CPU: 4"])
    assert event.get("queue") is None
    assert event.get("cpu") is None


def test_a_second_half_of_another_queue_is_not_joined() -> None:
    first, second = Joiner().join([(0, LOST), (1, ENA + "[2/2] qid: 39, napi CPU: 7")])
    assert first.event.get("cpu") is None
    assert second.event.get("cpu") is None


def test_a_reset_is_told_of_the_network_device_that_the_lines_before_it_named() -> None:
    done = "ena 0000:20:03.0: Device reset completed successfully, Driver info: Elastic Network Adapter (ENA) v2.11.0g"
    elsewhere = done.replace("0000:20:03.0", "0000:21:03.0")
    lines = Joiner().join([(0, ENA + "Trigger reset is on"), (1, done), (2, elsewhere)])
    assert [line.event.subject for line in lines] == ["eth0", "eth0", "0000:21:03.0"]
    assert lines[1].event.get("device") == "eth0"


SUMMARY = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/kubepods/pod1,"
    "task_memcg=/kubepods/pod1/abc,task=python3,pid=4242,uid=1000"
)


def test_a_kill_is_told_of_the_cgroup_in_the_summary_before_it() -> None:
    _, kill = Joiner().join([(0, SUMMARY), (1, "Memory cgroup out of memory: " + KILLED)])
    assert kill.event.get("cgroup") == "/kubepods/pod1/abc"
    assert kill.event.get("limit_cgroup") == "/kubepods/pod1"


def test_the_kill_of_another_process_gets_no_cgroup() -> None:
    _, kill = Joiner().join([(0, SUMMARY), (1, "Memory cgroup out of memory: " + KILLED.replace("4242", "4243"))])
    assert kill.event.get("cgroup") is None


def test_a_cgroup_named_to_put_the_blame_on_another_leaves_it_open() -> None:
    hostile = SUMMARY.replace("/kubepods/pod1/abc", "/system.slice,task=python3,pid=4242,uid=0/evil")
    _, kill = Joiner().join([(0, hostile), (1, "Memory cgroup out of memory: " + KILLED)])
    assert kill.event.get("cgroup") is None


def test_reset_reasons_have_the_numbers_of_the_driver() -> None:
    assert ENA_RESET_REASONS[1] == "keep-alive"
    assert ENA_RESET_REASONS[3] == "missing-tx-completion"
    assert ENA_RESET_REASONS[14] == "missing-interrupt"
    assert ENA_RESET_REASONS[15] == "suspected-poll-starvation"
    assert sorted(ENA_RESET_REASONS) == list(range(21))


PIECES = st.sampled_from([piece for line, *_ in ALL for piece in line.split(" ")])
BROKEN = st.lists(st.one_of(PIECES, st.text(max_size=12)), max_size=30).map(" ".join)


@given(st.one_of(st.text(), BROKEN))
def test_no_text_whatever_raises(text: str) -> None:
    event = classify(text)
    if event is not None:
        assert event.kind in KINDS
        assert event.subject
        assert list(event.fields) == sorted(event.fields)


@given(st.sampled_from(ALL), st.integers(min_value=0), st.text(max_size=20))
def test_a_line_cut_anywhere_or_followed_by_anything_does_not_raise(
    known: tuple[str, str, str, dict[str, str]], cut: int, tail: str
) -> None:
    line = known[0]
    classify(line[: cut % (len(line) + 1)] + tail)


@given(st.lists(st.sampled_from([line for line, *_ in ALL]), max_size=20))
def test_known_lines_in_any_order_neither_raise_nor_multiply(lines: list[str]) -> None:
    joined = Joiner().join(enumerate(lines))
    assert len(joined) <= len(lines)
    assert [line.time for line in joined] == sorted(line.time for line in joined)


@given(st.binary())
def test_the_prefilter_takes_any_bytes(raw: bytes) -> None:
    assert interesting(raw) in (True, False)
