"""Results as JUnit XML, which every build server shows as a list of tests: the de facto schema of Ant and Jenkins."""

from collections.abc import Iterable
from xml.etree.ElementTree import Element, SubElement, tostring

from exhume.image.results import Result, plain


def junit(results: Iterable[Result], suite: str, seconds: float = 0.0) -> str:
    """One test case a result. What could not be judged is an error, never a pass; warnings and notes are output of a pass."""
    every = list(results)
    counts = {
        "tests": len(every),
        "failures": sum(result.level == "error" for result in every),
        "errors": sum(result.level == "unknown" for result in every),
        "skipped": 0,
    }
    numbers = {name: str(count) for name, count in counts.items()} | {"time": f"{seconds:.3f}"}
    root = Element("testsuites", {"name": "exhume", **numbers})
    cases = SubElement(root, "testsuite", {"name": plain(suite), **numbers})
    for result in every:
        _case(cases, result, suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _case(cases: Element, result: Result, suite: str) -> None:
    name = plain(f"{result.rule}: {result.subject}" if result.subject else result.rule)
    where = {"file": plain(result.path)} if result.path else {}
    case = SubElement(cases, "testcase", {"classname": f"exhume.{plain(suite)}", "name": name, **where})
    said = plain(result.message)
    if result.level in ("error", "unknown"):
        bad = SubElement(case, "failure" if result.level == "error" else "error", {"message": said, "type": plain(result.rule)})
        bad.text = plain(result.help) if result.help else said
    else:
        out = SubElement(case, "system-out")
        out.text = said if result.level in ("passed", "note") else f"{result.level}: {said}"
