"""The reports that are files: one HTML page that needs nothing and lets nothing in, and Markdown for post-mortems."""

import base64
import hashlib
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Annotated, ClassVar
from xml.etree import ElementTree

import pytest

from exhume.cli.diagnose_text import render
from exhume.cli.terminal import Style
from exhume.diagnosis.diagnose import diagnose
from exhume.diagnosis.findings.kind import Advice
from exhume.diagnosis.findings.model import Facts, Finding, Shown
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import Incident, RuledOut
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.recording.tally import Tally, tally
from exhume.render import chain_svg, report_html, report_markdown
from exhume.render.baseline import quiet
from exhume.render.flame import Compared, compare
from exhume.render.flame_svg import script
from exhume.render.scene import Scene, focus_of, scene, told
from tests.diagnosis.findings import made
from tests.render.test_timeline import CLOCK
from tests.render.told import BEGIN, SECOND, Names
from tests.render.told import told as recorded

HOSTILE = "<script>alert(1)</script>\"'&]]>\x1b[31m\x00\u202e</style></svg>"
NAMES = Names(
    host=HOSTILE,
    comm=HOSTILE + "c",
    cgroup="/a/" + HOSTILE,
    unit=HOSTILE + "u",
    device=HOSTILE + "d",
    symbol=HOSTILE + "s",
    message=HOSTILE + "m",
)
FOCUS = (BEGIN + 60 * SECOND, BEGIN + round(66.6 * SECOND))
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "script", "div", "span", "h1", "h2", "h3", "p", "ul", "li"),
    *("strong", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre", "svg", "g", "rect", "path", "text"),
}


def seen(recording: Recording) -> Scene:
    report = diagnose(recording, Thresholds())
    whole = (recording.window[0], recording.window[1] + 1)
    incident = told(report)
    return scene(report, recording, focus_of(report, whole, incident), whole, CLOCK, "REC", incident, True)


def profile(recording: Recording, start: int, end: int, core: int = 39) -> tuple[Tally, Recording]:
    samples = recording["samples"]
    time = samples.ints("time")
    keep = (time >= start) & (time < end) & (samples.ints("core") == core)
    return tally(*(samples.ints(name)[keep] for name in ("core", "thread", "stack"))), recording


def compared(recording: Recording) -> Compared:
    before = quiet(recording, FOCUS, 39)
    assert before is not None
    found = compare(profile(recording, *FOCUS), profile(recording, *before), before, 39)
    assert found is not None
    return found


