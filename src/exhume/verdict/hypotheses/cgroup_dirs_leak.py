"""cgroup-dirs-leak: visible cgroup directories that nobody removes. Whoever lists or walks them pays for all of them."""

from collections.abc import Iterator

from exhume.findings.model import Finding
from exhume.verdict.hypotheses.model import MOSTLY, Case, Hypothesis, Judged, Rule, held_by, looked
from exhume.verdict.hypotheses.model import seen_there as _seen
from exhume.verdict.report import Culprit, Remedy

LISTED = "listed cgroup directories"


def _saturate(dirs: Finding, core: Finding) -> Judged:
    if not looked(core):
        return 0.3, "both are there at once; no stack was taken to show that this core walks them"
    walked = core.number("walked memory cgroups") + core.number("summed up statistics")
    listed = core.number(LISTED)
    if listed >= MOSTLY:
        sure, seen = _seen(core, listed)
        return min(0.9, sure), f"cgroup directories are listed and read {seen}, and these are most of them"
    if walked + listed < MOSTLY:
        return None
    sure, seen = _seen(core, walked + listed)
    return min(0.8, sure), f"cgroups are walked {seen}, and these directories are among them"


# Hierarchies of v1 that have no memory controller: nobody who walks memory cgroups comes by there.
_OTHERS = frozenset(
    "systemd cpu cpuacct cpu,cpuacct cpuset pids devices freezer blkio net_cls net_prio net_cls,net_prio hugetlb perf_event "
    "rdma misc".split()
)


def _are_walked(dirs: Finding, walk: Finding) -> Judged:
    if _OTHERS.intersection(str(dirs.value("directory") or "").split("/")[:5]):
        return None
    return 0.7, f"a walk visits every group, and {dirs.number('directories'):,.0f} of them are these directories"


def _starve(dirs: Finding, napi: Finding) -> Judged:
    listed = held_by(napi, LISTED, "cgroup directories were listed, these among them,", 0.85)
    return listed or held_by(napi, "walked memory cgroups", "cgroups were walked, these directories among them,", 0.8)


def _fill(dirs: Finding, full: Finding) -> Judged:
    reader = str(dirs.value("read by") or "").rsplit(" [", 1)[0]
    busiest = str(full.value("busiest") or "")
    if not reader or not busiest.startswith(f"{reader} [") or dirs.number("reading share") < MOSTLY:
        return None
    return 0.6, f"{reader}, which uses most of the machine, spends {dirs.number('reading share'):.0%} of a core on reading them"


def _culprits(dirs: Finding, case: Case) -> Iterator[Culprit]:
    maker = dirs.value("made by unit") or dirs.value("made by")
    yield Culprit(str(maker) if maker and not dirs.value("hand") else dirs.subject, 1.0)


def _remedies(dirs: Finding, case: Case) -> Iterator[Remedy]:
    summary = "exhume fix cgroup-dirs-leak: removes those that have neither a process nor an owner, bottom up; cannot be undone"
    yield Remedy("fix", "cgroup-dirs-leak", summary)


HYPOTHESIS = Hypothesis(
    "cgroup-dirs-leak",
    title=lambda finding: f"the cgroup directories that pile up in {finding.subject}",
    rules=(
        Rule("memcg-walk", _are_walked, "a walk that is as long after they were removed"),
        Rule("cpu-full", _fill, "a machine that is as full after they were removed"),
        Rule("core-saturated", _saturate, "a core that is as full after they were removed"),
        Rule("napi-starved", _starve, "stalls that go on after they were removed"),
    ),
    culprits=_culprits,
    step="stop what makes them, then: exhume fix cgroup-dirs-leak removes those below {directory} that nobody has",
    remedies=_remedies,
)
