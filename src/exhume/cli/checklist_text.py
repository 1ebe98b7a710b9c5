"""The checklist as people read it: in the terminal, and as Markdown with boxes to tick."""

from typing import TYPE_CHECKING

from exhume.cli.terminal import Style, wrap
from exhume.cli.verify_text import escaped
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.remedy.proof_checklist import Checklist

_COLOURS = {"done": "green", "open": "yellow", "not needed": "dim"}
_STATE = 12


def render(made: "Checklist", style: Style, columns: int) -> str:
    lines = []
    for number, step in enumerate(made.steps, 1):
        lines.append(f"{number}. {style(f'{step.state:<{_STATE}}', _COLOURS[step.state])}{style(step.name, 'bold')}")
        lines += wrap(printable(step.evidence, 400), " " * (_STATE + 3), " " * (_STATE + 3), columns)
    lines.append("")
    if (following := made.next) is None:
        lines.append(style("Every step is done.", "green"))
    else:
        lines.append(f"Next  {style(following.command, 'cyan')}")
    return "\n".join(lines) + "\n"


def markdown(made: "Checklist") -> str:
    lines = [f"# Incident on `{printable(made.hostname).replace('`', '')}`", ""]
    for step in made.steps:
        box = " " if step.state == "open" else "x"
        lines.append(f"- [{box}] **{step.name}**: {escaped(step.evidence)}" + (f" (`{step.command}`)" if step.command else ""))
    return "\n".join(lines) + "\n"
