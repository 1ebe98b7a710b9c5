"""The causal chain: which finding follows from which, how sure that is, and why. One rule a link, each with its own evidence.

No evidence, no accusation: a link whose evidence is only that both were there at once says so and carries a low number.
"""

from collections.abc import Callable
from dataclasses import dataclass

from exhume.findings.model import Finding
from exhume.verdict.report import Link

# Programs that read memory-cgroup statistics or manage cgroups on their own account, so that zombies make them slow:
# libcontainer's v1 statistics read memory.numa_stat for kubelet, cAdvisor, dockerd and containerd; systemd and the node
# agents read memory.stat.
READERS = (
    "kubelet",
    "cadvisor",
    "dockerd",
    "containerd",
    "crio",
    "systemd",
    "node_exporter",
    "node-exporter",
    "datadog-agent",
    "amazon-ssm-agen",
    "amazon-cloudwat",
    "below",
)
# Kernel threads and what they do; on their account zombies are walked when memory is reclaimed.
RECLAIMERS = ("kswapd", "kcompactd", "khugepaged")


@dataclass(frozen=True, slots=True)
class _Rule:
    cause: str
    effect: str
    judge: Callable[[Finding, Finding], tuple[float, str] | None]


def _loop_leaks(loop: Finding, zombies: Finding) -> tuple[float, str] | None:
    parent, cgroup = zombies.value("parent"), loop.value("cgroup")
    grew = zombies.number("growth")
    if isinstance(parent, str) and isinstance(cgroup, str) and cgroup.startswith(parent):
        return 0.7, f"the zombies were below {parent}, where this unit lives"
    if grew > 0 and "while we looked" in loop.summary:
        return 0.6, f"{grew:.0f} zombies came while the unit restarted; `exhume zombies` names where they were"
    restarts, count = loop.number("restarts"), zombies.number("zombies")
    if count and 0.5 <= restarts / count <= 2.0:
        return 0.6, f"{restarts:,.0f} restarts, {count:,.0f} zombies: about one each"
    return None


def _loop_is_the_leak(loop: Finding, leak: Finding) -> tuple[float, str] | None:
    if leak.value("unit") == loop.subject:
        return 0.9, "the unit that owns the leaked cgroups is the one that restarts"
    home, cgroup = leak.value("home"), loop.value("cgroup")
    if isinstance(home, str) and isinstance(cgroup, str) and home != "/" and cgroup.startswith(home):
        return 0.5, f"the zombies were below {home}, where this unit lives"
    return None


def _leak_makes_zombies(leak: Finding, zombies: Finding) -> tuple[float, str] | None:
    return 0.97, f"{leak.number('share'):.0%} of all zombies were found there, by name"


def _zombies_saturate(zombies: Finding, core: Finding) -> tuple[float, str] | None:
    if zombies.severity == "info":
        return None
    process = str(core.value("process") or "")
    comm = process.rsplit(" [", 1)[0]
    if comm.startswith(RECLAIMERS):
        return 0.7, f"{comm} walks every memory cgroup, dead ones included, on each pass"
    if comm in READERS:
        return (
            0.7,
            f"{comm} reads memory-cgroup statistics, which on many kernels walks the dead too; no stack was taken to see it",
        )
    return 0.4, "both are there at once; no stack was taken to show that this core walks them"


def _dirs_saturate(dirs: Finding, core: Finding) -> tuple[float, str] | None:
    return 0.4, "both are there at once; no stack was taken to show that this core walks them"


def _reclaim_saturates(reclaim: Finding, core: Finding) -> tuple[float, str] | None:
    return 0.5, "reclaim is kernel time; no stack was taken to show that it is this core's"


def _core_starves(core: Finding, napi: Finding) -> tuple[float, str] | None:
    if core.value("core") == napi.value("core") is not None:
        return 0.9, f"the queue that was not polled is served by core {core.value('core')}"
    if napi.value("core") is None:
        return 0.5, "which core serves the queue is not known"
    return 0.3, f"the queue is served by core {napi.value('core')}, another one, at least now"


def _starved_resets(napi: Finding, reset: Finding) -> tuple[float, str] | None:
    if napi.subject != reset.subject:
        return None
    gap_s = (reset.end - napi.end) / 1e9
    if -1 <= gap_s <= 60:
        return 0.95, f"the driver reset {reset.subject} {max(0, gap_s):.1f} s after its poll was found late"
    return 0.5, f"same device, {abs(gap_s):,.0f} s apart"


def _core_resets(core: Finding, reset: Finding) -> tuple[float, str] | None:
    return 0.3, "a core that does not leave the kernel cannot poll; no driver line names the core"


RULES = (
    _Rule("crash-loop", "memcg-leak", _loop_is_the_leak),
    _Rule("memcg-leak", "zombie-memcgs", _leak_makes_zombies),
    _Rule("crash-loop", "zombie-memcgs", _loop_leaks),
    _Rule("zombie-memcgs", "core-saturated", _zombies_saturate),
    _Rule("cgroup-dirs-leak", "core-saturated", _dirs_saturate),
    _Rule("reclaim", "core-saturated", _reclaim_saturates),
    _Rule("core-saturated", "napi-starved", _core_starves),
    _Rule("napi-starved", "nic-reset", _starved_resets),
    _Rule("core-saturated", "nic-reset", _core_resets),
)


def longest(findings: list[Finding]) -> tuple[Link, ...]:
    """The chain with the most links, the surest among equals. A lone finding is no chain."""
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


def _rank(chain: tuple[Link, ...]) -> tuple[int, float]:
    return len(chain), confidence(chain)


def _from(finding: Finding, findings: list[Finding], because: str = "", sure: float = 1.0) -> list[tuple[Link, ...]]:
    here = Link(finding, because, sure)
    chains: list[tuple[Link, ...]] = [(here,)]
    for rule in RULES:
        if rule.cause != finding.kind:
            continue
        for effect in findings:
            if effect.kind == rule.effect and (judged := rule.judge(finding, effect)) is not None:
                chains.extend((here, *rest) for rest in _from(effect, findings, judged[1], judged[0]))
    return chains
