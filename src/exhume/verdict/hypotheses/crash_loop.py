"""crash-loop: a program that is started again and again. It harms by what it leaves behind each time."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.fixing import fix_unit, fixable
from exhume.verdict.hypotheses.memcg_leak import culprits as of_leaks
from exhume.verdict.hypotheses.memcg_leak import remedies as of_leaked
from exhume.verdict.hypotheses.model import Case, Hypothesis, Judged, Rule, within
from exhume.verdict.report import Advice, Culprit, Remedy

_DISPROOF = "zombies that grow while it is stopped"


def _is_the_leak(loop: Finding, leak: Finding) -> Judged:
    if loop.subject in (leak.value("unit"), leak.value("made by unit")):
        return 0.9, "the unit that owns the leaked cgroups is the one that restarts"
    removed, stayed = loop.number("restarts in the window"), loop.number("unreleased")
    place = loop.value("cgroup")
    if (place and place in (leak.value("path"), leak.value("home"), leak.subject)) or within(leak.value("home"), place):
        if stayed:
            return 0.9, f"{stayed:,.0f} of the {removed:,.0f} groups that it made and removed there while we looked are zombies"
        return 0.6, "its groups live in the same place"
    if within(place, leak.value("home")):
        return 0.8, "the zombies were below this unit's own cgroup"
    maker = leak.value("made by")
    if maker and maker in (loop.value("supervisor"), loop.value("process")):
        return 0.85, f"{maker} makes the groups that stay behind"
    return None


def _leaks(loop: Finding, zombies: Finding) -> Judged:
    """A unit is only blamed for zombies inside its own cgroup, or for a number that fits: a slice holds everybody's."""
    if within(loop.value("cgroup"), zombies.value("parent")):
        return 0.8, "the zombies were below this unit's own cgroup"
    grew, meanwhile = zombies.number("growth"), loop.number("restarts in the window")
    if stayed := loop.number("unreleased"):
        return 0.8, f"{stayed:,.0f} of the {meanwhile:,.0f} groups that it made and removed while we looked are zombies"
    if meanwhile >= 2 and 0.5 <= grew / meanwhile <= 2.0:
        return 0.6, f"{meanwhile:,.0f} restarts and {grew:,.0f} new zombies while we looked"
    restarts, count = loop.number("restarts"), zombies.number("zombies")
    if restarts >= 100 and 0.8 <= count / restarts <= 1.25:
        return 0.6, f"{restarts:,.0f} restarts, {count:,.0f} zombies: about one each"
    return None


def _culprits(loop: Finding, case: Case) -> Iterator[Culprit]:
    """The one that loops, and who else leaks, if that is what is the matter."""
    linked = next((link.finding for link in case.chain if link.finding.kind == "memcg-leak"), None)
    if linked is None:
        yield Culprit(loop.subject, 1.0)
        return
    yield Culprit(loop.subject, linked.number("share"))
    others = [each for each in case.of("memcg-leak") if each is not linked]
    yield from of_leaks(linked, Case(case.node, tuple(others), case.chain))


def _advice(loop: Finding, case: Case) -> Iterator[Advice]:
    unit = loop.value("unit") or loop.subject
    if fixable(loop, unit) and any(agent.subject == unit for agent in case.of("unused-agent", serious=False)):
        yield Advice(f"disable {unit}: exhume fix {unit}", "it never gets to work, and nothing here needs it")


def _step(loop: Finding, case: Case) -> str:
    unit = next((str(name) for name in (loop.value("unit"), loop.subject) if fixable(loop, name)), "")
    if unit:
        return f"journalctl -u {unit} -n 50 says why it exits; exhume fix {unit} says how it is disabled, if nothing needs it"
    who = loop.value("supervisor") or loop.value("process")
    return (
        f"find out why what {who} starts there does not stay" if who else f"find out what starts {loop.subject} again and again"
    )


def _remedies(loop: Finding, case: Case) -> Iterator[Remedy]:
    """The one that loops; where it leaks, what was leaked too."""
    leaks = case.has("memcg-leak", "zombie-memcgs")
    found = [*fix_unit(loop, loop.value("unit") or loop.subject, leaks)]
    yield from found
    if leaks:
        linked = next(link.finding for link in case.chain if link.finding.kind in ("memcg-leak", "zombie-memcgs"))
        yield from (
            one for one in of_leaked(linked, case) if (one.id, one.target) not in {(two.id, two.target) for two in found}
        )


HYPOTHESIS = Hypothesis(
    "crash-loop",
    title=lambda finding: f"zombie memory cgroups of the crash-looping {finding.subject}",
    rules=(Rule("memcg-leak", _is_the_leak, _DISPROOF), Rule("zombie-memcgs", _leaks, _DISPROOF)),
    culprits=_culprits,
    step=_step,
    advice=_advice,
    remedies=_remedies,
)
