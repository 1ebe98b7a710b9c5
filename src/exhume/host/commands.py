"""Command lines as they may be kept and shown: without what looks like a secret, and of a bounded length."""

import re

LONGEST = 1000
"""Characters that are kept of a command line."""

_NAME = (
    r"[\w.-]{0,40}(?:pass(?:word|wd|phrase)|secret|token|api[_-]?key|access[_-]?key|license[_-]?key|credential|auth[_-]?key)s?"
)
_GIVEN = re.compile(rf"(?i)({_NAME}[\"']?\s*(?:=|:\s?)\s*[\"']?)(?!/)([^\s\"',;]+)")
_NEXT = re.compile(rf"(?i)(^|\s)(--?{_NAME})(\s+)(?![-/])(\S+)")
_ADDRESS = re.compile(r"(?i)\b([a-z][a-z0-9+.-]{1,20}://)[^\s/@:]{0,200}:[^\s/@]{1,200}@")
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)[\w+/=.~-]{8,}")
# The form of an AWS access key: IAM user guide, "IAM identifiers", unique IDs.
_AWS_KEY = re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")

HIDDEN = "***"


def shown(line: str) -> str:
    """A command on one line; the values of passwords, tokens and keys are hidden. A path to a secret is none and stays."""
    line = " ".join(line[: 4 * LONGEST].split())
    line = _ADDRESS.sub(rf"\1{HIDDEN}@", line)
    line = _BEARER.sub(rf"\1\2{HIDDEN}", line)
    line = _GIVEN.sub(rf"\1{HIDDEN}", line)
    line = _NEXT.sub(rf"\1\2\3{HIDDEN}", line)
    line = _AWS_KEY.sub(HIDDEN, line)
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"
