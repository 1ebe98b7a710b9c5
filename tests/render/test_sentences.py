"""Sentences that all reports share: who, whose doing, what else, of which node, how sure, seen with what."""

from dataclasses import replace
from typing import Any

import pytest

from exhume.diagnosis.diagnose import diagnose
from exhume.diagnosis.findings.core_facts import CoreSaturated, PacketSender
from exhume.diagnosis.findings.kind import Culprit
from exhume.diagnosis.findings.model import Finding
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.findings.offender import Offender
from exhume.diagnosis.findings.oom import Constraint, Oom
from exhume.diagnosis.findings.stall_facts import MeasuredStalls
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import Source
from exhume.recording.recording import Node
from exhume.recording.source_state import Failed, Imported, SourceState
from exhume.render import report_html, report_markdown, sentences
from tests.diagnosis.findings.facts import finding
from tests.render.test_report_html import Page, seen
from tests.render.told import told


def core(comm: str = "", pid: int = 0, cgroup: str = "", **given: Any) -> Finding[CoreSaturated]:
    """A full core, and the process that has it."""
    return finding(CoreSaturated, subject="core 1", offender=offender(comm, pid, cgroup) if comm else None, **given)


def offender(comm: str, pid: int, cgroup: str = "") -> Offender:
    return Offender(process=Process(comm, pid), seen_in="x", cgroup=cgroup)


def test_of_packets_it_is_who_sends_them() -> None:
    flood = PacketSender(process=Process("flood", 7), send_ratio=1.0)
    busy = core("ksoftirqd/1", 22, "/", sender=flood)
    with_cgroup = core("ksoftirqd/1", 22, "/", sender=replace(flood, cgroup="/web/sender"))
    assert sentences.who([busy]) == "flood [7] sends the packets; ksoftirqd/1 [22] is where they arrive"
    assert sentences.who([core("other", 1), with_cgroup]) == (
        "flood [7] in /web/sender sends the packets; ksoftirqd/1 [22] is where they arrive"
    )


def test_who_has_its_own_cgroup_and_its_policy_and_nobody_else_s() -> None:
    measured = MeasuredStalls(
        stalls=1,
        unfinished=0,
        cores=(1,),
        longest_ms=90,
        late_ms=90,
        late_ratio=0.1,
        offender=offender("spin", 9, "/web"),
        policy="SCHED_FIFO 50",
    )
    assert sentences.who([finding(NapiStarved, measured=measured)]) == "spin [9] (SCHED_FIFO 50) in /web"
    assert sentences.who([core("a", 1), core("b", 2, "/b")]) == "a [1]"
    assert sentences.who([core("ksoftirqd/1", 22, "/")]) == "ksoftirqd/1 [22]"
    assert sentences.who([core(did="reclaims memory")]) == "reclaims memory"
    assert sentences.who([core()]) == ""


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("zombie memory cgroups of x starve eth0", "Zombie memory cgroups of x starve eth0"),
        ("ecs.service leaks memory cgroups", "ecs.service leaks memory cgroups"),
        ("/system.slice/a leaks", "/system.slice/a leaks"),
        ("python [12 and 1 more] holds a core", "python [12 and 1 more] holds a core"),
        ("eth0 was reset", "eth0 was reset"),
        ("", ""),
    ],
)
def test_only_words_get_a_capital_letter(text: str, title: str) -> None:
    assert sentences.headline(text) == title


def test_a_single_finding_has_no_confidence() -> None:
    verdict = diagnose(told(), Thresholds()).verdict
    assert sentences.sure(verdict) == f"confidence {verdict.confidence:.0%}"
    assert sentences.sure(replace(verdict, chain=verdict.chain[:1])) == ""
    assert sentences.sure(replace(verdict, cause=None)) == ""


def test_a_node_that_a_file_does_not_tell_of_is_not_known() -> None:
    nobody = Node("unknown", "imported", "", "none", 0)
    assert sentences.node(nobody, "kernel log") == ["node not known", "cgroups not known"]
    assert sentences.node(replace(nobody, hostname="n7", cpus=4), "") == ["n7", "4 cores", "cgroups none"]


def test_what_a_file_has_not_is_said() -> None:
    log = [Source("kernel-log", SourceState.read((Imported("kernel log"),)), 0)]
    text = sentences.seen_with(log, "kernel log")
    assert text.startswith("kernel log alone, which has nothing about what the cores did, stack samples, ")
    assert "the kernel's log" not in text
    assert sentences.seen_with([*log, Source("nic", SourceState.off(Failed("no device")), 0)], "") == (
        "1 of 2 sources of data. Off: nic (no device)"
    )


def test_every_culprit_and_what_else_is_wrong_comes_before_the_pictures() -> None:
    scene = seen(told())
    killed = Oom(subject="python", kills=1, constraint=Constraint.NONE, last_age_s=60)
    also = Finding(killed, "warning", *scene.focus)
    verdict = replace(scene.verdict, culprits=(Culprit("ecs.service", 0.9), Culprit("other.service", 0.1)))
    report = replace(scene.report, verdict=verdict, findings=(*scene.report.findings, also))
    scene = replace(scene, report=report)
    html, markdown = report_html.page(scene), report_markdown.page(scene)
    items = Page(html).texts["li"]
    assert " ecs.service (90%), other.service (10%)" in items[:3]
    assert html.index("other.service (10%)") < html.index(f"oom: {also.summary}") < html.index("<svg")
    top = markdown[: markdown.index("## ")]
    assert "- Culprits: ecs.service (90%), other.service (10%)\n" in top
    assert "- Who: kubelet \\[4242\\] in /system.slice/kubelet.service\n" in top
    assert f"- Also: oom: {also.summary}\n" in top


def test_pseudonyms_are_said_on_every_page() -> None:
    scene = seen(told())
    for page in (report_html.page, report_markdown.page):
        assert sentences.PSEUDONYMS not in page(scene)
        assert sentences.PSEUDONYMS in page(replace(scene, pseudonyms=True))


def test_what_is_ruled_out_by_a_near_number_has_the_bar_beside_it() -> None:
    scene = replace(seen(told()), bars={"cpu-full": "full is 90% busy for 10 s"})
    assert "% idle; full is 90% busy for 10 s" in report_html.page(scene)
    assert "% idle; full is 90% busy for 10 s" in report_markdown.page(scene)


def test_what_the_files_have_is_not_said_to_be_missing() -> None:
    sampled = [Source("samples", SourceState.read((Imported("perf.data"),)), 0)]
    text = sentences.seen_with(sampled, "perf.data, kernel log")
    assert text.startswith("perf.data, kernel log alone, which has nothing about memory cgroups, ")
    command = [*sampled, Source("every-core", SourceState.off(Failed("of one command")), 0)]
    assert "nothing about what the cores did, the kernel's log, " in sentences.seen_with(command, "perf.data")
