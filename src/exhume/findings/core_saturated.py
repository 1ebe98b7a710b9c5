"""core-saturated: one core full of kernel time while the others are not, or one whose time nobody accounted."""

from exhume.findings import all_cores
from exhume.findings.core_missing import unaccounted
from exhume.findings.core_suspect import Suspect, suspect
from exhume.findings.cores import KERNEL, Core, Stretch, busy, cores, others_share, saturated
from exhume.findings.held import Held, Who, belongs
from exhume.findings.kernel_threads import of_kernel
from exhume.findings.kernel_work import NETWORK, POLLING, telling
from exhume.findings.model import Evidence, Examined, Finding, Severity, Span
from exhume.findings.sampled import unfit
from exhume.findings.senders import sender
from exhume.findings.stall_words import SHARES, text
from exhume.findings.stalls import held_while
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KIND = "core-saturated"
# Less than this is noise on any virtual machine.
_STOLEN = 0.01


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    everyone = cores(recording)
    why = unfit(recording) if not everyone or everyone[0].sampled else ""
    if why or not everyone:
        return Examined(KIND, unseen=why or recording.why_off("cpu"))
    machine = busy(everyone)
    tickless = {dict(at).get("cpu") for at in recording.counters("cpu_nohz_full")}
    found = [(core, saturated(core, thresholds.core_saturated_ratio, 0)) for core in everyone]
    told = [stretch for _, stretches in found for stretch in stretches if stretch.ms >= thresholds.core_saturated_ms]
    alone = _alone(everyone, told, thresholds)
    crowd = [stretch for stretch in told if stretch not in alone]
    findings = all_cores.findings(recording, everyone, crowd, machine, thresholds)
    longest = (0, everyone[0].number)
    for core, stretches in found:
        longest = max([longest, *((stretch.ms, core.number) for stretch in stretches)])
        mine = [stretch for stretch in stretches if stretch.ms >= thresholds.core_saturated_ms]
        if mine:
            alone_here = [stretch for stretch in mine if stretch in alone]
            findings.append(_finding(recording, core, alone_here or mine, bool(alone_here), machine, thresholds))
    ticking = [core for core in everyone if str(core.number) not in tickless]
    missing: dict[int, list[Stretch]] = {}
    for stretch in unaccounted(ticking, everyone, thresholds.core_unaccounted_ms):
        missing.setdefault(stretch.core, []).append(stretch)
    findings += [_missing(core, missing[core.number]) for core in ticking if core.number in missing]
    if findings:
        findings.sort(key=lambda finding: (finding.severity == "info", -finding.number("longest")))
        return Examined(KIND, tuple(findings))
    if not longest[0]:
        return Examined(KIND, ruled_out="no core was full of kernel time")
    return Examined(KIND, ruled_out=f"longest at a stretch in the kernel is core {longest[1]} with {longest[0]:,} ms")


def _alone(everyone: list[Core], stretches: list[Stretch], thresholds: Thresholds) -> set[Stretch]:
    """Those in which the rest of the machine was not in the kernel as well: if it was, this core is not the story. A rest that
    is busy with its own programs is no excuse: a node that trains is always that."""
    if len(everyone) < 2 or not stretches:
        return set()
    together = others_share(everyone, stretches, *KERNEL) >= thresholds.others_kernel_ratio
    return {stretch for stretch, others in zip(stretches, together.tolist(), strict=True) if not others}


def _finding(
    recording: Recording, core: Core, stretches: list[Stretch], alone: bool, machine: float, thresholds: Thresholds
) -> Finding:
    longest = max(stretches, key=lambda stretch: stretch.ms)
    stolen = core.share("steal", start=longest.start, end=longest.end)
    interrupts = core.share("irq", "softirq", start=longest.start, end=longest.end) / max(0.01, 1 - stolen)
    evidence = [
        Evidence("core", core.number, "", core.source),
        Evidence("longest", longest.ms, "ms", core.source),
        Evidence("episodes", len(stretches), "", core.source),
        Evidence("kernel time", round(longest.ratio, 3), "of the core's time", core.source),
        Evidence("interrupt time", round(interrupts, 3), "of the core's time, irq and softirq", core.source),
        Evidence("machine busy", round(machine, 3), "of all cores' time", core.source),
    ]
    what = "softirq" if interrupts > 0.5 else "system"
    summary = f"core {core.number} at {longest.ratio:.0%} {what} time"
    if stolen >= _STOLEN:
        evidence.append(Evidence("steal", round(stolen, 3), "of the core's time meanwhile", core.source))
        summary += f" of what the hypervisor left it (it took {stolen:.0%})"
    summary += f", {all_cores.times(stretches)}"
    summary += f"; the machine as a whole is {machine:.0%} busy" if alone else ", and the other cores are in the kernel too"
    spans = tuple(Span(core.number, stretch.start, stretch.end) for stretch in stretches)
    by_ticks = suspect(recording, longest, interrupts > 0.5)
    seen = held_while(recording, core.number, spans)
    if seen is not None and seen.known:
        said, more = _seen(recording, seen, longest, by_ticks)
        summary, evidence = summary + said, evidence + more
    elif by_ticks is not None:
        who = Who(by_ticks.comm, by_ticks.pid, 0, by_ticks.cgroup)
        evidence.append(Evidence("process", str(who), "", "/proc/PID/stat: last seen on that core"))
        evidence.append(Evidence("its system time", by_ticks.system_ms, "ms", "/proc/PID/stat"))
        evidence += [*belongs(who, "/proc/PID/cgroup"), *of_kernel(recording, who)]
        summary += f"; {who}, last seen on that core, used {by_ticks.system_ms:,} ms of system time"
    if seen is not None and seen.share(NETWORK) >= 0.5 and (sent := sender(recording, spans)) is not None:
        source = "stack samples of all cores in that time"
        evidence.append(Evidence("packets sent by", str(sent.who), "", source))
        evidence.append(Evidence("its sends", round(sent.share, 3), "of the samples in a send()", source))
        if sent.who.cgroup not in ("", "/"):
            evidence.append(Evidence("sender's cgroup", sent.who.cgroup, "", "/proc/PID/cgroup"))
        summary += f"; the packets are sent by {sent.who}, on this node"
    severity: Severity = "warning" if alone and _lasts(recording.window, stretches, thresholds) else "info"
    if seen is not None and seen.share(POLLING) >= 0.5:
        severity = "info"
        summary += ": it asks again and again by design, and has the core to itself"
    subject = f"core {core.number}"
    return Finding(KIND, subject, severity, stretches[0].start, stretches[-1].end, summary, tuple(evidence), spans)


