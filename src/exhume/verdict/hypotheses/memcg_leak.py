"""memcg-leak: somebody makes memory cgroups and leaves dead ones behind, again and again."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.fixing import fix_unit, fixable
from exhume.verdict.hypotheses.model import MOSTLY, NEARLY, Case, Hypothesis, Judged, Rule
from exhume.verdict.report import Advice, Culprit, Remedy


def _makes_zombies(leak: Finding, zombies: Finding) -> Judged:
    share = leak.number("share")
    if unreaped(leak):
        return 0.45, f"{share:.0%} of all zombies were found there; but processes that were not reaped hold them"
    return (0.99 if share >= NEARLY else 0.97), f"{share:.0%} of all zombies were found there, by name"


def unreaped(leak: Finding) -> bool:
    """Whether unreaped processes hold most of its zombies: then it is not who makes the groups that has to be stopped."""
    return leak.number("unreaped") >= MOSTLY * max(1.0, leak.number("zombies"))


def owner(leak: Finding) -> str:
    """Who it is: the unit, else the program that makes the groups where it does so on its own account, else the place."""
    for what in ("unit", "made by unit", "pod"):
        value = leak.value(what)
        if value:
            return str(value)
    return leak.subject


def culprits(leak: Finding, case: Case) -> Iterator[Culprit]:
    """Every place that leaks has its share, the largest first."""
    for each in sorted(case.of("memcg-leak"), key=lambda one: -one.number("share")):
        yield Culprit(owner(each), each.number("share"))


def advice(leak: Finding, case: Case) -> Iterator[Advice]:
    whose = owner(leak)
    unused = [agent.subject for agent in case.of("unused-agent", serious=False)]
    if whose in unused and fixable(leak, whose):
        yield Advice(f"disable {whose}: exhume fix {whose}", "it leaks, and nothing on this node needs it")
    rate, count = leak.number("rate"), leak.number("zombies")
    if rate > 0 and count / rate >= 1:
        lasts = count / rate / 24
        how_long = f"{lasts:.1f} days" if lasts >= 1 else f"{lasts * 24:.0f} hours"
        yield Advice(
            "a reboot before the leak is stopped",
            f"at {rate:,.0f} an hour the same number is back {how_long} after a reboot; a purge needs none",
            cost="a reboot",
            against=True,
        )
    if case.node.cgroups == "v1":
        yield Advice(
            "move to cgroup v2, and to a kernel that releases dead groups",
            "v2 counts them by directory (cgroup.stat) and can be told where to reclaim (memory.reclaim, 5.19); v1 neither",
            cost="an upgrade",
        )


def remedies(finding: Finding, case: Case) -> Iterator[Remedy]:
    """For every place that leaks, not only the first: whoever does it is stopped, then what was leaked is let go."""
    yield from dict.fromkeys(one for each in case.of("memcg-leak") for one in fix_unit(each, owner(each), leaks=True))
    yield from purges(finding, case)


def purges(finding: Finding, case: Case) -> Iterator[Remedy]:
    homes = [each.value("home") for each in case.of("memcg-leak")] or [finding.value("parent") or "/"]
    for home in dict.fromkeys(str(home or "/") for home in homes):
        summary = f"exhume zombies purge --under {home}: lets them go without a reboot; --dry-run first says how many"
        yield Remedy("purge-zombies", home, summary)


def _step(leak: Finding, case: Case) -> str:
    if unreaped(leak):
        return "exhume zombies    # what holds them"
    whose = owner(leak)
    others = [owner(each) for each in case.of("memcg-leak") if each is not leak and owner(each) != whose]
    also = f"; the same for {', '.join(dict.fromkeys(others))}" if others else ""
    rate = "" if leak.number("rate") else "exhume zombies --follow 30s shows the leak's rate; "
    if fixable(leak, whose):
        return f"{rate}exhume fix {whose} says how it is stopped and disabled, if nothing needs it{also}"
    return f"{rate}stop and disable what makes them if nothing needs it{also}"


HYPOTHESIS = Hypothesis(
    "memcg-leak",
    title=lambda finding: f"the zombie memory cgroups of {owner(finding)}",
    rules=(Rule("zombie-memcgs", _makes_zombies, "zombies that stay the same in number while the groups there come and go"),),
    culprits=culprits,
    step=_step,
    advice=advice,
    remedies=remedies,
)
