"""All kinds of findings. The order within a role is precedence: sure conditions and pains first, the worst symptoms last."""

from typing import Any, Final

from exhume.diagnosis.findings import (
    cgroup_dirs_leak,
    core_saturated,
    cpu_full,
    cpu_throttled,
    crash_loop,
    defunct_processes,
    irq_imbalance,
    memcg_leak,
    memcg_walk,
    napi_starved,
    nic_reset,
    observer_starved,
    oom,
    page_fault_storm,
    printk_flood,
    reclaim,
    soft_lockup,
    steal,
    unused_agent,
    writeback_stall,
    zombie_memcgs,
)
from exhume.diagnosis.findings.kind import Kind, Role, Rule
from exhume.diagnosis.findings.model import Examined
from exhume.diagnosis.findings.sampled import made_up
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

KINDS: Final[tuple[Kind[Any], ...]] = (
    # conditions
    memcg_leak.KIND,
    zombie_memcgs.KIND,
    cgroup_dirs_leak.KIND,
    memcg_walk.KIND,
    crash_loop.KIND,
    oom.KIND,
    defunct_processes.KIND,
    # pains
    reclaim.KIND,
    printk_flood.KIND,
    page_fault_storm.KIND,
    cpu_full.KIND,
    writeback_stall.KIND,
    irq_imbalance.KIND,
    steal.KIND,
    # symptoms
    core_saturated.KIND,
    soft_lockup.KIND,
    napi_starved.KIND,
    nic_reset.KIND,
    # what affects tenants only, or the recorder itself
    cpu_throttled.KIND,
    unused_agent.KIND,
    observer_starved.KIND,
)
BY_NAME: Final[dict[str, Kind[Any]]] = {kind.facts.kind: kind for kind in KINDS}
RULES: Final[dict[str, tuple[Rule[Any, Any], ...]]] = {
    name: tuple(rule for kind in KINDS for rule in kind.rules if rule.cause.kind == name) for name in BY_NAME
}
"""What may follow from each kind. A rule is in the file of its cause or of its effect."""


def _named(*roles: Role) -> tuple[str, ...]:
    return tuple(kind.facts.kind for kind in KINDS if kind.role in roles)


SYMPTOMS: Final = _named("symptom")
PAINS: Final = _named("pain")
CONDITIONS: Final = _named("condition")
CAUSES: Final = (*CONDITIONS, *PAINS)
TENANTS: Final = _named("tenant")


def examine(recording: Recording, thresholds: Thresholds) -> list[Examined]:
    judged = _in_time(recording)
    return [kind.detect(judged, thresholds) for kind in KINDS]


def _in_time(recording: Recording) -> Recording:
    """Without samples whose times are made up: detectors judge when and for how long."""
    if made_up(recording) == "":
        return recording
    found = Recording(recording.node)
    found.tables.update({name: table for name, table in recording.tables.items() if name not in ("samples", "summary")})
    return found
