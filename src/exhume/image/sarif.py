"""Results as SARIF 2.1.0, the OASIS format for what analysers find: code scanning and most dashboards read it.

Paragraphs are those of the standard, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

import hashlib
import posixpath
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from exhume.image.results import Result, plain, raw

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
BASE = "IMAGE"
_LEVELS = {"note": "note", "warning": "warning", "error": "error"}


def sarif(results: Iterable[Result], tool_version: str, artifact: str = "") -> dict[str, Any]:
    """One run. What passed is a rule without a result; what could not be judged is a notification, and the run no success.

    `artifact` is a file that stands for results that have none, the image's recipe for instance: GitHub drops results without.
    """
    every = list(results)
    rules: dict[str, Result] = {}
    for result in every:
        known = rules.setdefault(result.rule, result)
        if not known.help and result.help:
            rules[result.rule] = result
    index = {rule: at for at, rule in enumerate(rules)}
    unknown = [result for result in every if result.level == "unknown"]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "exhume",
                        "version": tool_version,
                        "rules": [_rule(result) for result in rules.values()],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "originalUriBaseIds": {BASE: {"description": {"text": "The root of the image or node."}}},
                "invocations": [
                    {
                        "executionSuccessful": not unknown,
                        "toolExecutionNotifications": [_notification(result, index[result.rule]) for result in unknown],
                    }
                ],
                "results": [_result(result, index[result.rule], artifact) for result in every if result.level in _LEVELS],
            }
        ],
    }


def _rule(result: Result) -> dict[str, Any]:
    rule: dict[str, Any] = {"id": plain(result.rule), "shortDescription": {"text": plain(result.rule.replace("-", " "))}}
    if result.help:
        rule["help"] = {"text": message(result.help)}
    return rule


def _result(result: Result, index: int, artifact: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "ruleId": plain(result.rule),
        "ruleIndex": index,
        "level": _LEVELS[result.level],
        "message": {"text": message(result.message)},
        "locations": _locations(result, artifact),
        "fingerprints": {"exhume/1": fingerprint(result)},
        # the only one that GitHub's code scanning looks at
        "partialFingerprints": {"primaryLocationLineHash": fingerprint(result)},
    }
    return {key: value for key, value in told.items() if value != []}


def _notification(result: Result, index: int) -> dict[str, Any]:
    """3.58: what hindered the tool, and the rule that it concerns."""
    return {
        "level": "error",
        "message": {"text": message(result.message)},
        "associatedRule": {"id": plain(result.rule), "index": index},
    }


def _locations(result: Result, artifact: str) -> list[dict[str, Any]]:
    location: dict[str, Any] = {}
    if result.path or artifact:
        file: dict[str, Any] = {"uri": uri(result.path or artifact)}
        if result.path:
            file["uriBaseId"] = BASE
        location["physicalLocation"] = {"artifactLocation": file, "region": {"startLine": 1}}
    if result.subject:
        location["logicalLocations"] = [{"name": plain(result.subject), "kind": "resource"}]
    return [location] if location else []


def uri(path: str) -> str:
    """A relative reference (RFC 3986) below the image's root, whatever bytes the name has; never above it."""
    return quote(posixpath.normpath(b"/" + raw(path)).lstrip(b"/") or b".", safe="/")


def fingerprint(result: Result) -> str:
    """The same for the same fault in each run: of what and where, not of the numbers in the sentence."""
    said = b"\0".join(raw(part) for part in (result.rule, result.subject, result.path))
    return hashlib.sha256(said).hexdigest()[:32]


def message(text: str) -> str:
    """Plain text that is nothing else: braces are placeholders (3.11.5) and brackets links (3.11.6) unless escaped."""
    text = plain(text).replace("\\", "\\\\")
    return text.replace("[", "\\[").replace("]", "\\]").replace("{", "{{").replace("}", "}}")
