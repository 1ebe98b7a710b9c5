"""The causal chain: which finding follows from which, how sure that is, and why. One rule a link, each with its own evidence.

No evidence, no accusation: a link whose evidence is only that both were there at once says so and carries a low number.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from exhume.findings.model import Finding
from exhume.findings.spans import overlap_ns, total_ns
from exhume.verdict.kinds import ACCUSES, CAUSES, SYMPTOMS
from exhume.verdict.report import Link

# Programs that read memory-cgroup statistics on their own account. On v1 before 5.8 libcontainer's memory.numa_stat made
# the kernel walk every group, dead ones included, for kubelet, cAdvisor, dockerd and containerd alike (dd8657b6c1cb).
READERS = ("kubelet", "cadvisor", "dockerd", "containerd", "crio", "node_exporter", "node-exporter", "datadog-agent")
# kswapd visits every memory cgroup, dead ones included, on each pass (shrink_node_memcgs).
RECLAIMER = "kswapd"
# What happened longer before or after than this is not put side by side.
SECOND_NS = 10**9
TOGETHER_NS = 60 * SECOND_NS
# A link below this is not evidence enough to go on from.
WEAKEST = 0.25


@dataclass(frozen=True, slots=True)
class _Rule:
    cause: str
    effect: str
    judge: Callable[[Finding, Finding], tuple[float, str] | None]


def _contains(parent: object, path: object) -> bool:
    """Whether a cgroup path lies in another, by whole names."""
    return isinstance(parent, str) and isinstance(path, str) and (path == parent or path.startswith(parent.rstrip("/") + "/"))


def _loop_leaks(loop: Finding, zombies: Finding) -> tuple[float, str] | None:
    """A unit is only blamed for zombies inside its own cgroup, or for a number that fits: a slice holds everybody's."""
    if _contains(loop.value("cgroup"), zombies.value("parent")):
        return 0.8, "the zombies were below this unit's own cgroup"
    grew, meanwhile = zombies.number("growth"), loop.number("restarts in the window")
    if meanwhile >= 2 and 0.5 <= grew / meanwhile <= 2.0:
        return 0.6, f"{meanwhile:,.0f} restarts and {grew:,.0f} new zombies while we looked"
    restarts, count = loop.number("restarts"), zombies.number("zombies")
    if restarts >= 100 and 0.8 <= count / restarts <= 1.25:
        return 0.6, f"{restarts:,.0f} restarts, {count:,.0f} zombies: about one each"
    return None


def _loop_is_the_leak(loop: Finding, leak: Finding) -> tuple[float, str] | None:
    if leak.value("unit") == loop.subject:
        return 0.9, "the unit that owns the leaked cgroups is the one that restarts"
    if _contains(loop.value("cgroup"), leak.value("home")):
        return 0.8, "the zombies were below this unit's own cgroup"
    return None


def _leak_makes_zombies(leak: Finding, zombies: Finding) -> tuple[float, str] | None:
    return 0.97, f"{leak.number('share'):.0%} of all zombies were found there, by name"


# Shares of what was seen on a core (stacks, or stalls with a stack) from which it is the explanation, and below which it is
# none: what was seen was something else.
_MOSTLY, _HARDLY = 0.5, 0.1


def _looked(core: Finding) -> bool:
    """Whether stacks of that core were taken in that time."""
    return core.value("stack samples") is not None


def _seen_there(core: Finding, share: float) -> tuple[float, str]:
    """How sure a link is whose work most stacks of the core show, and their share in words."""
    who = core.value("process")
    said = f"in {share:.0%} of the stack samples of this core" + (f", most of them {who}'s" if who is not None else "")
    if core.number("sampled") >= _MOSTLY:
        return 0.95, said
    return 0.75, f"{said}, which were taken in {core.number('sampled'):.0%} of that time"


def _zombies_saturate(zombies: Finding, core: Finding) -> tuple[float, str] | None:
    if zombies.severity == "info":
        return None
    comm = str(core.value("process") or "").rsplit(" [", 1)[0]
    if _looked(core):
        walked, summed = core.number("walked memory cgroups"), core.number("summed up statistics")
        if walked >= _MOSTLY:
            sure, seen = _seen_there(core, walked)
            return sure, f"memory cgroups, dead ones included, are walked {seen}"
        if walked + summed >= _MOSTLY:
            return (
                0.6,
                f"statistics of memory cgroups are summed up in {walked + summed:.0%} of the samples; not all dead ones count",
            )
        if walked + summed >= _HARDLY:
            return 0.4, f"memory cgroups are walked in only {walked + summed:.0%} of the stack samples of this core"
        return None
    if comm.startswith(RECLAIMER):
        return 0.7, f"{comm} visits every memory cgroup on each pass, dead ones included"
    if comm in READERS:
        return (
            0.6,
            f"{comm} reads memory-cgroup statistics, which on older kernels walks the dead too; no stack was taken to see it",
        )
    return 0.3, "both are there at once; no stack was taken to show that this core walks them"


