"""Proofs: what `exhume verify` judges of pairs of recordings, before and after a fix."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from exhume.recording.folder import Folder
from exhume.recording.recording import Recording
from tests.golden import adapter
from tests.golden.adapter import Data
from tests.incidents import quiet, rivals, zombies
from tests.incidents.truth import Told
from tests.remedy.made_proof import Made, holed, node

RECORDINGS = Path(__file__).parent / "recordings"
SICK = Made(1, seconds=300, cpus=5)
CURED = replace(SICK, seed=2, leak=0, walk_s=0, zombies=60)
SHORT = replace(CURED, seconds=120)
AFTER = {
    "cured": CURED,
    "cured_among_tenants": replace(CURED, others=6),
    "cured_with_a_slow_leak": replace(CURED, leak=0.2),
    "cured_too_short": replace(CURED, seconds=40),
    "cured_without_events": replace(CURED, off=("cgroup-events",)),
    "cured_without_cores": replace(SHORT, off=("cpu", "samples")),
    "cured_without_samples": replace(SHORT, off=("samples",)),
    "cured_without_counts": replace(SHORT, off=("memcg", "cgroup-events")),
    "cured_with_zombies_left": replace(CURED, zombies=20_000),
    "cured_by_a_reboot": replace(CURED, boot="b0071d01"),
    "leak_goes_on": replace(SICK, seed=5, seconds=120),
    "leak_goes_on_slower": replace(SICK, seed=5, leak=2.5, seconds=120),
    "leak_goes_on_without_walks": replace(SICK, seed=5, walk_s=0, seconds=120),
    "walks_go_on": replace(SICK, seed=9, leak=0),
}
SCENES: dict[str, tuple[Callable[[], Told], Callable[[], Told]]] = {
    "as_published_then_healthy": (zombies.as_published, quiet.healthy_and_busy),
    "as_published_then_the_same": (zombies.as_published, zombies.as_published),
    "crash_loop_then_healthy": (quiet.crash_loop_without_a_leak, quiet.healthy_and_busy),
    "throttled_then_healthy": (quiet.one_tenant_throttled, quiet.healthy_and_busy),
    "healthy_then_throttled": (quiet.healthy_and_busy, quiet.one_tenant_throttled),
    "reclaim_then_reset": (rivals.kswapd_without_zombies, quiet.reset_out_of_the_blue),
}
PAIRS = (
    ("zombie-starvation", "healthy"),
    ("zombie-starvation", "starvation-then-idle"),
    ("zombie-starvation", "zombie-starvation"),
    ("starvation-then-cleaned", "healthy"),
)
"""Of recordings."""


def proofs() -> dict[str, Data]:
    sick, after = node(SICK), {name: node(made) for name, made in AFTER.items()}
    cases = {f"sick/{name}": adapter.proof(sick, made) for name, made in after.items()}
    for name in ("cured", "leak_goes_on", "cured_too_short"):
        cases[f"nothing_before/{name}"] = adapter.proof(None, after[name])
    cases["sick/cured_with_a_gap"] = adapter.proof(sick, holed(after["cured"], (60.0, 180.0)))
    for name, (before, then) in SCENES.items():
        cases[f"scenes/{name}"] = adapter.proof(before().recording, then().recording)
    for first, second in PAIRS:
        cases[f"recordings/{first}/{second}"] = adapter.proof(_loaded(first), _loaded(second))
    return cases


def _loaded(name: str) -> Recording:
    return Folder(str(RECORDINGS / name)).load()
