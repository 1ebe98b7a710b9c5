"""JUnit XML: well-formed whatever the names are, and what could not be judged is no pass."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from exhume.image.junit import junit
from exhume.image.results import Level, Result

LEVELS: tuple[Level, ...] = ("passed", "note", "warning", "error", "unknown")


def test_each_level_is_told_as_a_build_server_counts_it() -> None:
    text = junit([Result(f"rule-{level}", level, "a.service", "/etc/a", f"it is {level}") for level in LEVELS], "gate", 600.5)
    root = ElementTree.fromstring(text)
    assert {name: root.get(name) for name in ("tests", "failures", "errors", "skipped", "time")} == {
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "0",
        "time": "600.500",
    }
    suite = root.find("testsuite")
    assert suite is not None
    assert suite.attrib == root.attrib | {"name": "gate"}
    cases = {str(case.get("name")): case for case in suite}
    assert list(cases) == [f"rule-{level}: a.service" for level in LEVELS]
    assert all(case.get("classname") == "exhume.gate" and case.get("file") == "/etc/a" for case in cases.values())
    children = {
        name.partition(":")[0]: [(child.tag, child.get("message"), child.text) for child in case]
        for name, case in cases.items()
    }
    assert children == {
        "rule-passed": [("system-out", None, "it is passed")],
        "rule-note": [("system-out", None, "it is note")],
        "rule-warning": [("system-out", None, "warning: it is warning")],
        "rule-error": [("failure", "it is error", "it is error")],
        "rule-unknown": [("error", "it is unknown", "it is unknown")],
    }


@given(st.text(), st.text(), st.text(), st.text(), st.sampled_from(LEVELS))
def test_no_name_breaks_the_document(rule: str, subject: str, path: str, message: str, level: Level) -> None:
    text = junit([Result(rule, level, subject, path, message, message)], "gate")
    root = ElementTree.fromstring(text.encode())
    case = root.find("testsuite/testcase")
    assert case is not None
    told = case.findtext("system-out") or next(iter(case)).get("message") or ""
    if message.isprintable():
        assert told.removeprefix("warning: ") == message


def test_characters_that_xml_forbids_stay_visible() -> None:
    text = junit([Result("crash-loop", "error", "a\x00\x1b\ufffe\udcff]]>.service", "", "<b>&amp;\n")], "gate")
    case = ElementTree.fromstring(text.encode()).find("testsuite/testcase")
    assert case is not None
    assert case.get("name") == "crash-loop: a\\x00\\x1b\\ufffe\\udcff]]>.service"
    assert next(iter(case)).get("message") == "<b>&amp;\\x0a"
