"""The table of the kernel log lines that tell of a starving node: every form that is known, as its printf format."""

import re
from dataclasses import dataclass, field
from functools import cache

from exhume.recording.recording import Labels, labels

# enum ena_regs_reset_reason_types in ena_regs_defs.h of the ENA driver, as it is handed to the device. The driver prints
# none of them: `ethtool -S` counts some by name, and a few lines below leave only one possible.
ENA_RESET_REASONS = {
    0: "normal",
    1: "keep-alive",
    2: "admin-timeout",
    3: "missing-tx-completion",
    4: "invalid-rx-request-id",
    5: "invalid-tx-request-id",
    6: "too-many-rx-descriptors",
    7: "init-error",
    8: "driver-invalid-state",
    9: "os-trigger",
    10: "netdev-watchdog",
    11: "shutdown",
    12: "user-trigger",
    13: "generic",
    14: "missing-interrupt",
    15: "suspected-poll-starvation",
    16: "rx-descriptor-malformed",
    17: "tx-descriptor-malformed",
    18: "missing-admin-interrupt",
    19: "device-request",
    20: "missing-first-interrupt",
}

ANY = "*"

# How a printf conversion is read back; `p` takes the rest of the line. A comm has at most 15 bytes (TASK_COMM_LEN), of
# up to four characters once decoded: greedy within that bound, so that a bracket or colon in the name does not end it.
_CONVERSIONS = {
    "d": r"-?[0-9]{1,20}",
    "x": r"[0-9a-fA-F]{1,16}",
    "a": r"\w{1,64}",
    "w": r"\S{1,256}",
    "n": r"[^\s()]{0,64}",
    "c": r".{0,64}",
    "s": r".{0,4096}?",
    "p": r".*",
}
_PLACEHOLDER = re.compile(r"\{(\w*)(?::(\w))?\}")


@dataclass(frozen=True, slots=True)
class Form:
    """One printf format: `{name}` is a number, `{name:x}` see _CONVERSIONS, `{}` a value nobody asks for."""

    driver: str
    """Whose netdev_printk or dev_printk it is; ANY for the networking core's; "" for lines that name no device."""
    kind: str
    severity: str
    format: str
    subject: str = "device"
    """The field that says to whom it happened."""
    extra: Labels = ()
    start: str = field(init=False)
    end: str = field(init=False)
    needle: str = field(init=False)
    """The longest fixed part: much cheaper to look for than the expression."""

    def __post_init__(self) -> None:
        fixed = _PLACEHOLDER.sub("\0", self.format).split("\0")
        object.__setattr__(self, "start", fixed[0])
        object.__setattr__(self, "end", fixed[-1])
        object.__setattr__(self, "needle", max(fixed, key=len))

    @property
    def expression(self) -> re.Pattern[str]:
        return _expression(self.format)


@cache
def _expression(template: str) -> re.Pattern[str]:
    """Compiled when first needed: to compile all of them at import would cost every start several milliseconds."""
    parts = []
    position = 0
    for placeholder in _PLACEHOLDER.finditer(template):
        name, conversion = placeholder[1], _CONVERSIONS[placeholder[2] or "d"]
        parts.append(re.escape(template[position : placeholder.start()]))
        parts.append(f"(?P<{name}>{conversion})" if name else conversion)
        position = placeholder.end()
    parts.append(re.escape(template[position:]))
    return re.compile("".join(parts), re.DOTALL | re.ASCII)


def _forms(driver: str, kind: str, severity: str, *formats: str, subject: str = "device") -> tuple[Form, ...]:
    return tuple(Form(driver, kind, severity, format_, subject) for format_ in formats)


