"""The gate's judgement for people, and in the neutral form that pipelines' formats are made from."""

from exhume.cli.terminal import Style, wrap
from exhume.host.quantities import SECOND, duration
from exhume.image.gate_model import Check, Gate, Status
from exhume.image.results import Level, Result
from exhume.text import printable

_WORDS: dict[Status, tuple[str, str]] = {
    "passed": ("PASSED", "green"),
    "warning": ("NOT PROVEN", "yellow"),
    "failed": ("FAILED", "red"),
    "unknown": ("NOT JUDGED", "yellow"),
}
_MARKS: dict[Status, tuple[str, str]] = {
    "passed": ("ok", "green"),
    "warning": ("warning", "yellow"),
    "failed": ("failed", "red"),
    "unknown": ("unknown", "yellow"),
}
_LEVELS: dict[Status, Level] = {"passed": "passed", "warning": "warning", "failed": "error", "unknown": "unknown"}
_SUMMARY: dict[Status, str] = {
    "passed": "every check passed",
    "warning": "nothing is shown to be wrong, but not everything is shown to be right",
    "failed": "this image must not go out",
    "unknown": "not everything could be looked at, so there is no promise",
}
_MOST_LINES = 10
_INDENT = " " * 31


def render(gate: Gate, style: Style, columns: int) -> str:
    word, colour = _WORDS[gate.status]
    head = f"{style(word, 'bold', colour)}  {printable(gate.subject)}: {_SUMMARY[gate.status]}"
    lines = [head, ""]
    for check in gate.checks:
        mark, colour = _MARKS[check.status]
        first, *rest = wrap(check.message, _INDENT, _INDENT, max(60, columns))
        lines.append(f"  {check.name:<18} {style(f'{mark:<8}', colour)}  {first.removeprefix(_INDENT)}")
        lines += rest
        lines += _blamed(check, columns)
    if gate.soak_s:
        early = ", ended early because a leak was certain" if gate.early else ""
        said = (
            f"soaked for {duration(gate.soak_s * SECOND)}{early}; judged for a life of {duration(gate.options.life_s * SECOND)}"
        )
        lines += ["", *wrap(said, "  ", "  ", columns)]
    return "\n".join(lines) + "\n"


def _blamed(check: Check, columns: int) -> list[str]:
    if check.status not in ("failed", "warning") or (len(check.blamed) == 1 and check.blamed[0].message == check.message):
        return []
    lines = []
    for one in check.blamed[:_MOST_LINES]:
        where = f" ({printable(one.path)})" if one.path else ""
        lines += wrap(f"{one.message}{where}", _INDENT + "· ", _INDENT + "  ", max(60, columns))
    if len(check.blamed) > _MOST_LINES:
        lines.append(f"{_INDENT}· and {len(check.blamed) - _MOST_LINES:,} more: --json has all")
    return lines


def results(gate: Gate) -> list[Result]:
    """One for each that a check blames, else one for the check."""
    found = []
    for check in gate.checks:
        level = _LEVELS[check.status]
        if check.blamed and level in ("warning", "error"):
            found += [Result(check.name, level, one.subject, one.path, one.message, check.help) for one in check.blamed]
        else:
            found.append(Result(check.name, level, "", "", check.message, check.help))
    return found
