"""A plan's changes to files as something for the recipe of an image: a preset, a Packer provisioner, a cloud-config.

A node that is fixed by hand comes back sick with the next image. Whatever stops, starts and purges is left out: an image that
is being built runs nothing of it.
"""

import base64
import json
import posixpath
import shlex
from collections.abc import Callable, Iterator

from exhume.host.systemd import names
from exhume.remedy.plan_model import Plan, Step
from exhume.remedy.plan_unit_files import ETC
from exhume.text import printable

PRESET = "/etc/systemd/system-preset/00-exhume.preset"


def commands(plan: Plan) -> list[str]:
    """The same changes as lines for a shell, each of which may be run twice."""
    return [line for step in plan.steps for line in _lines(step)]


def _lines(step: Step) -> Iterator[str]:
    path = shlex.quote(step.target)
    above = shlex.quote(posixpath.dirname(step.target))
    if step.kind == "remove-link":
        yield f"rm -f {path}"
    elif step.kind == "make-link":
        yield f"mkdir -p {above} && ln -sfn {shlex.quote(step.link)} {path}"
    elif step.kind == "write-file" and not step.target.startswith("/run/"):
        content = base64.b64encode(step.content).decode()
        yield f"mkdir -p {above} && echo {content} | base64 -d > {path} && chmod {step.mode or 0o644:04o} {path}"


def preset(plan: Plan) -> str:
    """For what is masked: not enabled when its package is installed. The first line that fits counts (systemd.preset(5))."""
    units = [posixpath.basename(step.target) for step in plan.steps if step.kind == "make-link" and step.link == "/dev/null"]
    lines = [f"# {PRESET}, in the image before the packages are installed", *(f"disable {unit}" for unit in units)]
    if not units:
        lines.append("# a drop-in changes nothing about what is enabled")
    return "\n".join(lines) + "\n"


def packer(plan: Plan) -> str:
    """HCL: in a quoted string a backslash, a quote, ${ and %{ are escaped."""
    inline = ",\n".join(f"    {_hcl(line)}" for line in ["set -eu", *commands(plan)])
    head = [
        f"# {_comment(plan)}",
        'provisioner "shell" {',
        '  execute_command = "chmod +x {{ .Path }}; sudo {{ .Vars }} {{ .Path }}"',
    ]
    return "\n".join([*head, "  inline = [", f"{inline},", "  ]", "}"]) + "\n"


def cloud_config(plan: Plan) -> str:
    """At every first boot, before most of what boot pulls in is started."""
    lines = ["#cloud-config", f"# {_comment(plan)}", "bootcmd:"]
    lines += [f"  - [sh, -c, {_quoted(line)}]" for line in commands(plan)]
    lines.append("  - [systemctl, daemon-reload]")
    units = [
        posixpath.basename(step.target) for step in plan.steps if step.target == f"{ETC}/{posixpath.basename(step.target)}"
    ]
    lines += [f"  - [systemctl, stop, --no-block, {_quoted(unit)}]" for unit in units if names.valid(unit)]
    return "\n".join(lines) + "\n"


SNIPPETS: dict[str, Callable[[Plan], str]] = {"preset": preset, "packer": packer, "cloud-init": cloud_config}


def _quoted(line: str) -> str:
    """In double quotes, as both YAML and HCL read it: JSON's escapes, and what is unusual by its number, never in halves."""
    text = json.dumps(line, ensure_ascii=False)
    return "".join(c if c.isprintable() and ord(c) < 0x10000 else f"\\U{ord(c):08x}" for c in text)


def _hcl(line: str) -> str:
    return _quoted(line).replace("${", "$${").replace("%{", "%%{")


def _comment(plan: Plan) -> str:
    return printable(f"{plan.target}: {plan.why}", 120)
