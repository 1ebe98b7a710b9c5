"""What to do next, by what was found. Only commands that exist, only steps that do no harm by themselves."""

from exhume.findings.model import Finding
from exhume.verdict.report import Remedy, Verdict

_STEPS = {
    "memcg-leak": "exhume zombies --follow 30s shows the leak's rate; stop and disable what owns it if nothing needs it",
    "zombie-memcgs": "exhume zombies names them; exhume zombies purge --dry-run says what can be let go without a reboot",
    "cgroup-dirs-leak": "find {directory} -mindepth 1 -maxdepth 1 -type d -exec rmdir {{}} + removes those without a process",
    "crash-loop": "journalctl -u {subject} -n 50 says why it exits; systemctl disable --now {subject} if nothing needs it",
    "core-saturated": "perf record -g -C {core} -- sleep 5 && perf report shows what the kernel does there",
    "napi-starved": "exhume latency --device {subject} shows it as it happens; free that core, or poll elsewhere: taskset -p "
    "for a NAPI thread, /proc/irq/N/smp_affinity for an interrupt",
    "nic-reset": "dmesg -T | grep {subject} shows what the driver said before it gave up",
    "observer-starved": "run it again with chrt -r 1 exhume check, and look at what holds the cores: top -b -n 1 -H",
    "cpu-throttled": "raise the limit or lower the load of {subject}; other tenants do not suffer from it",
    "cpu-full": "move work away, or give it fewer threads: the busiest are named above",
    "reclaim": "free memory or move work away; systemd-cgtop -m shows which cgroup grows",
    "steal": "the host is oversold or the instance has used up its credits: move to another one",
    "writeback-stall": "the disk does not keep up with writes: iostat -x 1 shows which",
    "printk-flood": "dmesg -w shows which message floods; dmesg -n 1 keeps it off a slow console",
    "irq-imbalance": "spread the interrupts: irqbalance, or /proc/irq/N/smp_affinity",
    "defunct-processes": "restart the parent that does not collect them, if it is not PID 1",
}
MOST = 3


def next_steps(verdict: Verdict, findings: list[Finding]) -> tuple[str, ...]:
    """At most three, for the findings of the chain first."""
    ordered = [link.finding for link in verdict.chain]
    ordered += [finding for finding in findings if finding.severity != "info" and finding not in ordered]
    steps = [_step(finding) for finding in ordered if finding.kind in _STEPS]
    return tuple(dict.fromkeys(steps))[:MOST]


def _step(finding: Finding) -> str:
    directory = finding.value("directory") or f"/sys/fs/cgroup{finding.subject}"
    return _STEPS[finding.kind].format(subject=finding.subject, core=finding.value("core"), directory=directory)


def remedies(verdict: Verdict) -> tuple[Remedy, ...]:
    """What exhume itself can do about it."""
    for link in verdict.chain:
        finding = link.finding
        if finding.kind in ("memcg-leak", "zombie-memcgs"):
            home = finding.value("home") or finding.value("parent") or "/"
            return (Remedy("purge-zombies", str(home), f"exhume zombies purge --under {home}"),)
    return ()