# drivers/net/ethernet/amazon/ena/ena_netdev.c and kernel/linux/ena/ena_netdev.c of amzn-drivers. Never ordered by the
# driver's version: 2.2.12 is a late backport and has the strings of 2.12. A longer form stands before its beginning.
_PAUSED = "TX q {queue} is paused for too long (threshold {threshold_us}). "
_NAPI_OLD = "Time since last napi {napi_age_us} usec. napi scheduled: {napi_scheduled}"
_NOT_COMPLETED = "Found a Tx that wasn't completed on time, qid {queue}, index {index}."
_SINCE = "{interrupt_age_ms} msecs since interrupt, {napi_age_ms} msecs since napi"
_LOST = "Lost TX completions are above the threshold ({lost} > {lost_threshold})"
_VERSION = "Driver info: Elastic Network Adapter (ENA) v{driver_version:w}"
_ENA = (
    *_forms(
        "ena",
        "nic-queue-paused",
        "critical",
        # The CPU is where the queue's NAPI ran last (cpu of struct ena_ring): the starved one.
        _PAUSED + "usecs since napi {napi_age_us}. napi scheduled: {napi_scheduled}. napi CPU: {cpu}. "
        "msecs since interrupt: {interrupt_age_ms}",
        _PAUSED + _NAPI_OLD + ". msecs since last interrupt: {interrupt_age_ms}",
        _PAUSED + _NAPI_OLD,
    ),
    Form(
        "ena",
        "nic-napi-late",
        "critical",
        "napi handler hasn't been called for a long time but is scheduled",
        extra=labels(reset_reason=ENA_RESET_REASONS[15]),
    ),
    *_forms(
        "ena",
        "nic-tx-timeout",
        "critical",
        "Transmit time out",
        "TX timeout on invalid queue {queue}",
        "timeout was called, but no offending queue was found",
    ),
    *_forms(
        "ena",
        "nic-tx-not-completed",
        "warning",
        _NOT_COMPLETED + " {napi_age_us} usecs have passed since last napi execution. "
        "Missing Tx timeout value {threshold_ms} msecs",
        _NOT_COMPLETED,
        "TX hasn't completed, qid {queue}, index {index}. {napi_age_us} usecs from last napi execution, "
        "napi scheduled: {napi_scheduled}",
        "TX hasn't completed, qid {queue}, index {index}. {interrupt_age_ms} msecs since last interrupt, "
        "{napi_age_ms} msecs since last napi execution, napi scheduled: {napi_scheduled}",
        # 2.17 prints the single packet with dynamic debug only, and their number always
        "TX hasn't completed, qid: {queue}, index: {index}, " + _SINCE + ", napi scheduled: {napi_scheduled}",
        "[1/2] {missed} new missed TX completions, qid: {queue}, " + _SINCE + ", napi scheduled: {napi_scheduled}",
    ),
    *_forms(
        "ena",
        "nic-tx-lost",
        "critical",
        "[1/2] Lost TX completions are above threshold ({lost} > {lost_threshold}), "
        "completion timeout: {threshold_ms} (msec), " + _SINCE + ", qid: {queue}",
        _LOST + ". Completion transmission timeout: {threshold_ms}",
        _LOST,
        "The number of lost tx completions is above the threshold ({lost} > {lost_threshold})",
    ),
    *_forms(
        "ena",
        "nic-queue-cpu",
        "info",
        "[2/2] qid: {queue}, highest TX completion pending time (msec): {pending_ms}, "
        "napi sched changes: {napi_sched_changes}, napi CPU: {cpu}",
        # 2.17.0 hands these two to printk in the wrong order; Joiner finds out which is which.
        "[2/2] qid: {printed_qid}, napi CPU: {printed_cpu}",
    ),
    *_forms(
        "ena",
        "nic-keepalive-lost",
        "critical",
        "Keep alive watchdog timeout, {keepalive_age_ms} msecs since last keep alive",
        "Keep alive watchdog timeout",
    ),
    *_forms("ena", "nic-admin-queue-down", "critical", "ENA admin queue is not in running state!"),
    *_forms("ena", "nic-interrupt-lost", "critical", "Potential MSIX issue on {direction:w} side Queue = {queue}"),
    *_forms("ena", "nic-rx-ring-empty", "warning", "Trigger refill for ring {queue}"),
    *_forms("ena", "nic-firmware-silent", "critical", "FW isn't responsive"),
    *_forms("ena", "nic-reset-triggered", "critical", "Trigger reset is on"),
    *_forms("ena", "nic-reset-failed", "critical", "Reset attempt failed. Can not reset the device"),
    *_forms(
        "ena",
        "nic-reset-done",
        "critical",
        "Device reset completed successfully, " + _VERSION,
        "Device reset completed successfully",
        "Device reset completed, status: {status}, " + _VERSION,
        "Device reset completed, status: {status}",
    ),
)

