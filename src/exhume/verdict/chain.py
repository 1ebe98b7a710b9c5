"""The causal chain: which finding follows from which, how sure that is, and why. One rule a link, each with its own evidence.

No evidence, no accusation: a link whose evidence is only that both were there at once says so and carries a low number.
"""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.findings.model import Finding
from exhume.verdict.kinds import ACCUSES, CAUSES, SYMPTOMS
from exhume.verdict.report import Link

# Programs that read memory-cgroup statistics on their own account. On v1 before 5.8 libcontainer's memory.numa_stat made
# the kernel walk every group, dead ones included, for kubelet, cAdvisor, dockerd and containerd alike (dd8657b6c1cb).
READERS = ("kubelet", "cadvisor", "dockerd", "containerd", "crio", "node_exporter", "node-exporter", "datadog-agent")
# kswapd visits every memory cgroup, dead ones included, on each pass (shrink_node_memcgs).
RECLAIMER = "kswapd"
# What happened longer before or after than this is not put side by side.
TOGETHER_NS = 60 * 10**9
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


def _zombies_saturate(zombies: Finding, core: Finding) -> tuple[float, str] | None:
    if zombies.severity == "info":
        return None
    comm = str(core.value("process") or "").rsplit(" [", 1)[0]
    if comm.startswith(RECLAIMER):
        return 0.7, f"{comm} visits every memory cgroup on each pass, dead ones included"
    if comm in READERS:
        return (
            0.6,
            f"{comm} reads memory-cgroup statistics, which on older kernels walks the dead too; no stack was taken to see it",
        )
    return 0.3, "both are there at once; no stack was taken to show that this core walks them"


def _dirs_saturate(dirs: Finding, core: Finding) -> tuple[float, str] | None:
    return 0.3, "both are there at once; no stack was taken to show that this core walks them"


def _reclaim_saturates(reclaim: Finding, core: Finding) -> tuple[float, str] | None:
    if str(core.value("process") or "").startswith(RECLAIMER):
        return 0.8, "it is kswapd that keeps this core busy"
    return 0.4, "reclaim is kernel time; no stack was taken to show that it is this core's"


def _core_starves(core: Finding, napi: Finding) -> tuple[float, str] | None:
    """A queue is polled on the core that takes its interrupts. Once ksoftirqd owns the work there, or while softirqs are
    off, a long stay in the kernel keeps the poll waiting; another core's does not."""
    serves = napi.value("core")
    if serves is not None and serves != core.value("core"):
        return None
    apart = max(0, core.start - napi.end, napi.start - core.end)
    if apart <= TOGETHER_NS:
        if serves is None:
            return 0.4, "at the same time; which core serves the queue is not known"
        return 0.9, f"at the same time, and the queue is served by core {serves}"
    if serves is None:
        return None
    return 0.4, f"core {serves} serves the queue and is full again now; the complaint is {apart / 60e9:,.0f} min old"


def _starved_resets(napi: Finding, reset: Finding) -> tuple[float, str] | None:
    if napi.subject != reset.subject:
        return None
    gap_ns = reset.end - napi.end
    if -1_000_000_000 <= gap_ns <= TOGETHER_NS:
        return 0.95, f"the driver reset {reset.subject} {max(0, gap_ns) / 1e9:.1f} s after its poll was found late"
    return None


RULES = (
    _Rule("crash-loop", "memcg-leak", _loop_is_the_leak),
    _Rule("memcg-leak", "zombie-memcgs", _leak_makes_zombies),
    _Rule("crash-loop", "zombie-memcgs", _loop_leaks),
    _Rule("zombie-memcgs", "core-saturated", _zombies_saturate),
    _Rule("cgroup-dirs-leak", "core-saturated", _dirs_saturate),
    _Rule("reclaim", "core-saturated", _reclaim_saturates),
    _Rule("core-saturated", "napi-starved", _core_starves),
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