def _dirs_saturate(dirs: Finding, core: Finding) -> tuple[float, str] | None:
    if not _looked(core):
        return 0.3, "both are there at once; no stack was taken to show that this core walks them"
    walked = core.number("walked memory cgroups") + core.number("summed up statistics")
    if walked < _MOSTLY:
        return None
    sure, seen = _seen_there(core, walked)
    return min(0.8, sure), f"cgroups are walked {seen}, and these directories are among them"


def _reclaim_saturates(reclaim: Finding, core: Finding) -> tuple[float, str] | None:
    if _looked(core):
        reclaimed, walked = core.number("reclaimed memory"), core.number("walked memory cgroups")
        if reclaimed >= _MOSTLY:
            sure, seen = _seen_there(core, reclaimed)
            return min(0.9, sure), f"memory is reclaimed {seen}"
        if reclaimed + walked >= _MOSTLY:
            return 0.5, f"reclaim, {walked:.0%} of it in visits to memory cgroups that had nothing to give"
        return None
    if str(core.value("process") or "").startswith(RECLAIMER):
        return 0.8, "it is kswapd that keeps this core busy"
    return 0.4, "reclaim is kernel time; no stack was taken to show that it is this core's"


def _core_starves(core: Finding, napi: Finding) -> tuple[float, str] | None:
    """A queue is polled on the core that takes its interrupts. Once ksoftirqd owns the work there, or while softirqs are
    off, a long stay in the kernel keeps the poll waiting; another core's does not. Joined by core and by overlap in time."""
    number = core.value("core")
    late = [span for span in napi.spans if span.core == number]
    if not late and any(span.core >= 0 for span in napi.spans):
        return None
    together = overlap_ns(late, core.spans)
    whole = total_ns(late)
    if together:
        share = together / whole
        when = f"{together / 1e6:,.0f} of the {whole / 1e6:,.0f} ms in which the poll was late on core {number}"
        if napi.value("stalls") is None:
            return 0.9, f"at the same time, and the queue is served by core {number}"
        if share >= _MOSTLY:
            return 0.95, f"the core was full of kernel time for {when}"
        return 0.6, f"the core was full of kernel time for only {when}"
    apart = max(0, core.start - napi.end, napi.start - core.end)
    if late and napi.value("stalls") is not None:
        # Both were measured, and were not at the same time.
        return (0.3, f"on core {number}, too, but not at the same time") if apart <= TOGETHER_NS else None
    if apart <= TOGETHER_NS:
        if not late:
            return 0.4, "at the same time; which core serves the queue is not known"
        return 0.9, f"at the same time, and the queue is served by core {number}"
    if not late:
        return None
    return 0.4, f"core {number} serves the queue and is full again now; the complaint is {apart / 60e9:,.0f} min old"


def _held_by(napi: Finding, what: str, said: str, sure: float = 0.93) -> tuple[float, str] | None:
    """A stall's own evidence: what the core did while the poll was late. Time that the hypervisor took explains it as well."""
    share = napi.number(what)
    if share < _HARDLY:
        return None
    where = f"in {share:.0%} of the time in which the poll was late"
    if napi.number("steal") >= _MOSTLY:
        return 0.4, f"{said} {where}, but the hypervisor took {napi.number('steal'):.0%} of the core's time meanwhile"
    return (sure, f"{said} {where}") if share >= _MOSTLY else (0.4, f"{said} only {where}")


def _zombies_starve(zombies: Finding, napi: Finding) -> tuple[float, str] | None:
    if zombies.severity == "info":
        return None
    who = napi.value("process") or "the core"
    walked = _held_by(napi, "walked memory cgroups", f"{who} walked memory cgroups, dead ones included,")
    return walked or _held_by(napi, "summed up statistics", f"{who} summed up statistics of memory cgroups", 0.6)


def _dirs_starve(dirs: Finding, napi: Finding) -> tuple[float, str] | None:
    return _held_by(napi, "walked memory cgroups", "cgroups were walked, these directories among them,", 0.8)


def _reclaim_starves(reclaim: Finding, napi: Finding) -> tuple[float, str] | None:
    return _held_by(napi, "reclaimed memory", "memory was reclaimed on that core", 0.9)


def _console_starves(flood: Finding, napi: Finding) -> tuple[float, str] | None:
    return _held_by(napi, "printed to a console", "kernel messages were printed there", 0.9)