# ixgbe_clean_tx_irq, igb_clean_tx_irq: one printk of many lines
_HANG = ("Detected Tx Unit Hang{:s}\n  Tx Queue             <{queue}>", "Detected Tx Unit Hang")
NIC_FORMS = (
    *_ENA,
    # mlx5e_tx_timeout in en_main.c, mlx5e_reporter_tx_timeout in en/reporter_tx.c
    *_forms(
        "mlx5_core",
        "nic-tx-timeout",
        "critical",
        "TX timeout on queue: {queue}, SQ: 0x{:x}, CQ: 0x{:x}, SQ Cons: 0x{:x} SQ Prod: 0x{:x}, "
        "usecs since last trans: {tx_age_us}",
        "TX timeout on queue: {queue}, SQ: 0x",
        "TX timeout detected",
    ),
    # virtnet_tx_timeout in drivers/net/virtio_net.c
    *_forms(
        "virtio_net",
        "nic-tx-timeout",
        "critical",
        "TX timeout on queue: {queue}, sq: {:s}, vq: 0x{:x}, name: {:s}, {tx_age_us} usecs ago",
    ),
    *_forms("ixgbe", "nic-tx-hang", "critical", *_HANG),
    *_forms(
        "ixgbe",
        "nic-reset-triggered",
        "critical",
        "tx hang {} detected on queue {queue}, resetting adapter",
        "initiating reset due to tx timeout",
    ),
    *_forms("igb", "nic-tx-hang", "critical", *_HANG),
    *_forms("e1000e", "nic-tx-hang", "critical", "Detected Hardware Unit Hang"),
    # i40e_tx_timeout, ice_tx_timeout, bnxt_tx_timeout, gve_tx_timeout
    *_forms("i40e", "nic-tx-timeout", "critical", "tx_timeout: VSI_seid: {}, Q {queue},"),
    *_forms("ice", "nic-tx-timeout", "critical", "tx_timeout: VSI_num: {}, Q {queue},"),
    *_forms("bnxt_en", "nic-tx-timeout", "critical", "TX timeout detected, starting reset task!"),
    *_forms("gve", "nic-tx-timeout", "critical", "Timeout on tx queue, {queue}"),
    # dev_watchdog in net/sched/sch_generic.c. The CPU is the one whose timer noticed: it does run its softirqs, so it is
    # not the starved one and must not be taken for it.
    *_forms(
        ANY,
        "nic-tx-timeout",
        "critical",
        "NETDEV WATCHDOG: CPU: {watchdog_cpu}: transmit queue {queue} timed out {tx_age_ms} ms",
    ),
)

