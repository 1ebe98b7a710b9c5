"""SARIF: the constraints of the 2.1.0 schema that our output touches, by hand; the standard's escapes; stable fingerprints."""

import json
import re
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from hypothesis import given
from hypothesis import strategies as st

from exhume.image.results import Level, Result, raw
from exhume.image.sarif import BASE, fingerprint, message, sarif, uri

LEVELS: tuple[Level, ...] = ("passed", "note", "warning", "error", "unknown")
ECS = Result(
    "endless-restart",
    "error",
    "ecs.service",
    "/usr/lib/systemd/system/ecs.service",
    "ecs.service is restarted for ever",
    "A start limit that cannot bite lets a crash loop go on.",
)


def only(log: dict[str, Any]) -> dict[str, Any]:
    (run,) = log["runs"]
    assert isinstance(run, dict)
    return run


def holds(log: dict[str, Any]) -> None:
    """What sarif-schema-2.1.0.json asks of the properties that are there: required ones, types, enumerations, no others."""
    assert set(log) == {"$schema", "version", "runs"}
    assert log["version"] == "2.1.0"
    for run in log["runs"]:
        assert set(run) == {"tool", "columnKind", "originalUriBaseIds", "invocations", "results"}
        assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        driver = run["tool"]["driver"]
        assert set(driver) == {"name", "version", "rules"}
        for rule in driver["rules"]:
            assert {"id"} <= set(rule) <= {"id", "shortDescription", "help"}
            assert all(isinstance(rule[key]["text"], str) for key in set(rule) - {"id"})
        assert len({json.dumps(rule) for rule in driver["rules"]}) == len(driver["rules"])  # uniqueItems
        for invocation in run["invocations"]:
            assert set(invocation) == {"executionSuccessful", "toolExecutionNotifications"}
            assert isinstance(invocation["executionSuccessful"], bool)
            for notification in invocation["toolExecutionNotifications"]:
                assert set(notification) == {"level", "message", "associatedRule"}
                assert notification["level"] in ("none", "note", "warning", "error")
                assert driver["rules"][notification["associatedRule"]["index"]]["id"] == notification["associatedRule"]["id"]
        for result in run["results"]:
            assert {"ruleId", "ruleIndex", "level", "message"} <= set(result)
            assert set(result) <= {*"ruleId ruleIndex level message locations fingerprints partialFingerprints".split()}
            assert result["level"] in ("none", "note", "warning", "error")
            assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
            assert isinstance(result["message"]["text"], str)
            for kind in ("fingerprints", "partialFingerprints"):
                assert all(isinstance(value, str) for value in result[kind].values())
            for location in result.get("locations", ()):
                assert location
                assert set(location) <= {"physicalLocation", "logicalLocations"}
                physical = location.get("physicalLocation")
                if physical is not None:
                    assert set(physical) == {"artifactLocation", "region"}
                    assert physical["region"]["startLine"] >= 1
                    # format: uri-reference
                    assert re.fullmatch(r"[A-Za-z0-9._~%/-]*", physical["artifactLocation"]["uri"])
                    assert physical["artifactLocation"].get("uriBaseId", BASE) in run["originalUriBaseIds"]
                for logical in location.get("logicalLocations", ()):
                    assert set(logical) <= {"name", "fullyQualifiedName", "kind"}


def test_a_result_says_what_where_and_of_whom() -> None:
    log = sarif([ECS], "1.2.3")
    holds(log)
    run = only(log)
    assert run["tool"]["driver"]["version"] == "1.2.3"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["endless-restart"]
    assert run["tool"]["driver"]["rules"][0]["help"]["text"] == ECS.help
    (result,) = run["results"]
    assert result["level"] == "error"
    (location,) = result["locations"]
    assert location["physicalLocation"]["artifactLocation"] == {"uri": "usr/lib/systemd/system/ecs.service", "uriBaseId": BASE}
    assert location["logicalLocations"] == [{"name": "ecs.service", "kind": "resource"}]


def test_what_passed_is_a_rule_only_and_what_could_not_be_judged_is_told_as_such() -> None:
    log = sarif([Result(f"r-{level}", level, "", "", level) for level in LEVELS], "1")
    holds(log)
    run = only(log)
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == [f"r-{level}" for level in LEVELS]
    assert [result["level"] for result in run["results"]] == ["note", "warning", "error"]
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    assert [one["message"]["text"] for one in invocation["toolExecutionNotifications"]] == ["unknown"]
    assert only(sarif([ECS], "1"))["invocations"][0]["executionSuccessful"] is True


def test_results_of_one_rule_share_it() -> None:
    run = only(sarif([ECS, Result("endless-restart", "warning", "b.service", "", "b")], "1"))
    assert len(run["tool"]["driver"]["rules"]) == 1
    assert [result["ruleIndex"] for result in run["results"]] == [0, 0]


def test_the_recipe_stands_for_what_has_no_file() -> None:
    run = only(sarif([Result("growth", "error", "", "", "it grows"), ECS], "1", "images/node.pkr.hcl"))
    first, second = (result["locations"][0]["physicalLocation"]["artifactLocation"] for result in run["results"])
    assert first == {"uri": "images/node.pkr.hcl"}
    assert second["uriBaseId"] == BASE
    assert "locations" not in only(sarif([Result("growth", "error", "", "", "it grows")], "1"))["results"][0]


def test_fingerprints_stay_when_the_numbers_change_and_differ_when_the_subject_does() -> None:
    same = Result(ECS.rule, "warning", ECS.subject, ECS.path, "restarted 17 times")
    other = Result(ECS.rule, ECS.level, "b.service", ECS.path, ECS.message)
    assert fingerprint(ECS) == fingerprint(same) != fingerprint(other)
    # not by chance the same when parts move from one field to the next
    assert fingerprint(Result("a", "error", "bc", "", "")) != fingerprint(Result("ab", "error", "c", "", ""))


def test_a_name_makes_neither_links_nor_placeholders() -> None:
    assert message("[click](http://x) {0} a\\b") == "\\[click\\](http://x) {{0}} a\\\\b"


def test_no_path_leads_above_the_image() -> None:
    assert uri("/../../etc/passwd") == "etc/passwd"
    assert uri("//etc//a b%.conf") == "etc/a%20b%25.conf"
    assert uri("c:/x") == "c%3A/x"
    assert uri("/") == "."


@given(st.text(), st.text(), st.text(), st.text(), st.sampled_from(LEVELS))
def test_no_name_breaks_the_document(rule: str, subject: str, path: str, said: str, level: Level) -> None:
    log = sarif([Result(rule, level, subject, path, said, said)], "1")
    # As UTF-8, which has no halves of characters: not every reader of JSON knows what to do with an escaped one.
    assert json.loads(json.dumps(log, ensure_ascii=False).encode()) == log
    holds(log)


@given(st.binary())
def test_the_bytes_of_a_path_come_back(name: bytes) -> None:
    path = "/etc/" + name.replace(b"/", b"_").replace(b"..", b"__").decode("utf-8", "surrogateescape")
    back = uri(path)
    assert not urlsplit(back).scheme
    assert unquote_to_bytes("/" + back).rstrip(b"/.") == raw(path).rstrip(b"/.")