def _imbalance_starves(imbalance: Finding, napi: Finding) -> tuple[float, str] | None:
    return _held_by(napi, "network itself", "the core was busy with packets", 0.8)


def _steal_starves(steal: Finding, napi: Finding) -> tuple[float, str] | None:
    stolen = napi.number("steal")
    if stolen >= _MOSTLY:
        return 0.85, f"the hypervisor took {stolen:.0%} of the core's time while the poll was late"
    return (0.4, f"the hypervisor took {stolen:.0%} of the core's time while the poll was late") if stolen else None


def _starved_resets(napi: Finding, reset: Finding) -> tuple[float, str] | None:
    if napi.subject != reset.subject:
        if reset.subject not in str(napi.value("core serves") or "").split(", "):
            return None
        same = _starved_resets(replace(napi, subject=reset.subject), reset)
        return same and (0.7 * same[0], f"{same[1]}; which device that was is not known, but its core serves {reset.subject}")
    resets = [span.end for span in reset.spans] or [reset.end]
    if napi.value("late polls") is not None:
        told = [span.end for span in napi.spans] or [napi.end]
        gaps = [moment - line for moment in resets for line in [*told, napi.end] if -SECOND_NS <= moment - line <= TOGETHER_NS]
        if gaps:
            return 0.95, f"the driver reset {reset.subject} {max(0, min(gaps)) / 1e9:.1f} s after its poll was found late"
        return None
    # The driver said nothing of a late poll: then it is only as sure as the stall was long. They give up after seconds.
    after = [
        (span.end - span.start, moment - span.end)
        for span in napi.spans
        for moment in resets
        if span.start <= moment <= span.end + TOGETHER_NS
    ]
    if not after:
        return None
    length, gap = max(after)
    when = f"{gap / 1e9:.1f} s after" if gap > 0 else "during"
    said = f"the driver reset {reset.subject} {when} a stall of {length / 1e6:,.0f} ms"
    return (0.9, said) if length >= SECOND_NS else (0.4, f"{said}, which is short: drivers wait for seconds")


RULES = (
    _Rule("crash-loop", "memcg-leak", _loop_is_the_leak),
    _Rule("memcg-leak", "zombie-memcgs", _leak_makes_zombies),
    _Rule("crash-loop", "zombie-memcgs", _loop_leaks),
    _Rule("zombie-memcgs", "core-saturated", _zombies_saturate),
    _Rule("cgroup-dirs-leak", "core-saturated", _dirs_saturate),
    _Rule("reclaim", "core-saturated", _reclaim_saturates),
    _Rule("core-saturated", "napi-starved", _core_starves),
    # Where the core was not full for long enough to be told by itself, the stalls' own stacks speak.
    _Rule("zombie-memcgs", "napi-starved", _zombies_starve),
    _Rule("cgroup-dirs-leak", "napi-starved", _dirs_starve),
    _Rule("reclaim", "napi-starved", _reclaim_starves),
    _Rule("printk-flood", "napi-starved", _console_starves),
    _Rule("irq-imbalance", "napi-starved", _imbalance_starves),
    _Rule("steal", "napi-starved", _steal_starves),
    _Rule("napi-starved", "nic-reset", _starved_resets),
)


def strongest(findings: list[Finding]) -> tuple[Link, ...]:
    """The chain that reaches the worst symptom, names a cause surely enough to accuse it, and explains most. A lone finding is
    no chain."""
    best: tuple[Link, ...] = ()
    for finding in findings:
        for chain in _from(finding, findings):
            if len(chain) > 1 and _rank(chain) > _rank(best):
                best = chain
    return best


def confidence(chain: tuple[Link, ...]) -> float:
    """Of the chain as a whole: every link must hold."""
    product = 1.0
    for link in chain[1:]:
        product *= link.confidence
    return product


def _rank(chain: tuple[Link, ...]) -> tuple[int, bool, int, float]:
    reached = next((SYMPTOMS.index(link.finding.kind) for link in reversed(chain) if link.finding.kind in SYMPTOMS), -1)
    sure = confidence(chain)
    return reached, bool(chain) and chain[0].finding.kind in CAUSES and sure >= ACCUSES, len(chain), sure


def _from(finding: Finding, findings: list[Finding], because: str = "", sure: float = 1.0) -> list[tuple[Link, ...]]:
    here = Link(finding, because, sure)
    chains: list[tuple[Link, ...]] = [(here,)]
    for rule in RULES:
        if rule.cause != finding.kind:
            continue
        for effect in findings:
            if effect.kind == rule.effect and (judged := rule.judge(finding, effect)) is not None and judged[0] >= WEAKEST:
                chains.extend((here, *rest) for rest in _from(effect, findings, judged[1], judged[0]))
    return chains
