"""The checklist as people read it: in the terminal, and as Markdown with boxes to tick."""

from typing import Final

from exhume.cli.terminal import Style, wrap
from exhume.cli.verify_text import escaped
from exhume.remedy.proof_checklist import STATE_LABELS, Checklist, State
from exhume.text import printable

_COLOURS: Final[dict[State, str]] = {"done": "green", "open": "yellow", "not-needed": "dim"}
_STATE = 12


def render(made: Checklist, style: Style, columns: int) -> str:
    lines = []
    for number, step in enumerate(made.steps, 1):
        state = style(f"{STATE_LABELS[step.state]:<{_STATE}}", _COLOURS[step.state])
        lines.append(f"{number}. {state}{style(step.label, 'bold')}")
        lines += wrap(printable(step.evidence, 400), " " * (_STATE + 3), " " * (_STATE + 3), columns)
    lines.append("")
    if (following := made.next) is None:
        lines.append(style("Every step is done.", "green"))
    else:
        lines.append(f"Next  {style(following.command, 'cyan')}")
    return "\n".join(lines) + "\n"


def markdown(made: Checklist) -> str:
    lines = [f"# Incident on `{printable(made.hostname).replace('`', '')}`", ""]
    for step in made.steps:
        box = " " if step.state == "open" else "x"
        lines.append(f"- [{box}] **{step.label}**: {escaped(step.evidence)}" + (f" (`{step.command}`)" if step.command else ""))
    return "\n".join(lines) + "\n"
