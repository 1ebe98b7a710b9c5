"""docs/agents.md, made from the catalogue."""

from exhume.host.programs import CLOUDS, HARDWARE, ROLES, VOCABULARY, Condition, Program, every

INTRODUCTION = """\
# The catalogue of programs

Everything that exhume knows of programs by their names is data, in `src/exhume/host/programs/*.toml`. Most entries are
platform agents that images bring along: how exhume recognises each, what needs it, what harm it is known for, and how to turn
it off. The others have names and roles only. An agent that is *protected* is never a target: without it the node,
its network or the way to it is lost. Harm is told only where there is a source for it; an empty field says that none is known
to us, not that there is none.

What is not in the catalogue is not ignored: unknown services are judged by what is seen of them.

## An entry

```toml
[[program]]
id = "example-agent"
name = "Example agent"
purpose = "Sends examples."
source = "example/agent, packaging"           # where these names come from
units = ["example.service", "example@*.service"]
packages = ["example-agent"]
executables = ["/opt/example/bin/*"]
images = ["*/example-agent"]                  # without tag and digest
files = ["/etc/cron.d/example"]               # crontabs and scripts of cron
sockets = ["tcp:4711", "/run/example.sock"]   # where those who use it connect to
needed_if = [{ path = "/etc/example.conf", contains = "^server=" }, { kubernetes = true }]
harm = [{ severity = "warning", text = "Leaks.", source = "example/agent, issue 1" }]
off = { config = "enabled=false in /etc/example.conf." }
protected = false
commands = ["exampled"]                       # what its processes and executables are called, wherever they lie
services = ["example.service"]                # the unit that it runs in
unit_names = ["example", "example-*"]         # units that `fix` never stops, without type and instance
roles = ["keep-running"]
```

A service is recognised by its unit first, then by its file (cron), its image (containers, pods), its program, and last by its
package. No two agents recognise the same. What `off` does not say is plain: the units that are named in full are stopped and
disabled, and the packages left out of the image.

## Roles

A role says what a program is or does. It holds for all `commands` of its entry.

{roles}

## When it is needed

An agent is needed if any table of `needed_if` holds, and a table holds if all of its words do. Of an image at rest nobody knows
the cloud, the hardware, the mounts and the connections: a need that hangs on them is undecided there, and the agent is not
called unused. An empty `needed_if` says that nothing on a server needs the agent; an entry without one, that nothing which can
be looked up tells who does, and it is undecided always.

| word | holds if |
|---|---|
"""


def agents() -> str:
    catalogue = [program for program in every() if program.purpose]
    roles = "\n".join(["| role | meaning |", "|---|---|", *(f"| `{role}` | {meaning} |" for role, meaning in ROLES.items())])
    lines = [f"| `{word}` | {meaning} |" for word, meaning in VOCABULARY.items()]
    lines += ["", f"Clouds: {', '.join(CLOUDS)}. Hardware: {', '.join(HARDWARE)}.", "", f"There are {len(catalogue)} agents."]
    for group in dict.fromkeys(agent.group for agent in catalogue):
        lines += [
            "",
            f"## {group}",
            "",
            "| agent | recognised by (source) | needed if | known harm | to turn it off |",
            "|---|---|---|---|---|",
        ]
        lines += [_row(agent) for agent in catalogue if agent.group == group]
    lines += ["", "## Other programs", "", "| program | names (source) | roles |", "|---|---|---|"]
    lines += [_other(program) for program in every() if not program.purpose]
    return INTRODUCTION.replace("{roles}", roles) + "\n".join(lines) + "\n"


def _other(program: Program) -> str:
    names = [*program.commands, *program.unit_names] or [*program.services]
    seen = ", ".join(f"`{name}`" for name in names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    roles = ", ".join(role for role in ROLES if role in program.roles)
    return f"| **{program.name}** (`{program.id}`) | {seen} ({program.source}) | {roles} |"


def _row(agent: Program) -> str:
    found = [*agent.units[:3], *agent.files[:1], *agent.images[:1]] or [*agent.packages[:2], *agent.executables[:1]]
    more = len(agent.units) + len(agent.files) + len(agent.images) - len(found)
    seen = ", ".join(f"`{one}`" for one in found) + (f" and {more} more" if more > 0 else "")
    seen += f" ({agent.source})"
    unknown = "nothing on a server" if agent.needless else "not known: no file tells"
    needed = " or ".join(_condition(condition) for condition in agent.needed_if) or unknown
    harm = " ".join(f"{harm.severity}: {harm.text} ({harm.source})" for harm in agent.harm)
    if agent.protected:
        off = "protected"
    else:
        units = f"disable {', '.join(f'`{unit}`' for unit in agent.off.units[:3])}" if agent.off.units else ""
        units += f" and {len(agent.off.units) - 3} more" if len(agent.off.units) > 3 else ""
        off = "; ".join(part for part in (units, agent.off.config) if part)
    cells = [f"**{agent.name}** (`{agent.id}`). {agent.purpose}", seen, needed, harm, off]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _condition(condition: Condition) -> str:
    words = dict(condition)
    if "always" in words:
        return f"always: {words['always']}"
    return " and ".join(f"{word} `{value}`" if word != "kubernetes" else "Kubernetes" for word, value in condition)
