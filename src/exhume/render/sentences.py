"""What every report says in the same words, in the terminal, on a page and in Markdown: who it was, whose doing it is, what
else is wrong, of which node, how sure, and what it was seen with."""

from collections.abc import Iterable, Sequence

from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.model import Facts, Finding, of
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.report import Report, Source, Verdict
from exhume.recording.recording import Node

PSEUDONYMS = (
    "Names in this report are pseudonyms. A unit, path or program that a command names has another name on the node; whoever "
    "made the bundle knows which."
)
# What a recording of a node has and a file of another tool may lack, by the source that would tell it.
_KINDS = {
    "cpu": "what the cores did",
    "samples": "stack samples",
    "kernel-log": "the kernel's log",
    "memcg": "memory cgroups",
    "vmstat": "memory",
    "units": "units",
    "nic": "network counters",
    "latency": "late polls",
}

_FORMATS = {
    "perf.data": "samples",
    "perf script": "samples",
    "folded stacks": "samples",
    "kernel log": "kernel-log",
    "journalctl -o json": "kernel-log",
}


def sure(verdict: Verdict) -> str:
    """How sure a chain is. A single finding was measured: there is nothing that follows, and so nothing to be sure of."""
    return f"confidence {verdict.confidence:.0%}" if verdict.cause is not None and len(verdict.chain) > 1 else ""


def who(findings: Sequence[Finding[Facts]]) -> str:
    """Who held the core: of packets who sends them, before whom they reach; else the first that is named."""
    for core in of(findings, CoreSaturated):
        if (sender := core.facts.sender) is not None:
            where = f" in {sender.cgroup}" if sender.cgroup else ""
            arrive = f"; {core.facts.offender.process} is where they arrive" if core.facts.offender is not None else ""
            return f"{sender.process}{where} sends the packets{arrive}"
    for finding in findings:
        if (offender := finding.facts.focus_offender) is not None:
            measured = finding.facts.measured if isinstance(finding.facts, NapiStarved) else None
            policy = measured.policy if measured is not None else ""
            return f"{offender.process}{f' ({policy})' if policy else ''}{offender.within}"
    return next((finding.facts.focus_did for finding in findings if finding.facts.focus_did), "")


def culprits(verdict: Verdict) -> str:
    """Everybody whose doing it is, with their share of it."""
    return ", ".join(f"{one.subject} ({one.share:.0%})" for one in verdict.culprits)


def to_do(verdict: Verdict) -> list[str]:
    """What to do now: what exhume does itself, then what is left to look at and to type."""
    fixes = [remedy.summary for remedy in verdict.remedies if remedy.id == "fix"]
    return [*fixes, *verdict.next, *(remedy.summary for remedy in verdict.remedies if remedy.id != "fix")]


def others(report: Report) -> list[Finding[Facts]]:
    """What else is wrong, and no part of the chain: of a healthy node, what its tenants suffer from by themselves."""
    chain = {id(link.finding) for link in report.verdict.chain}
    return [finding for finding in report.findings if finding.severity != "info" and id(finding) not in chain]


def further(report: Report) -> str:
    """How many incidents were not judged, because there were so many."""
    many = len(report.further) + report.more
    return f"{many:,} more {'was' if many == 1 else 'were'} not judged; --at judges one" if many else ""


def node(about: Node, imported: str) -> list[str]:
    """Of which node, as far as that is known."""
    unknown = imported and about.cgroups in ("", "none")
    parts = (
        "node not known" if imported and about.hostname in ("", "unknown") else about.hostname,
        f"Linux {about.kernel}" if about.kernel else "",
        f"{about.cpus} cores" if about.cpus else "",
        "cgroups not known" if unknown else f"cgroups {about.cgroups}" if about.cgroups else "",
    )
    return [part for part in parts if part]


def seen_with(sources: Iterable[Source], imported: str) -> str:
    """Of a file of another tool: what it does not have. Else how many sources could be read, and why the others could not."""
    known = list(sources)
    off = [source for source in known if source.state == "off"]
    if imported:
        there = {source.name for source in known if source.state != "off"}
        # A window may begin after what one of the files has.
        there |= {name for format_, name in _FORMATS.items() if format_ in imported.split(", ")}
        if "samples" in there and not any(source.name in ("sample-times", "every-core") for source in off):
            there.add("cpu")  # counted from the samples
        lacks = [what for name, what in _KINDS.items() if name not in there]
        return f"{imported} alone" + (f", which has nothing about {_and(lacks)}" if lacks else "")
    text = f"{len(known) - len(off)} of {len(known)} sources of data"
    return text + (". Off: " + "; ".join(f"{source.name} ({source.reason})" for source in off) if off else "")


def _and(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def headline(text: str) -> str:
    """A sentence as a title: a word begins with a capital letter, a name stays as it is."""
    first, _, rest = text.partition(" ")
    return text[:1].upper() + text[1:] if first.rstrip(",:").isalpha() and not rest.startswith("[") else text
