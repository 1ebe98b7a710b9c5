"""Cohorts as one HTML file: shares of sick nodes with their intervals, and zombies over uptime. It loads nothing."""

import base64
import hashlib
from collections.abc import Iterator
from html import escape

from exhume import __version__
from exhume.fleet import words
from exhume.fleet.cohorts import Cohort, Cohorts
from exhume.fleet.dose import Dose
from exhume.host.quantities import DAY, duration
from exhume.remedy.criteria_statistics import share_bounds
from exhume.render.report_style import STYLE
from exhume.text import printable

_WIDTH, _LABEL, _BAR, _ROW = 1200, 520, 560, 34
_LONGEST = 400
_MOST_MISFITS = 200
_HEIGHT, _MARGIN = 420, 70
_CONFIDENCE = 0.975  # of each bound, so that both together have 95 %
_MORE_STYLE = (
    ".share{fill:var(--critical)}.rest{fill:var(--info)}.whisker{stroke:var(--ink);stroke-width:1.5}"
    ".dot{fill:var(--zombies);fill-opacity:.5}"
)


def page(found: Cohorts) -> str:
    style = STYLE + _MORE_STYLE
    hashed = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{hashed}'; base-uri 'none'; form-action 'none'"
    health = "healthy" if not found.sick else "critical" if found.cohorts else "warning"
    return (
        "\n".join(
            [
                "<!doctype html>",
                '<html lang="en"><head><meta charset="utf-8">',
                f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
                '<meta name="viewport" content="width=device-width,initial-scale=1">',
                f"<title>cohorts: {_safe(words.verdict(found))}</title><style>{style}</style></head><body><main>",
                f'<div><span class="badge {health}">{health.upper()}</span></div><h1>{_safe(words.verdict(found))}</h1>',
                f'<p class="meta">{_safe(found.source)}: {_counts(found)}</p>',
                *_cohorts(found),
                *(_dose(found.dose) if found.dose else ()),
                *_confounded(found),
                *_misfits(found),
                f'<p class="note">exhume {_safe(__version__)}. Bars are shares of sick nodes with exact 95 % intervals.</p>',
                "</main></body></html>",
            ]
        )
        + "\n"
    )


def _counts(found: Cohorts) -> str:
    young = f"; {found.young:,} of the healthy were up too briefly to count" if found.young else ""
    return f"{found.sick:,} sick, {found.healthy:,} healthy, {found.unknown:,} not known{young}."


def _safe(text: str) -> str:
    return escape(printable(text, _LONGEST))


def _cohorts(found: Cohorts) -> Iterator[str]:
    if not found.cohorts:
        return
    yield "<h2>What the sick nodes share</h2>"
    rows = []
    for cohort in found.cohorts:
        rows.append((words.conditions(cohort.conditions), cohort.sick_having, cohort.having, "share"))
        rows.append(("all others", cohort.sick_others, cohort.others, "rest"))
    yield f'<svg viewBox="0 0 {_WIDTH} {len(rows) * _ROW + 10}" role="img" aria-label="shares of sick nodes">'
    for index, (label, sick, of, kind) in enumerate(rows):
        y = index * _ROW + 6
        low, high = (_LABEL + _BAR * bound for bound in share_bounds(sick, of, _CONFIDENCE))
        width = _BAR * sick / of if of else 0.0
        middle = y + _ROW / 2 - 4
        yield f'<text x="{_LABEL - 10}" y="{middle + 4:.0f}" text-anchor="end">{_safe(label)}</text>'
        yield f'<rect class="empty" x="{_LABEL}" y="{y}" width="{_BAR}" height="{_ROW - 10}"/>'
        yield f'<rect class="{kind}" x="{_LABEL}" y="{y}" width="{width:.1f}" height="{_ROW - 10}"/>'
        yield f'<path class="whisker" d="M{low:.1f} {middle:.0f}H{high:.1f}"/>'
        yield f'<text x="{_LABEL + _BAR + 8}" y="{middle + 4:.0f}">{sick:,} of {of:,}</text>'
    yield "</svg>"
    yield "<ol>"
    for cohort in found.cohorts:
        yield f"<li>{_safe_long(cohort.because)} {_figures(cohort)}</li>"
    yield "</ol>"


def _safe_long(text: str) -> str:
    return escape(printable(text, 4000))


def _figures(cohort: Cohort) -> str:
    return f'<span class="cost">lift {cohort.lift:.2f}, support {cohort.support:.1%}, confidence {cohort.confidence:.4%}</span>'


def _dose(dose: Dose) -> Iterator[str]:
    yield "<h2>Uptime as a dose</h2>"
    yield f"<p>{_safe(words.dose(dose))}.</p>"
    if not dose.points:
        return
    most_x = max(max(x for x, _ in dose.points), 1e-9)
    most_y = max(max(y for _, y in dose.points), 1.0)

    def place(x: float, y: float) -> tuple[float, float]:
        return _MARGIN + (_WIDTH - 2 * _MARGIN) * x / most_x, _HEIGHT - 40 - (_HEIGHT - 60) * y / most_y

    yield f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="zombies over days of uptime">'
    yield f'<path class="grid" d="M{_MARGIN} 20V{_HEIGHT - 40}H{_WIDTH - _MARGIN}"/>'
    for x, y in dose.points:
        left, top = place(x, y)
        yield f'<circle class="dot" cx="{left:.1f}" cy="{top:.1f}" r="3"/>'
    if dose.slope is not None:
        (x1, y1), (x2, y2) = (place(x, max(0.0, dose.slope.at_zero + dose.slope.value * x)) for x in (0.0, most_x))
        yield f'<path class="whisker" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'
    yield f'<text x="{_MARGIN - 6}" y="24" text-anchor="end">{most_y:,.0f}</text>'
    yield f'<text x="{_WIDTH - _MARGIN}" y="{_HEIGHT - 18}" text-anchor="end">{duration(most_x * DAY)} since boot</text>'
    yield f'<text x="{_MARGIN + 6}" y="24">zombies</text></svg>'


def _confounded(found: Cohorts) -> Iterator[str]:
    rows = found.cohorts[0].confounded if found.cohorts else ()
    if not rows:
        return
    yield "<h2>What goes along with it</h2>"
    yield "<table><tr><th>fact</th><th>chance by luck, alone</th><th>among nodes that are alike in the causes</th></tr>"
    for each in rows:
        told = (
            "explains nothing" if each.explains_nothing else "explains something still" if each.tellable else "cannot be told"
        )
        yield (
            f"<tr><td>{_safe(words.condition(each.condition))}</td><td>{words.chance(each.log_alone)}</td>"
            f"<td>{told} ({words.chance(each.log_given)})</td></tr>"
        )
    yield "</table>"


def _misfits(found: Cohorts) -> Iterator[str]:
    if not found.misfits:
        return
    yield f"<h2>Nodes that do not fit ({len(found.misfits):,})</h2><table><tr><th>node</th><th>why</th></tr>"
    for each in found.misfits[:_MOST_MISFITS]:
        yield f'<tr><td class="mono">{_safe(each.node)}</td><td>{_safe(each.because)}</td></tr>'
    yield "</table>"
    if len(found.misfits) > _MOST_MISFITS:
        yield f'<p class="note">and {len(found.misfits) - _MOST_MISFITS:,} more; --json has all.</p>'
