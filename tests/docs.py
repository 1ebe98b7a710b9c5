"""The parts of the documentation that are made from the code. `python -m tests.docs` writes them anew; a test compares."""

from dataclasses import fields
from pathlib import Path

from exhume.findings.thresholds import Thresholds
from exhume.recording.schema import TABLES, VERSION

DOCS = Path(__file__).resolve().parent.parent / "docs"


def thresholds() -> str:
    lines = [
        "# Thresholds",
        "",
        "Every number that turns a reading into a finding. Set them in the `[thresholds]` section of the configuration file",
        "(`--config FILE`, `EXHUME_CONFIG`, or `/etc/exhume/exhume.toml`); what is not set keeps its default.",
        "",
        "```toml",
        "[thresholds]",
        "zombies_floor = 1000",
        "zombies_per_live = 5.0",
        "```",
        "",
        "| key | default | meaning |",
        "|---|---|---|",
    ]
    lines += [f"| `{field.name}` | {field.default} | {field.metadata['doc']} |" for field in fields(Thresholds)]
    return "\n".join(lines) + "\n"


def recording() -> str:
    lines = [
        "# The recording",
        "",
        f"Schema version {VERSION}. Times are nanoseconds of the kernel's perf/printk clock (what `dmesg` shows); `anchors`",
        "ties it to wall time. Text that the kernel gave out in bytes that are not UTF-8 is kept with `\\xNN` in their place.",
    ]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", table.doc, "", "| column | kind | meaning |", "|---|---|---|"]
        lines += [f"| `{column.name}` | {column.kind} | {column.doc} |" for column in table.columns]
    return "\n".join(lines) + "\n"


PAGES = {"thresholds.md": thresholds, "recording.md": recording}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
