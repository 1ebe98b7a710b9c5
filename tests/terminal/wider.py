"""Lines that may be wider than the screen, each with the reason. Everything else must fit."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final


@dataclass(frozen=True, slots=True)
class Wider:
    cases: str
    """Names of cases, as a glob."""
    line: str
    """What such a line begins with, as a regular expression."""
    reason: str


WIDER: Final = (
    # As it should be.
    Wider("*", r"exhume: ", "an error is one line, so that it can be searched for and quoted"),
    Wider("export", r".*[;,]", "data for other programs is not broken"),
    Wider("gate-leak", r"::error ", "one line is one annotation of GitHub"),
    Wider("fix-for-image", r"    \"", "a recipe to be copied"),
    Wider("fix-*", r"       [-+]", "a diff is shown as the file has it"),
    # Not yet as it should be.
    Wider("help*", r"", "descriptions and examples are laid out by hand, up to 128 columns"),
    Wider("wrong-command", r"", "the same, without a command"),
    Wider("no-such-file", r"k8s: |DIR  ", "the kinds of fleets are laid out by hand"),
    Wider("audit*", r"Next, in |or as a preset, ", "the two headings of the recipe are not wrapped"),
    Wider("fix-*", r" +\d+  remove-link ", "the target of a step is not wrapped"),
    Wider("fleet-jobs", r"  \d[\d,]* failures came |  starvation killed ", "its sentences are not wrapped"),
    Wider("fleet-status", r"CRITICAL ", "its headline is not wrapped"),
    Wider("gate-quiet", r"NOT PROVEN ", "its headline is not wrapped"),
    Wider("heat*", r"  ! |  \^ |The last ", "messages of the log and sentences below the map are not wrapped"),
    Wider("node", r"  ip-| +kubectl ", "its table has fixed columns"),
    Wider("uninstall", r"  /", "its table has fixed columns"),
    Wider("fix-undo-history", r"  /var/lib/", "the same table"),
)


def too_wide(case: str, text: str, columns: int) -> list[str]:
    """Lines that are wider than they may be. The command line and the exit code are ours."""
    wide = [line for line in text.splitlines() if len(line) > columns and not line.startswith(("$ exhume ", "[exit code "))]
    mine = [one for one in WIDER if fnmatchcase(case, one.cases)]
    return [line for line in wide if not any(re.match(one.line, line) for one in mine)]
