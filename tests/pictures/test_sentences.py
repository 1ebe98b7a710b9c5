"""Sentences that all reports share: who, whose doing, what else, of which node, how sure, seen with what."""

from dataclasses import replace

import pytest

from exhume.findings.model import Evidence, Finding
from exhume.findings.thresholds import Thresholds
from exhume.pictures import report_html, report_markdown, sentences
from exhume.pictures.words import value, what
from exhume.recording.recording import Node
from exhume.verdict.diagnose import diagnose
from exhume.verdict.report import Culprit, Source
from tests.pictures.test_report_html import Page, seen
from tests.pictures.told import told


def finding(kind: str = "core-saturated", **evidence: str | int) -> Finding:
    """Evidence by name, with _ for a space."""
    found = tuple(Evidence(name.replace("_", " "), told, "", "x") for name, told in evidence.items())
    return Finding(kind, "core 1", "warning", 0, 1, "core 1 is full", found)


def test_of_packets_it_is_who_sends_them() -> None:
    busy = finding(process="ksoftirqd/1 [22]", its_cgroup="/", packets_sent_by="flood [7]")
    with_cgroup = replace(busy, evidence=(*busy.evidence, Evidence("sender's cgroup", "/web/sender", "", "x")))
    assert sentences.who([busy]) == "flood [7] sends the packets; ksoftirqd/1 [22] is where they arrive"
    assert sentences.who([finding(process="other [1]"), with_cgroup]) == (
        "flood [7] in /web/sender sends the packets; ksoftirqd/1 [22] is where they arrive"
    )


def test_who_has_its_own_cgroup_and_its_policy_and_nobody_else_s() -> None:
    real_time = finding(process="spin [9]", policy="SCHED_FIFO 50", its_cgroup="/web")
    assert sentences.who([real_time]) == "spin [9] (SCHED_FIFO 50) in /web"
    assert sentences.who([finding(process="a [1]"), finding(process="b [2]", its_cgroup="/b")]) == "a [1]"
    assert sentences.who([finding(process="ksoftirqd/1 [22]", its_cgroup="/")]) == "ksoftirqd/1 [22]"
    assert sentences.who([finding(it="reclaims memory")]) == "reclaims memory"
    assert sentences.who([finding()]) == ""


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
    log = [Source("kernel-log", "on", "imported: kernel log", 0)]
    text = sentences.seen_with(log, "kernel log")
    assert text.startswith("kernel log alone, which has nothing about what the cores did, stack samples, ")
    assert "the kernel's log" not in text
    assert sentences.seen_with([*log, Source("nic", "off", "no device", 0)], "") == (
        "1 of 2 sources of data. Off: nic (no device)"
    )


def test_numbers_are_told_in_the_words_of_the_sentences() -> None:
    def of(days: float) -> str:
        return value(Evidence("days to pain", days, "days", "to 20,000 zombies at this rate"))

    assert [of(days) for days in (0.04, 0.01, 0.0001, 0.5, 1.5, 2.0, 40.2)] == [
        *("58 min", "14 min", "1 min", "12 h", "36 h", "2 days", "40 days")
    ]
    assert what(Evidence("days to pain", 1, "days", "x")) == "time left"
    assert what(Evidence("pinned by anon", 1, "bytes", "x")) == "pinned by shared memory or tmpfs"
    assert what(Evidence("zombies", 1, "", "x")) == "zombies"


def test_every_culprit_and_what_else_is_wrong_comes_before_the_pictures() -> None:
    scene = seen(told())
    also = Finding("oom", "python", "warning", *scene.focus, "python was killed")
    verdict = replace(scene.verdict, culprits=(Culprit("ecs.service", 0.9), Culprit("other.service", 0.1)))
    report = replace(scene.report, verdict=verdict, findings=(*scene.report.findings, also))
    scene = replace(scene, report=report)
    html, markdown = report_html.page(scene), report_markdown.page(scene)
    items = Page(html).texts["li"]
    assert " ecs.service (90%), other.service (10%)" in items[:3]
    assert html.index("other.service (10%)") < html.index("oom: python was killed") < html.index("<svg")
    top = markdown[: markdown.index("## ")]
    assert "- Culprits: ecs.service (90%), other.service (10%)\n" in top
    assert "- Who: kubelet \\[4242\\] in /system.slice/kubelet.service\n" in top
    assert "- Also: oom: python was killed\n" in top


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
    sampled = [Source("samples", "on", "imported: perf.data", 0)]
    text = sentences.seen_with(sampled, "perf.data, kernel log")
    assert text.startswith("perf.data, kernel log alone, which has nothing about memory cgroups, ")
    command = [*sampled, Source("every-core", "off", "of one command", 0)]
    assert "nothing about what the cores did, the kernel's log, " in sentences.seen_with(command, "perf.data")
