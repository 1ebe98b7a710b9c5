"""What is printed for other hands: the change for an image's recipe, and templates to do it by hand."""

import sys
from typing import TYPE_CHECKING

from exhume.errors import EXIT_HEALTHY, ExhumeError
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.remedy.node import Node
    from exhume.remedy.plan_model import Plan


def print_template(name: str) -> int:
    from exhume.remedy.templates import TEMPLATES, template

    if name == "list":
        sys.stdout.write("".join(f"{one.name:<12}  {one.what}\n" for one in TEMPLATES.values()))
    else:
        sys.stdout.write(template(name))
    return EXIT_HEALTHY


def print_snippets(plan: "Plan", which: str, node: "Node") -> int:
    """Of what the plan would change, or, where that was done here already, of what was changed."""
    from exhume.remedy.carry_out import applied
    from exhume.remedy.snippets import SNIPPETS, commands

    meant = plan if commands(plan) else applied(node, plan.target)
    if meant is None or not commands(meant):
        raise ExhumeError(f"the plan for {printable(plan.target)} changes no file: there is nothing to put into an image")
    if meant is not plan:
        sys.stderr.write(f"exhume: {printable(plan.target)} is put right here already: this is what was changed then\n")
    chosen = SNIPPETS if which == "all" else {which: SNIPPETS[which]}
    sys.stdout.write("\n".join(snippet(meant) for snippet in chosen.values()))
    return EXIT_HEALTHY