class Page(HTMLParser):
    """Every tag, attribute and text of a page, as a browser would find them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.setdefault(self._open[-1], []).append(data)


@pytest.fixture(scope="module")
def friendly() -> str:
    recording = recorded()
    return report_html.page(seen(recording), compared(recording), ["exhume flame REC --cpu 39"])


@record(frozen=True, slots=True, kw_only=True)
class _Odd(Facts):
    """A finding with nothing in it that may be trusted."""

    kind: ClassVar[str] = HOSTILE
    name: Annotated[str, Shown(HOSTILE, HOSTILE, HOSTILE)]

    def summary(self) -> str:
        return HOSTILE

    def short(self) -> tuple[str, str]:
        return HOSTILE, HOSTILE


@pytest.fixture(scope="module")
def hostile() -> str:
    recording = recorded(names=NAMES)
    shown = seen(recording)
    odd = Finding(_Odd(subject=HOSTILE, name=HOSTILE), "warning", *FOCUS)
    verdict = replace(
        shown.verdict,
        summary=HOSTILE,
        ruled_out=(RuledOut(HOSTILE, HOSTILE),),
        next=(HOSTILE,),
        against=(HOSTILE,),
        switch_on=(HOSTILE,),
        advice=(Advice(HOSTILE, HOSTILE), Advice(HOSTILE, HOSTILE, against=True)),
        chain=tuple(replace(link, because=HOSTILE, disproof=HOSTILE) for link in shown.verdict.chain),
    )
    report = replace(shown.report, verdict=verdict, findings=(*shown.report.findings, odd))
    return report_html.page(replace(shown, report=report), compared(recording), [HOSTILE])


def test_the_page_tells_the_incident(friendly: str) -> None:
    page = Page(friendly)
    text = " ".join(" ".join(parts) for tag, parts in page.texts.items() if tag not in ("style", "script"))
    for wanted in (
        *("CRITICAL", "68,440 zombie memory cgroups", "core 39 at 100% system", "eth0 queue 5 not polled", "kubelet [4242]"),
        *("TX q 5 is paused for too long", "Ruled out", "What to do", "Sources", "the kernel has no BTF"),
    ):
        assert wanted in text, wanted
    assert set(page.tags) <= TAGS


def test_nothing_is_loaded_from_anywhere(friendly: str) -> None:
    page = Page(friendly)
    assert not [
        each for each in page.attributes if each[1] in ("src", "href", "srcset", "xlink:href", "action", "data", "style")
    ]
    assert "url(" not in friendly
    assert "@import" not in friendly
    addresses = set(re.findall(r"[a-z]+://[^\s\"']*", friendly))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # the name of a kind of element, in the script


def test_the_policy_allows_this_style_and_this_script_only(friendly: str) -> None:
    page = Page(friendly)
    (policy,) = [
        value for tag, name, value in page.attributes if tag == "meta" and name == "content" and "default-src" in value
    ]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        (content,) = page.texts[tag]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_hostile_names_stay_text(hostile: str) -> None:
    page = Page(hostile)
    assert set(page.tags) <= TAGS
    assert page.tags.count("script") == page.tags.count("style") == 1
    assert page.texts["script"] == [script()]
    assert not [each for each in page.attributes if each[1].startswith("on")]
    assert {name for _, name, _ in page.attributes} <= {
        *("lang", "charset", "http-equiv", "content", "name", "class", "open", "x", "y", "d", "width", "height", "rx"),
        *("viewbox", "role", "aria-label", "aria-hidden", "data-s", "data-n", "data-d"),
    }
    shown = " ".join(text for parts in page.texts.values() for text in parts)
    assert shown.count("<script>alert(1)</script>\"'&]]>\\x1b[31m\\x00\\u202e</style></svg>") > 20
    assert not set(hostile) & {*map(chr, range(9)), *map(chr, range(11, 32)), "\u202e"}
    assert "alert(1)</script>" not in hostile


def test_every_state_of_knowledge_has_a_page() -> None:
    empty = made.recording(on=())
    quiet_node = made.recording(cpus=2)
    made.cores(quiet_node, 3.0, {})
    for recording, word in ((empty, "UNKNOWN"), (quiet_node, "HEALTHY")):
        page = Page(report_html.page(seen(recording)))
        assert word in page.texts["span"]
        assert set(page.tags) <= TAGS
        assert report_markdown.page(seen(recording)).startswith("# node-7: ")


def test_the_chain_is_a_box_a_link_with_an_arrow_between() -> None:
    chain = seen(recorded()).verdict.chain
    root = ElementTree.fromstring(chain_svg.svg(chain))
    texts = [(element.attrib["class"], element.text) for element in root.iter("text")]
    assert [text for kind, text in texts if kind == "what"] == [link.finding.facts.short()[0] for link in chain]
    assert sum(kind == "because" for kind, _ in texts) >= len(chain) - 1
    assert len([element for element in root.iter("path") if element.attrib["class"] == "head"]) == len(chain) - 1


def test_incidents_are_grouped_by_cause() -> None:
    recording = recorded()
    report = diagnose(recording, Thresholds())
    mine = Incident(*FOCUS, "critical", report.verdict, report.findings)
    again = [replace(mine, start=FOCUS[0] + i, verdict=replace(report.verdict)) for i in (1, 2)]
    other = replace(mine, verdict=replace(report.verdict, cause="oom", subject="python", summary="killed"))
    report = replace(report, incidents=(mine, *again, other))
    shown = scene(report, recording, FOCUS, recording.window, CLOCK, "", told(report))
    assert shown.alike == (FOCUS[0] + 1, FOCUS[0] + 2)
    assert [(group.cause, group.starts) for group in shown.others] == [("oom", (FOCUS[0],))]
    text = " ".join(Page(report_html.page(shown)).texts["li"])
    assert "2 more like this: 60.0, 60.0" in text
    assert "1 × killed at 60.0" in text


def test_incidents_that_were_not_judged_are_one_line_of_every_report() -> None:
    shown = seen(recorded())
    times = tuple((FOCUS[0] + at * SECOND, FOCUS[1] + at * SECOND) for at in range(30))
    shown = replace(shown, report=replace(shown.report, further=times, more=70))
    pages = report_html.page(shown), report_markdown.page(shown, ()), render(shown, Style(io.StringIO()), 100)
    for page in pages:
        assert page.count("100 more were not judged; --at judges one: ") == 1
        assert CLOCK.short(times[0][0]) in page.partition("--at judges one")[2].splitlines()[0]
    assert "not judged;" not in report_html.page(seen(recorded()))


def test_the_incident_that_was_asked_for_is_told() -> None:
    recording = recorded()
    report = diagnose(recording, Thresholds())
    one, two = (Incident(t, t + 10, "warning", replace(report.verdict), report.findings) for t in (100, 200))
    report = replace(report, incidents=(one, two))
    assert told(report) is None
    assert told(report, last=True) is two
    assert told(report, at=105) is one
    assert told(report, at=149) is one
    assert told(report, at=170) is two
    assert told(replace(report, verdict=one.verdict)) is one
