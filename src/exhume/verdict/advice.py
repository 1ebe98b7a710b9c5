"""What to do next, by what was found. Only commands that exist, only steps that do no harm."""

from exhume.verdict.report import Report

_STEPS = {
    "zombie-memcgs": "find what leaks them: a unit or container that restarts; stopping it does not free what has leaked",
    "cgroup-dirs-leak": "remove the empty directories with rmdir (it fails harmlessly where a process lives); find their maker",
    "crash-loop": "journalctl -u {subject} -n 50 says why it exits; systemctl disable --now {subject} if nothing needs it",
    "core-saturated": "perf record -g -C {core} -- sleep 5 shows what the kernel does there",
    "napi-starved": "free the core that serves the queue, or move the queue's interrupt (/proc/irq/N/smp_affinity)",
    "cpu-throttled": "raise the limit or lower the load of {subject}; other tenants do not suffer from it",
    "cpu-full": "the machine is too small for what runs on it: see what runs with top, or move work away",
    "reclaim": "free memory or move work away; see which cgroup grows with systemd-cgtop -m",
    "steal": "the host is oversold or the instance has used up its credits: move to another one",
    "writeback-stall": "the disk does not keep up with writes: see iostat -x 1",
    "printk-flood": "dmesg -w shows which message floods; dmesg -n 1 keeps it off a slow console",
    "irq-imbalance": "spread the interrupts: irqbalance, or /proc/irq/N/smp_affinity",
    "defunct-processes": "their parent does not collect them: restart the parent",
}
MOST = 3


def next_steps(report: Report) -> list[str]:
    """At most three, for the findings of the chain first."""
    ordered = [link.finding for link in report.verdict.chain]
    ordered += [finding for finding in report.findings if finding.severity != "info" and finding not in ordered]
    steps = [
        _STEPS[finding.kind].format(subject=finding.subject, core=finding.value("core"))
        for finding in ordered
        if finding.kind in _STEPS
    ]
    return list(dict.fromkeys(steps))[:MOST]
