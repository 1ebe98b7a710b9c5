"""A proof as people read it: in the terminal, as Markdown for a ticket, and as lines that change while the window lasts."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from exhume.cli.terminal import Style, wrap
from exhume.host.quantities import SECOND, duration
from exhume.remedy.criteria import STATUS_LABELS, Criterion, Rare, Status
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.remedy.proof import Proof

_HEADS = {True: ("PASSED", "green"), False: ("FAILED", "red"), None: ("OPEN", "yellow")}
_COLOURS: Final[dict[Status, str]] = {"passed": "green", "failed": "red", "too-little": "yellow", "not-seen": "dim"}
_NAMES = 28
_STATUS = 17
_INDENT = " " * (_STATUS + 3)
_WIDE = 90
"""Columns from which names stand in one of their own."""


def render(proof: "Proof", style: Style, columns: int) -> str:
    head, colour = _HEADS[proof.passed]
    lines = wrap(f"{head}  {_sentence(proof.summary)}", "", " " * (len(head) + 2), columns)
    lines[0] = style(head, colour, "bold") + lines[0][len(head) :]
    lines += [*wrap(_looked(proof), " " * 8, " " * 8, columns), ""]
    for title, role in (("Causes, which decide", "cause"), ("Signs, which are told", "sign")):
        lines.append(style(title, "bold"))
        for one in proof.criteria:
            if one.role == role:
                lines += _criterion(one, style, columns)
        lines.append("")
    if proof.rare:
        lines.append(style("Rare effects, which minutes cannot prove gone", "bold"))
        for effect in proof.rare:
            first = f"  {_mark(effect, style)} {effect.label}: "
            plain = len(f"  {STATUS_LABELS[effect.status]:<{_STATUS}} {effect.label}: ")
            lines += _behind(effect.because, first, plain, columns)
    return "\n".join(lines).rstrip() + "\n"


def _looked(proof: "Proof") -> str:
    after = f"{duration(proof.after.seconds * SECOND)} {'until the leak was seen to go on' if proof.early else 'after'}"
    if proof.before is None:
        return f"{after}, against the limits of the thresholds"
    if proof.before.hostname and proof.hostname and proof.before.hostname != proof.hostname:
        between = f" on another node, {printable(proof.before.hostname, 80)}"
    else:
        between = ", and a reboot between them" if proof.before.boot_id != proof.after.boot_id else ""
    return f"{after}, against {duration(proof.before.seconds * SECOND)} before{between}"


def _criterion(one: Criterion, style: Style, columns: int) -> list[str]:
    name = f"{one.label:<{_NAMES}}" if columns >= _WIDE else f"{one.label} "
    lines = _behind(shown(one), f"  {_mark(one, style)} {name}", _STATUS + 3 + len(name), columns)
    return [*(line.rstrip() for line in lines), *wrap(printable(one.because, 400), _INDENT, _INDENT, columns)]


def _mark(one: Criterion | Rare, style: Style) -> str:
    return style(f"{STATUS_LABELS[one.status]:<{_STATUS}}", _COLOURS[one.status])


def _behind(text: str, first: str, plain: int, columns: int) -> list[str]:
    """Behind what may have colours in it, which take no room."""
    lines = wrap(printable(text, 400), " " * plain, _INDENT, columns)
    lines[0] = first + lines[0][plain:]
    return lines


def shown(one: Criterion) -> str:
    """`6.0 → 0.0 zombies a minute, at most 1.0, 99 % sure`."""
    both = [number(value) for value in (one.before, one.after)]
    if one.after is None:
        return f"{both[0]} before" if one.before is not None else ""
    text = f"{both[0]} → {both[1]} {one.unit}" if one.before is not None else f"{both[1]} {one.unit}"
    if one.limit is not None:
        text += f", at most {number(one.limit)}"
    return text + (f", {sure(one.confidence)} sure" if one.confidence is not None else "")


def number(value: float | None) -> str:
    if value is None:
        return "?"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.2g}"


def sure(confidence: float) -> str:
    """Never 100 %."""
    return f"{min(int(confidence * 1000) / 10, 99.9):g} %"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def markdown(proof: "Proof") -> str:
    head, _ = _HEADS[proof.passed]
    lines = [f"# {head.title()}: {escaped(proof.summary)}", ""]
    lines += [f"Node `{escaped(proof.hostname)}`. {escaped(_looked(proof))}."]
    if proof.after.start:
        lines.append(f"After: {proof.after.start} to {proof.after.end}.")
    if proof.before is not None and proof.before.start:
        lines.append(f"Before: {proof.before.start} to {proof.before.end}.")
    lines += ["", "| criterion | | before | after | unit | at most | sure | because |", "|---|---|---|---|---|---|---|---|"]
    for one in proof.criteria:
        limit = number(one.limit) if one.limit is not None else ""
        confidence = sure(one.confidence) if one.confidence is not None else ""
        name = f"**{one.label}**" if one.role == "cause" else one.label
        status = STATUS_LABELS[one.status]
        cells = (name, status, *map(_value, (one.before, one.after)), one.unit, limit, confidence, escaped(one.because))
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Criteria in bold are causes: they decide. The others are signs."]
    if proof.rare:
        lines += ["", "| rare effect | | before | after | hours needed | because |", "|---|---|---|---|---|---|"]
        for effect in proof.rare:
            needed = f"{effect.needed_hours:,.1f}" if effect.needed_hours is not None else ""
            status = STATUS_LABELS[effect.status]
            cells = (effect.label, status, *map(_value, (effect.before, effect.after)), needed, escaped(effect.because))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _value(value: float | None) -> str:
    return number(value) if value is not None else ""


def escaped(text: str) -> str:
    """Names in it are hostile: nothing of them may end a cell, be a link or an image, or be HTML."""
    safe = printable(text, 400)
    for character in "\\`*_[]<>|":
        safe = safe.replace(character, f"\\{character}")
    return safe


def progress_lines(criteria: Iterable[Criterion], part: float, columns: int) -> list[str]:
    """One line a criterion, no longer than the terminal is wide."""
    bar = "━" * int(part * 30) + "╌" * (30 - int(part * 30))
    lines = [f"verifying {bar} {part:.0%}"]
    lines += [f"  {STATUS_LABELS[one.status]:<{_STATUS}}{one.label:<{_NAMES}}{shown(one)}" for one in criteria]
    return [line[: columns - 1] for line in lines]
