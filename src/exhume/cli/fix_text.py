"""A plan, what becomes of it, and what was done before, as people read it."""

import shlex
import time
from collections.abc import Iterable, Iterator

from exhume.cli.terminal import Style, wrap
from exhume.host.quantities import counted
from exhume.remedy.application import Application
from exhume.remedy.carry_out import Event, Outcome
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Plan, Relief, Step
from exhume.remedy.plan_words import change, precondition, shown_target, undo
from exhume.remedy.steps import reversible
from exhume.text import printable

MOST_LINES = 40
# remedy/proof.py, which is not imported for this: it brings numpy along. A journal may hold proofs of any version.
_PROOF = "exhume.proof/"
_COLOURS = {"low": "green", "medium": "yellow", "high": "red"}
_MARKS = {"done": "done", "skipped": "skipped", "failed": "FAILED", "undone": "undone", "kept": "KEPT", "begins": "..."}


def render_plan(plan: Plan, node: Node, style: Style, columns: int, verbose: bool = False) -> str:
    many = counted(len(plan.steps), "step") if plan.steps else "no steps"
    head = f"Plan for {printable(plan.target)}: {many}"
    lines = [style(head, "bold"), *(wrap(printable(plan.why, 400), "  ", "  ", columns) if plan.why else [])]
    for place, step in enumerate(plan.steps, 1):
        lines += ["", *_step(place, step, node, style, columns, verbose)]
    if plan.settled:
        lines += ["", style("So already", "bold")]
        for text in plan.settled:
            lines += wrap(printable(text, 400), "  ", "    ", columns)
    if plan.relief:
        lines += ["", style("Left to you", "bold")]
        for one in plan.relief:
            lines += _relief(one, columns)
    return "\n".join(lines) + "\n"


def _step(place: int, step: Step, node: Node, style: Style, columns: int, verbose: bool) -> Iterator[str]:
    mark = "" if reversible(step) else "  " + style("cannot be undone", "red")
    risk = style(f"risk {step.risk}", _COLOURS[step.risk])
    yield f"{place:>3}  {style(step.kind, 'bold')} {shown_target(step)}  {risk}{mark}"
    yield from wrap(printable(step.reason, 400), "     ", "     ", columns)
    shown = change(step, node).splitlines()
    yield from (f"       {_diff(line, style)}" for line in shown[:MOST_LINES])
    if len(shown) > MOST_LINES:
        yield f"       and {len(shown) - MOST_LINES:,} more lines"
    if verbose:
        for label, text in (("needs", precondition(step)), ("undo", undo(step))):
            if text:
                yield from wrap(f"{label}: {text}", "     ", "       ", columns)


def _diff(line: str, style: Style) -> str:
    colour = {"+": "green", "-": "red"}.get(line[:1])
    return style(line, colour) if colour else line


def _relief(one: Relief, columns: int) -> Iterator[str]:
    yield from wrap(f"{printable(one.target, 80)}: {printable(one.why, 400)}", "  ", "    ", columns)
    yield from wrap(printable(one.text, 600), "    ", "    ", columns)


def render_event(event: Event, style: Style, columns: int) -> str:
    if event.what == "begins":
        return ""
    colour = {"failed": "red", "kept": "red", "skipped": "dim"}.get(event.what, "green")
    note = f": {printable(event.note, 400)}" if event.note else ""
    first, *rest = wrap(f"{event.step.kind} {shown_target(event.step)}{note}", " " * 14, " " * 14, columns)
    return "\n".join([f"{event.place + 1:>3}  {style(f'{_MARKS[event.what]:<7}', colour)}  {first[14:]}", *rest]) + "\n"


def render_outcome(
    outcome: Outcome, plan: Plan, style: Style, columns: int, undone: bool = False, host: str = "/", provable: bool = True
) -> str:
    """What was reached, and what to type next, with the root that it was about. An image has nothing to verify."""
    lines = [""]
    where = f" --host {shlex.quote(host)}" if host != "/" else ""
    for note in outcome.notes:
        lines += wrap(printable(note, 300), "", "  ", columns)
    failed = outcome.of("failed")
    if failed:
        left = len(plan.steps) - failed[0].place - 1
        lines.append(style(f"{outcome.identity} stopped at step {failed[0].place + 1}; {left} not begun.", "red"))
        one = f"{outcome.identity}{where}"
        lines.append(f"exhume fix --resume {one} goes on, exhume undo {one} brings back what was.")
    elif undone:
        kept = outcome.of("kept")
        told = f"all but {len(kept)}, for the reasons above" if kept else "what was is back"
        lines.append(style(f"{outcome.identity} undone: {told}.", "yellow" if kept else "green"))
    else:
        unconfirmed = [event for event in outcome.of("skipped") if not reversible(event.step)]
        lines.append(style(f"{outcome.identity} applied.", "green"))
        if unconfirmed:
            told = ", ".join(f"{event.step.kind} {shown_target(event.step)}" for event in unconfirmed)
            lines += wrap(f"Not done, because it cannot be undone: {told}. --yes-irreversible does it.", "", "  ", columns)
        if outcome.of("done"):
            proves = f"exhume verify{where} proves it; " if provable else ""
            lines.append(f"{proves}exhume undo {outcome.identity}{where} brings back what was.")
        elif not unconfirmed:
            lines.append("Nothing had to be changed: it was so already.")
    return "\n".join(lines) + "\n"


def render_history(every: Iterable[Application], style: Style, columns: int) -> str:
    lines: list[str] = []
    for one in every:
        colour = "green" if one.finished else "red"
        lines.append(
            f"{style(one.identity, 'bold')}  {style(one.status, colour)}  {printable(one.plan.target, 60)}  by {by(one)}  "
            f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(one.time_ns // 10**9))} UTC"
        )
        lines += wrap(printable(one.plan.why, 300), "  ", "  ", columns)
        for step, record in zip(one.plan.steps, one.steps, strict=True):
            note = f": {printable(record.note, 200)}" if record.note else ""
            lines += wrap(f"{record.became:<8} {step.kind} {shown_target(step)}{note}", "    ", " " * 15, columns)
        for name, value in one.notes:
            lines += wrap(f"{printable(name, 40)}: {printable(_note(value), 300)}", "  ", "    ", columns)
    return "\n".join(lines) + "\n" if lines else "Nothing was done to this node by exhume.\n"


def by(one: Application) -> str:
    """Who asked for it, and who is behind that user."""
    behind = one.by.get("sudo_user") or one.by.get("login")
    name = str(one.by.get("name", ""))
    return printable(f"{name} ({behind})" if behind and behind != name else name, 80)


def _note(value: object) -> str:
    """A proof by what it came to; anything else by what it holds."""
    if not isinstance(value, dict):
        return str(value)
    if str(value.get("schema", "")).startswith(_PROOF):
        after = value.get("after")
        end = f" at {after.get('end')}" if isinstance(after, dict) and after.get("end") else ""
        became = {"True": "passed", "False": "failed"}.get(str(value.get("passed")), "not judged")
        return f"{became}{end}: {value.get('summary', '')}"
    return ", ".join(f"{key} {one}" for key, one in value.items() if isinstance(one, str | int | float | bool))