def _lasts(window: tuple[int, int], stretches: list[Stretch], thresholds: Thresholds) -> bool:
    """A short stay now and then is what a kernel is for; if something starves of it, that is told by what does."""
    start, end = window
    full = sum(stretch.end - stretch.start for stretch in stretches)
    long = max(stretch.ms for stretch in stretches) >= thresholds.core_saturated_warning_ms
    return long or full >= thresholds.core_saturated_warning_ratio * max(1, end - start)


def _seen(recording: Recording, seen: Held, longest: Stretch, by_ticks: Suspect | None) -> tuple[str, list[Evidence]]:
    """Who was there and what it did, by stack samples: they are of that core and that time, the ticks only of about then."""
    source = "stack samples of that core in that time"
    evidence = [
        Evidence("stack samples", seen.total, "", source),
        Evidence("sampled", round(seen.covered, 3), "of that time", source),
    ]
    said = ""
    share = seen.samples / max(1, seen.total)
    if share >= 0.5:
        if seen.who.tid > 0:
            evidence.append(Evidence("process", str(seen.who), "", source))
            if by_ticks is not None and by_ticks.pid == seen.who.pid:
                evidence.append(Evidence("its system time", by_ticks.system_ms, "ms", "/proc/PID/stat"))
            else:
                evidence.append(Evidence("its system time", round(share * longest.ms), "ms", f"{source}, by their share"))
            cgroup = seen.who.cgroup or (by_ticks.cgroup if by_ticks is not None and by_ticks.pid == seen.who.pid else "")
            who = seen.who._replace(cgroup=cgroup)
            evidence += [*belongs(who, "/proc/PID/cgroup"), *of_kernel(recording, who, seen.stack)]
        function = telling(seen.stack)
        where = f", {function}" if function and seen.work.key != "kernel" else ""
        when = "" if seen.covered >= 0.5 else f", taken in {seen.covered:.0%} of that time"
        said = f"; {seen.who} {seen.work.words} there{where} ({share:.0%} of the core's samples{when})"
        evidence.append(Evidence("it", seen.work.words, "", source))
        if seen.stack:
            evidence.append(Evidence("function", function, "", source))
            evidence.append(Evidence("stack", text(seen.stack), "", source))
    for work, what in SHARES.items():
        if part := seen.share(work):
            evidence.append(Evidence(what, round(part, 3), "of the samples", source))
    return said, evidence


def _missing(core: Core, stretches: list[Stretch]) -> Finding:
    longest = max(stretches, key=lambda stretch: stretch.ms)
    evidence = (
        Evidence("core", core.number, "", core.source),
        Evidence("longest", longest.ms, "ms", core.source),
        Evidence("episodes", len(stretches), "", core.source),
        Evidence("not accounted", sum(stretch.ms for stretch in stretches), "ms", f"{core.source}, against the clock"),
    )
    when = all_cores.times(stretches)
    if core.sampled:
        severity: Severity = "info"
        summary = f"core {core.number} has no samples {when}, while the others have: interrupts were off there, "
        summary += "or it is a virtual CPU that did not run, or samples were lost"
    else:
        severity = "warning"
        summary = f"core {core.number} was not accounted {when}, while the others were: interrupts were off there, "
        summary += "or it is a virtual CPU that did not run, or it has no tick (nohz_full)"
    spans = tuple(Span(core.number, stretch.start, stretch.end) for stretch in stretches)
    return Finding(KIND, f"core {core.number}", severity, stretches[0].start, stretches[-1].end, summary, evidence, spans)