_OLD_WATCHDOG = "NETDEV WATCHDOG: {device:w} ({driver:n}): transmit queue {queue} timed out"
_KILLED = "Killed process {pid} ({comm:c}) total-vm:"
_RSS = "{}kB, anon-rss:{anon_kb}kB, file-rss:{file_kb}kB, shmem-rss:{shmem_kb}kB"
_KILL = "Kill process {pid} ({comm:c}) score "  # older kernels; a bare `Killed process` follows, and is not counted again
_MEMCG_OOM = "Memory cgroup out of memory: "
_OOM = "Out of memory: "
_VICTIM = ",task_memcg={cgroup:s},task={comm:c},pid={pid},uid={}"
KERNEL_FORMS = (
    # dev_watchdog of older kernels: a WARN_ONCE, so only the first time since boot; the time was added later
    *_forms("", "nic-tx-timeout", "critical", _OLD_WATCHDOG + " {tx_age_ms} ms", _OLD_WATCHDOG),
    # kernel/watchdog.c. The threshold is some 20 s: a stall of 5 to 20 s resets a NIC and leaves no such line.
    *_forms(
        "",
        "soft-lockup",
        "critical",
        "BUG: soft lockup - CPU#{cpu} stuck for {seconds}s! [{comm:c}:{pid}]",
        "BUG: soft lockup - CPU#{cpu} stuck for {seconds}s!",
        subject="cpu",
    ),
    *_forms(
        "",
        "hard-lockup",
        "critical",
        "Watchdog detected hard LOCKUP on cpu {cpu}",
        "CPU{}: Watchdog detected hard LOCKUP on cpu {cpu}",
        subject="cpu",
    ),
    # kernel/rcu/tree_stall.h and tree_exp.h. The CPU has a line of its own, with a tab; once it stood in braces.
    *_forms(
        "",
        "rcu-stall",
        "critical",
        "INFO: rcu_{flavour:a} self-detected stall on CPU { {cpu}",
        "INFO: rcu_{flavour:a} self-detected stall on CPU",
        "INFO: rcu_{flavour:a} detected stalls on CPUs/tasks:",
        "INFO: rcu_{flavour:a} detected expedited stalls on CPUs/tasks: { {cpu}-",
        "INFO: rcu_{flavour:a} detected expedited stalls on CPUs/tasks: {",
        subject="cpu",
    ),
    *_forms(
        "",
        "rcu-stall-cpu",
        "critical",
        "\t{cpu}-{:w}: ({ticks} ticks this GP)",
        "\t{cpu}-{:w}: ({} GPs behind)",
        subject="cpu",
    ),
    # `->cpu` is where the grace-period kthread waits to run.
    *_forms(
        "",
        "rcu-kthread-starved",
        "critical",
        "rcu_{flavour:a} kthread starved for {jiffies} jiffies! {:s} ->cpu={cpu}",
        "rcu_{flavour:a} kthread starved for {jiffies} jiffies",
        "rcuc/{cpu} kthread starved for {jiffies} jiffies",
        subject="cpu",
    ),
    # check_hung_task in kernel/hung_task.c
    *_forms(
        "",
        "hung-task",
        "warning",
        "INFO: task {comm:c}:{pid} blocked for more than {seconds} seconds",
        "INFO: task {comm:c}:{pid} blocked in {waits_for:w} wait for more than {seconds} seconds",
        subject="comm",
    ),
    # wq_watchdog_timer_fn and wq_cpu_intensive_report in kernel/workqueue.c
    *_forms(
        "",
        "workqueue-lockup",
        "critical",
        "BUG: workqueue lockup - pool cpus={cpu} {:s} stuck for {seconds}s!",
        "BUG: workqueue lockup - pool {pool:s} stuck for {seconds}s!",
        subject="cpu",
    ),
    *_forms(
        "",
        "workqueue-hog",
        "info",
        "workqueue: {function:w} hogged CPU for >{hog_us}us {count} times",
        subject="function",
    ),
    # report_idle_softirq in kernel/time/tick-sched.c: bit 3 of the mask is NET_RX
    *_forms(
        "",
        "softirq-left-pending",
        "info",
        "NOHZ tick-stop error: {:s}local softirq work is pending, handler #{softirqs:x}!!!",
        "NOHZ: local_softirq_pending {softirqs:x}",
        subject="softirqs",
    ),
    # mm/oom_kill.c
    *_forms(
        "",
        "memcg-oom-kill",
        "critical",
        _MEMCG_OOM + _KILLED + _RSS,
        _MEMCG_OOM + _KILLED,
        _MEMCG_OOM + _KILL,
        subject="comm",
    ),
    *_forms(
        "",
        "oom-kill",
        "critical",
        _OOM + _KILLED + _RSS,
        _OOM + _KILLED,
        _OOM + _KILL,
        "Out of memory (oom_kill_allocating_task): " + _KILLED,
        subject="comm",
    ),
    *_forms(
        "",
        "oom-summary",
        "info",
        "oom-kill:constraint={constraint:a},nodemask={:s},oom_memcg={limit_cgroup:s}" + _VICTIM,
        "oom-kill:constraint={constraint:a},nodemask={:s}" + _VICTIM,
        subject="comm",
    ),
    *_forms("", "page-allocation-failure", "warning", "{comm:c}: page allocation failure: order:{order},", subject="comm"),
    # pids_event in kernel/cgroup/pids.c
    *_forms("", "fork-rejected", "warning", "cgroup: fork rejected by pids controller in {cgroup:p}", subject="cgroup"),
    # ___ratelimit in lib/ratelimit.c: a flood that the kernel itself cut short; net_ratelimit is one of its callers
    *_forms("", "printk-suppressed", "info", "{function:w}: {count} callbacks suppressed", subject="function"),
    # Rivals: kernel/sched/rt.c, kernel/events/core.c, kernel/time/hrtimer.c and clocksource.c, net/netfilter, net/ipv4
    *_forms("", "rt-throttled", "warning", "sched: RT throttling activated", subject="node"),
    *_forms(
        "",
        "perf-rate-lowered",
        "info",
        "perf: interrupt took too long ({took_ns} > {limit_ns}), lowering",
        subject="node",
    ),
    *_forms("", "timer-interrupt-slow", "info", "hrtimer: interrupt took {took_ns} ns", subject="node"),
    *_forms(
        "",
        "clock-unstable",
        "warning",
        "clocksource: timekeeping watchdog on CPU{}: Marking clocksource '{clock:n}' as unstable",
        subject="clock",
    ),
    *_forms(
        "",
        "conntrack-full",
        "critical",
        "nf_conntrack: nf_conntrack: table full",
        "nf_conntrack: table full",
        subject="node",
    ),
    *_forms("", "tcp-memory-full", "critical", "TCP: out of memory -- consider tuning tcp_mem", subject="node"),
)
