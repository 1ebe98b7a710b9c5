"""zombie-memcgs: dead memory cgroups that the kernel still visits. They cost nothing until somebody makes it do so."""

import re
from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.memcg_leak import remedies
from exhume.verdict.hypotheses.model import (
    HARDLY,
    MOSTLY,
    NEARLY,
    Case,
    Hypothesis,
    Judged,
    Rule,
    held_by,
    in_the_trace,
    looked,
)
from exhume.verdict.report import Advice

# Programs that read memory-cgroup statistics on their own account. On v1 before 5.8 libcontainer's memory.numa_stat made
# the kernel walk every group, dead ones included, for kubelet, cAdvisor, dockerd and containerd alike (dd8657b6c1cb).
READERS = ("kubelet", "cadvisor", "dockerd", "containerd", "crio", "node_exporter", "node-exporter", "datadog-agent")
# kswapd visits every memory cgroup, dead ones included, on each pass (shrink_node_memcgs).
RECLAIMER = "kswapd"
# Of a walk's visits, from which share on the dead are what it costs.
_DEAD = 0.5
_DISPROOF = "a core that is as full after the zombies were purged"


def walks_for_statistics(zombies: Finding) -> bool:
    """Whether reading statistics goes from group to group: on v1 before dd8657b6c1cb (5.8)."""
    release = re.match(r"(\d+)\.(\d+)", str(zombies.value("kernel") or ""))
    old = release is None or (int(release[1]), int(release[2])) < (5, 8)
    return old and zombies.value("hierarchy") != "v2"


def dead_share(zombies: Finding) -> float:
    dead, live = zombies.number("zombies"), zombies.number("live")
    return dead / max(1.0, dead + live)


def _are_walked(zombies: Finding, walk: Finding) -> Judged:
    if zombies.severity == "info":
        return None
    share = dead_share(zombies)
    dead = f"{zombies.number('zombies'):,.0f} of the {zombies.number('zombies') + zombies.number('live'):,.0f} groups are dead"
    if share < _DEAD:
        return 0.3, f"only {dead}"
    through = str(walk.value("through") or "")
    if walk.value("family") == "charge/limit":
        return 0.4, f"{dead}; but a walk at a group's own limit visits only what is below that group"
    if through.startswith(("memory.reclaim", "memory.force_empty")):
        return 0.85, f"{dead}; a walk visits what is below the group that it was asked of, which the stack does not tell"
    if walk.value("family") == "rstat flush":
        return 0.6, f"{dead}; a flush passes by those that have not changed, as most of the dead have not"
    return (0.99 if share >= NEARLY else 0.95), f"a walk visits every group below where it begins, and {dead}"


def _saturate(zombies: Finding, core: Finding) -> Judged:
    if zombies.severity == "info":
        return None
    comm = str(core.value("process") or "").rsplit(" [", 1)[0]
    if looked(core):
        walked, summed = core.number("walked memory cgroups"), core.number("summed up statistics")
        both = walked + summed
        # Who walked and below what is a finding of its own; without it, both are there, and little more.
        return (0.4, f"memory cgroups are walked in {both:.0%} of the stack samples of this core") if both >= HARDLY else None
    if comm.startswith(RECLAIMER):
        return 0.55, f"{comm} visits every memory cgroup on each pass, dead ones included; no stack was taken to see it"
    if comm in READERS and walks_for_statistics(zombies):
        return (
            0.6,
            f"{comm} reads memory-cgroup statistics, which on this kernel walks the dead too; no stack was taken to see it",
        )
    return 0.3, "both are there at once; no stack was taken to show that this core walks them"


def _starve(zombies: Finding, napi: Finding) -> Judged:
    if zombies.severity == "info":
        return None
    who = napi.value("process") or "the core"
    walked = held_by(napi, "walked memory cgroups", f"{who} walked memory cgroups, dead ones included,", 0.75)
    return walked or held_by(napi, "summed up statistics", f"{who} summed up statistics of memory cgroups", 0.6)


def _make_reclaim_dear(zombies: Finding, reclaim: Finding) -> Judged:
    share = reclaim.number("walk share")
    if zombies.severity == "info" or share < MOSTLY or dead_share(zombies) < _DEAD:
        return None
    return 0.85, f"{share:.0%} of the samples in reclaim only go from group to group, and most groups are dead"


def _lock_up(zombies: Finding, lockup: Finding) -> Judged:
    if zombies.severity == "info":
        return None
    below = any(name in str(lockup.value("stack")) for name in ("try_charge", "try_to_free_mem_cgroup_pages"))
    return in_the_trace(
        lockup, "walked memory cgroups", "memory cgroups are walked, dead ones included,", 0.5 if below else 0.9
    )


def _advice(zombies: Finding, case: Case) -> Iterator[Advice]:
    if not case.has("core-saturated", "napi-starved", "nic-reset", "soft-lockup"):
        return
    core = next((link.finding for link in case.chain if link.finding.kind == "core-saturated"), None)
    faults = core.number("served page faults") if core is not None and looked(core) else None
    if faults is not None and faults < HARDLY:
        yield Advice(
            "huge pages or another allocator",
            f"page faults are served in {faults:.0%} of the samples of that core: they are not what it is busy with",
            against=True,
        )
    yield Advice(
        "pinning programs or interrupts to other cores",
        "the walk is as long wherever it runs: it moves the stall and does not shorten it",
        against=True,
    )


def _step(zombies: Finding, case: Case) -> str:
    if case.has("defunct-processes"):
        return "exhume zombies    # what holds them"
    return "exhume zombies names them; exhume zombies purge --dry-run says what can be let go without a reboot"


HYPOTHESIS = Hypothesis(
    "zombie-memcgs",
    title=lambda finding: f"{finding.number('zombies'):,.0f} zombie memory cgroups",
    rules=(
        Rule("memcg-walk", _are_walked, "a walk that is as long after the zombies were purged"),
        Rule("reclaim", _make_reclaim_dear, "reclaim that is as dear after the zombies were purged"),
        Rule("core-saturated", _saturate, _DISPROOF),
        # Where the core was not full for long enough to be told by itself, the stalls' own stacks speak.
        Rule("napi-starved", _starve, "stalls that go on after the zombies were purged"),
        Rule("soft-lockup", _lock_up, "a lockup after the zombies were purged"),
    ),
    step=_step,
    advice=_advice,
    remedies=remedies,
)
