"""The parts of the documentation that are made from the code. `python -m tests.docs` writes them anew; a test compares."""

from dataclasses import fields
from pathlib import Path

from exhume.agent.metrics import EDGES_US, METRICS, OTHER, TOP, most_series
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recorder.policy import Policy
from exhume.recording.schema import TABLES, VERSION
from exhume.recording.source_state import CODES
from tests.image.agents_page import agents

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
    lines += [
        "",
        "## How often a node is read and judged",
        "",
        "The same for `exhume record`, `exhume record --on` and the agent, in the section `[record]`. A *sign* only decides",
        "how soon the last minute is judged; it judges nothing.",
        "",
        "| key | default | meaning |",
        "|---|---|---|",
    ]
    lines += [f"| `{field.name}` | {field.default} | {field.metadata['doc']} |" for field in fields(Policy)]
    return "\n".join(lines) + "\n"


LAYOUT = """\
## On disk

```
DIR/recording.json                      marks a recording, and its schema
DIR/lock                                held by the recorder
DIR/20261116T012600Z/                   a chapter: one run of the recorder, an hour at most
    chapter.json                        the node, its boot, and how it was sampled
    stacks.parquet frames.parquet threads.parquet
    0000012345678-0000012405678/        a sealed segment, about a minute, by begin and end in ms of the recording's clock
        samples.parquet cpu.parquet counters.parquet events.parquet ... summary.parquet
        pinned                          if it is to stay; says why
    open-0000012405678/                 the segment being written: an Arrow IPC stream for each table, appended every second
```

`stacks`, `frames` and `threads` are dictionaries: shared by all segments of a chapter, their ids unique in the whole
recording. Of several rows with one id the last counts. In `counters` each segment begins with a row for every series, so
that any segment can be read alone.
Sealed segments are plain Parquet, for DuckDB, Polars, pandas, ClickHouse, Spark or Ray:

```sql
-- the busiest functions of the kernel, by core
select s.core, f.name, count(*) as samples
from 'DIR/*/*/samples.parquet' s
join 'DIR/*/stacks.parquet' k on k.id = s.stack
join 'DIR/*/frames.parquet' f on f.id = k.frames[-1]
where f.space = 'kernel' and k.class <> 'idle'
group by all order by samples desc limit 20;
```

A recording says which version of the schema it has. Later versions of exhume read earlier ones; a column that is not there
reads as 0 or empty."""


def reason_codes() -> list[str]:
    """The codes of the column `reasons`, and their parameters."""
    lines = [
        'A reason is an object such as `{"code": "gap", "gap_ms": 512}`; a source may have several. A program should compare',
        "codes and not sentences. Recordings of earlier versions have no `reasons`: their sentences read as code `text`.",
        "",
        "| code | parameters | meaning |",
        "|---|---|---|",
    ]
    for code, kind in CODES.items():
        parameters = ", ".join(f"`{field.name}`" for field in fields(kind))
        lines.append(f"| `{code}` | {parameters} | {' '.join((kind.__doc__ or '').split())} |")
    return lines


COUNTS = """\
### What counts as one

Findings, metrics, `exhume fleet`, `exhume verify` and the page of `exhume view` count the same events, and so give the same
numbers. They are decoded in one place (`recording/events.py`); which of them matter is for the thresholds to say.

- **A NIC reset** begins when a driver gives up on its device: the transmit watchdog fired (`nic-tx-timeout`,
  `nic-queue-paused`, or `xmit-timeout` from the tracepoint), or a check of the driver itself failed (`nic-keepalive-lost`,
  `nic-tx-lost`, `nic-tx-hang` and so on). It ends with `nic-reset-done` or `nic-reset-failed`; what comes after that is about
  the next one. ENA logs the end: until it comes, or 60 s have passed without a line, all lines about the device are about one
  reset. Other drivers log none: of these, lines within 3 s are about one reset, since the watchdog looks no more often than
  every 5 s. Each `nic-reset-done` is a reset, with or without lines before it. A late packet (`nic-tx-not-completed`) is none.
- **A stall** is one from its start to its end, whether it was announced before (`stall-begins`) or not. Until it ends, findings
  count it as unfinished; metrics count it when it ends.
- **A restart** is one more in systemd's `NRestarts` between two readings. That it goes back to 0 is none.
- **An OOM kill** is a `Killed process` line: `oom-kill` at the node's limit, `memcg-oom-kill` at that of a cgroup.
- **A lockup** is what one watchdog says about one core (`soft-lockup`, `hard-lockup`, `rcu-stall`, `rcu-kthread-starved`)
  until it has been silent for five minutes: the kernel repeats itself while a lockup lasts. A `hung-task` holds no core.

What the kernel log still had from before the recording is history: findings report it with its age, nothing else counts it."""


def recording() -> str:
    lines = [
        "# The recording",
        "",
        f"Schema version {VERSION}. Times are nanoseconds of the kernel's perf/printk clock (what `dmesg` shows); `anchors`",
        "ties it to wall time. Text that the kernel gave out in bytes that are not UTF-8 is kept with `\\xNN` in their place.",
    ]
    lines += ["", *LAYOUT.splitlines()]
    for table in TABLES.values():
        lines += ["", f"## {table.name}", "", table.doc, "", "| column | kind | meaning |", "|---|---|---|"]
        lines += [f"| `{column.name}` | {column.kind} | {column.doc} |" for column in table.columns]
        if table.name == "sources":
            lines += ["", *reason_codes()]
        if table.name == "events":
            lines += ["", *COUNTS.splitlines()]
    return "\n".join(lines) + "\n"


def metrics() -> str:
    lines = [
        "# Metrics",
        "",
        "What `exhume agent` serves at `/metrics`. Series are at most so many, whatever the node has: of what has no natural",
        f"bound the {TOP} largest are told, the rest as `{OTHER}`. A gauge whose source has been off for a minute is absent,",
        "a counter stands still; `exhume_source_up` says which sources are off, and the agent's log why. An agent that has",
        f"everything at its bound has {most_series():,} series.",
        "",
        "What to make of them: [alerts](alerts.md), and two dashboards for Grafana, of a node and of the fleet (they need the",
        "alerts' rule file, too, which has the recording rules that they use). `deploy/grafana` has them as they are, and",
        "",
        "```",
        "exhume agent --print-dashboard node --node-label instance > exhume-node.json",
        "exhume agent --print-dashboard fleet > exhume-fleet.json",
        "```",
        "",
        "prints them for another label that tells nodes apart.",
        "",
        "| metric | kind | labels | series | source | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for metric in METRICS.values():
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        source = f"`{metric.source}`" if metric.source else ""
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.most} | {source} | {metric.help} |")
    edges = ", ".join(f"{edge / 1e6:g}" for edge in EDGES_US)
    lines += ["", f"Buckets of histograms end at {edges} s and at infinity; each has a sum and a count as well."]
    return "\n".join(lines) + "\n"


PAGES = {"metrics.md": metrics, "thresholds.md": thresholds, "recording.md": recording, "agents.md": agents}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
