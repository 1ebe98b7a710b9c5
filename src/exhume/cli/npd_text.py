"""A report as a plugin of node-problem-detector says it: one short line, and 0 for fine, 1 for not, 2 for not known.

Its custom plugin monitor starts a program for each rule, takes the exit code for the condition's state and what was printed for
its message, of which it keeps 80 bytes unless told otherwise (max_output_length).
"""

from exhume.cluster.conditions import KINDS
from exhume.diagnosis.report import Report
from exhume.errors import UsageError
from exhume.text import printable

OK, NOT_OK, UNKNOWN = 0, 1, 2
LONGEST = 80
ANY = "any"
NAMES = (ANY, *(kind.name for kind in KINDS))
# What must be readable for the absence of a finding to mean anything.
_NEEDED = {"MemoryCgroupLeak": "memcg", "KernelCPUStarvation": "cpu", "NetworkPollStarvation": "softnet"}


def checked(condition: str) -> str:
    if condition not in NAMES:
        raise UsageError(f"--npd knows no condition {condition!r}; there are {', '.join(NAMES)}")
    return condition


def line(report: Report, condition: str = ANY) -> tuple[int, str]:
    """The exit code and the line for one condition, or for any trouble at all."""
    kinds = [kind for kind in KINDS if condition in (ANY, kind.name)]
    wanted = [name for kind in kinds for name in kind.findings]
    found = [one for one in report.findings if one.severity != "info" and (condition == ANY or one.kind in wanted)]
    if found:
        worst = min(found, key=lambda one: (one.severity != "critical", wanted.index(one.kind) if one.kind in wanted else 99))
        return NOT_OK, bounded(worst.summary)
    if condition == ANY and report.health in ("warning", "critical"):
        return NOT_OK, bounded(report.verdict.summary)
    off = [source for source in report.sources if source.state == "off" and source.name in (_NEEDED[k.name] for k in kinds)]
    if off:
        return UNKNOWN, bounded(f"{off[0].name} is off: {off[0].reason}")
    if report.health == "unknown":
        return UNKNOWN, bounded(report.verdict.summary)
    return OK, bounded(kinds[0].quiet if condition != ANY else report.verdict.summary)


def bounded(text: str) -> str:
    """One line of no more than 80 bytes; a character is not cut in two."""
    shown = printable(text, 4 * LONGEST).replace("\n", " ")
    if len(shown.encode()) <= LONGEST:
        return shown
    room = LONGEST - len("…".encode())
    return shown.encode()[:room].decode("utf-8", "ignore").rstrip() + "…"
