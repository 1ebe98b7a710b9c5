"""The report as Markdown: its parts, and names that stay text."""

import re
from dataclasses import replace

from exhume.pictures import report_markdown
from tests.pictures.test_report_html import NAMES, seen
from tests.pictures.told import told as recorded


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
