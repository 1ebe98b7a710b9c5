"""Results as GitHub workflow commands: lines on the log of a job that show as annotations on the run.

The escapes are those of escapeData and escapeProperty in actions/toolkit, packages/core/src/command.ts.
"""

from collections.abc import Iterable

from exhume.image.results import Result, plain

_COMMANDS = {"note": "notice", "warning": "warning", "error": "error", "unknown": "error"}


def annotations(results: Iterable[Result], artifact: str = "") -> str:
    """A line for each that did not pass. `artifact` is the file of the repository to show them at, if there is one."""
    return "".join(_line(result, artifact) for result in results if result.level in _COMMANDS)


def _line(result: Result, artifact: str) -> str:
    told = f"{result.rule}: {result.subject}" if result.subject else result.rule
    # Files of the image are not files of the repository: they are told in the sentence.
    properties = [f"file={property_value(artifact)}"] if artifact else []
    properties.append(f"title={property_value(told)}")
    where = f" ({result.path})" if result.path and result.path not in result.message else ""
    return f"::{_COMMANDS[result.level]} {','.join(properties)}::{data(result.message + where)}\n"


def data(text: str) -> str:
    return plain(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def property_value(text: str) -> str:
    return data(text).replace(":", "%3A").replace(",", "%2C")


def harmless(text: str) -> str:
    """Text for people on the same log: a name in it must not be taken for a command.

    The runner looks for `::` at the beginning of a line, blanks apart, and for `##[` anywhere in it (actions/runner,
    src/Runner.Common/ActionCommand.cs).
    """
    lines = text.replace("##[", "##\\x5b").split("\n")
    return "\n".join("\\x3a" + line.lstrip()[1:] if line.lstrip().startswith("::") else line for line in lines)
