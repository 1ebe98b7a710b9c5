"""The report as Markdown: its parts, and names that stay text."""

import re
from dataclasses import replace

from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.model import Finding, Span
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.render import report_markdown
from tests.diagnosis.findings.facts import facts
from tests.render.test_report_html import FOCUS, NAMES, seen
from tests.render.told import SECOND
from tests.render.told import told as recorded


def test_markdown_has_all_parts_in_order() -> None:
    text = report_markdown.page(seen(recorded()), ["exhume flame REC"])
    parts = re.findall("^## (.*)$", text, re.MULTILINE)
    assert parts[:4] == ["Timeline", "What led to what", "Evidence", "Ruled out"]
    assert parts[-2:] == ["Actions", "Appendix"]
    assert re.search(r"^- \[ \] .*ecs\.service", text, re.MULTILINE)
    assert "| 66.6 | ena 0000:20:03.0 eth0: TX q 5 is paused" in text
    assert "    exhume flame REC" in text.splitlines()


def test_markdown_of_hostile_names_is_text_in_whole_tables() -> None:
    names = replace(NAMES, message="a|b\n| c | `x` ![i](j) <img src=x>")
    text = report_markdown.page(seen(recorded(names=names)))
    assert "<" not in text
    assert not re.search(r"(?<!\\)[`\[]", re.sub(r"^- \[ \]", "", text, flags=re.MULTILINE))
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        cells = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(cells) == 1, table


def test_what_happens_again_and_again_is_one_row() -> None:
    scene = seen(recorded())
    spans = tuple(Span(1, FOCUS[0] + i * SECOND // 4, FOCUS[0] + i * SECOND // 4 + (i + 1) * 1_000_000) for i in range(20))
    late = Finding(facts(NapiStarved, "lab1"), "warning", *FOCUS, spans)
    full = Finding(facts(CoreSaturated, "core 1"), "warning", *FOCUS, spans)
    text = report_markdown.page(replace(scene, report=replace(scene.report, findings=(late, full))))
    rows = [line for line in text.splitlines() if "lab1: napi" in line or "core 1: core" in line]
    assert rows == [
        "| 60.0 to 64.8 | core 1: core-saturated, 20 times, up to 20 ms |",
        "| 60.0 to 64.8 | lab1: napi-starved, 20 times, up to 20 ms |",
    ]
