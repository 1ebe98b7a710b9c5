"""defunct-processes: dead processes that their parent does not reap. Each keeps its memory cgroup after rmdir, as a zombie."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.memcg_leak import purges
from exhume.verdict.hypotheses.model import HARDLY, MOSTLY, NEARLY, Case, Hypothesis, Judged, Rule, program
from exhume.verdict.report import Advice, Culprit, Remedy

_DISPROOF = "zombies that stay after their processes were reaped"


def _share(defunct: Finding, zombies: Finding) -> float:
    """Of the zombies that they hold."""
    held = max(defunct.number("zombies held"), defunct.number("zombies perhaps held"))
    return min(1.0, held / max(1.0, zombies.number("zombies")))


def _hold(defunct: Finding, zombies: Finding) -> Judged:
    """By how many of the zombies they hold: that both are there says nothing."""
    share = _share(defunct, zombies)
    if share < HARDLY:
        return None
    if held := defunct.number("zombies held"):
        all_of = f"{held:,.0f} of the {zombies.number('zombies'):,.0f} zombies"
        said = f"{all_of} are held by dead processes that {_parent(defunct)} has not reaped"
        return (0.97 if share >= NEARLY else 0.93 if share >= MOSTLY else 0.3), said
    said = (
        f"{defunct.number('defunct'):,.0f} defunct processes, {defunct.number('zombies perhaps held'):,.0f} zombies to which "
        "nothing is charged: about one each; the kernel was not asked which process holds which"
    )
    return (0.6 if share >= MOSTLY else 0.3), said


def _parent(defunct: Finding) -> str:
    """Who does not reap: its unit, its pod, else its name and PID."""
    return program(defunct) or f"PID {defunct.value('parent')}" if defunct.value("parent") else "their parent"


def _culprits(defunct: Finding, case: Case) -> Iterator[Culprit]:
    if defunct.value("parent") not in (None, "1"):
        zombies = next((link.finding for link in case.chain if link.finding.kind == "zombie-memcgs"), None)
        yield Culprit(_parent(defunct), 1.0 if zombies is None else round(_share(defunct, zombies), 3))


def _advice(defunct: Finding, case: Case) -> Iterator[Advice]:
    if case.has("zombie-memcgs"):
        yield Advice(
            "purge the zombies, or drop caches",
            "no page holds these zombies: they go when their processes are reaped",
            against=True,
        )


def _remedies(defunct: Finding, case: Case) -> Iterator[Remedy]:
    yield Remedy(
        "fix",
        "defunct-processes",
        "exhume fix defunct-processes: sends SIGCHLD to the parent, then restarts its unit; cannot be undone",
    )
    zombies = next((link.finding for link in case.chain if link.finding.kind == "zombie-memcgs"), None)
    if zombies is not None and _share(defunct, zombies) < NEARLY:
        yield from purges(zombies, case)  # for the others


def _step(defunct: Finding, case: Case) -> str:
    who = _parent(defunct)
    name = f"{who} does not reap its children" if defunct.value("parent") else "which parent does not reap its children"
    return f"exhume fix defunct-processes    # {name}"


HYPOTHESIS = Hypothesis(
    "defunct-processes",
    title=lambda finding: f"zombie memory cgroups of dead processes that {_parent(finding)} does not reap",
    rules=(Rule("zombie-memcgs", _hold, _DISPROOF),),
    culprits=_culprits,
    step=_step,
    advice=_advice,
    remedies=_remedies,
)
