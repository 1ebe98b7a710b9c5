"""Cohorts for people, in a terminal."""

from exhume.cli.terminal import Style, wrap
from exhume.fleet import words
from exhume.fleet.cohorts import Cohort, Cohorts
from exhume.text import printable

_MOST_MISFITS = 4
_INDENT = "      "
_NAME = 12


def health(found: Cohorts) -> str:
    if not found.sick + found.healthy:
        return "unknown"
    return "healthy" if not found.sick else "critical" if found.cohorts else "warning"


_COLOURS = {"healthy": "green", "warning": "yellow", "critical": "red", "unknown": "yellow"}


def render(found: Cohorts, troubles: tuple[str, ...], style: Style, columns: int) -> str:
    state = health(found)
    head = wrap(words.verdict(found), f"{state.upper()}  ", " " * (len(state) + 2), columns)
    head[0] = style(state.upper(), "bold", _COLOURS[state]) + head[0][len(state) :]
    lines = [*head, ""]
    for number, cohort in enumerate(found.cohorts, 1):
        lines += _cohort(number, cohort, style, columns)
    if found.dose is not None:
        lines += _told("dose", words.dose(found.dose), columns)
    if found.young:
        young = f"{found.young:,} nodes that are not sick were up too briefly to tell and count as neither"
        lines += _told("too young", young, columns)
    if found.leaking:
        leaking = f"{found.leaking:,} nodes are not sick yet and leak as fast as those that are: they count as sick"
        lines += _told("leaking", leaking, columns)
    if found.unknown:
        lines += _told("not known", f"of {found.unknown:,} nodes nothing says whether they are sick", columns)
    if found.left_out:
        names = ", ".join(printable(name, 60) for name in found.left_out[:6])
        lines += _told("not tried", f"{names}: measures of the sickness itself, or of the time up", columns)
    for trouble in troubles:
        lines += _told("note", printable(trouble, 400), columns)
    if found.misfits:
        lines += _told("misfits", f"{len(found.misfits):,} nodes do not fit", columns)
        for each in found.misfits[:_MOST_MISFITS]:
            lines += wrap(f"{printable(each.node, 60)}: {each.because}", " " * (_NAME + 2) + "· ", " " * (_NAME + 4), columns)
        if len(found.misfits) > _MOST_MISFITS:
            lines.append(f"{' ' * (_NAME + 2)}· and {len(found.misfits) - _MOST_MISFITS:,} more: --json has all")
    return "\n".join(lines).rstrip() + "\n"


def _told(name: str, text: str, columns: int) -> list[str]:
    return wrap(text, f"  {name:<{_NAME}}", " " * (_NAME + 2), columns)


def _cohort(number: int, cohort: Cohort, style: Style, columns: int) -> list[str]:
    figures = f"lift {cohort.lift:.2f} · support {cohort.support:.1%} · confidence {cohort.confidence:.4%}"
    return [
        f"  {number}.  {style(words.conditions(cohort.conditions), 'bold')}",
        f"{_INDENT}{figures}",
        *wrap(cohort.because, _INDENT, _INDENT, columns),
        "",
    ]
