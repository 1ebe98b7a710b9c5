"""What a request may ask with: wrong values are named, and nothing that anybody sends is a bug of ours."""

import json
import time
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exhume.web.application import ENDPOINTS
from exhume.web.parameters import Query
from exhume.web.patterns import pattern
from exhume.web.replies import Complaint
from tests.examples import examples
from tests.render.made import BEGIN, SECOND
from tests.web.serving import Browser

CHEAP = ("about", "overview", "lanes", "heat", "flame", "export")
NAMES = sorted({name for endpoint in ENDPOINTS.values() for name in endpoint.parameters})
TIMES = st.one_of(
    st.integers(BEGIN - 2 * SECOND, BEGIN + 14 * SECOND).map(str), st.integers(-(1 << 70), 1 << 70).map(str), st.just("١٢")
)
VALUES = st.one_of(
    TIMES,
    st.sampled_from(["", "0", "1", "12", "4096", "4097", "-1", "1e9", "NaN", "3", "0-3", "3-0", "a", "auto", "core", "cgroup"]),
    st.sampled_from(["(", "a+", "(a+)+", ".*", "[", "\\", "folded", "csv", "pprof", "all", "odd", "%00", "kube", "x" * 300]),
    st.text(max_size=12),
)


@pytest.mark.parametrize(
    ("path", "query", "parameter"),
    [
        ("overview", {"columns": 0}, "columns"),
        ("overview", {"columns": 4097}, "columns"),
        ("overview", {"columns": "1.5"}, "columns"),
        ("overview", {"nothing": 1}, "nothing"),
        ("lanes", {"cores": "39"}, "cores"),
        ("lanes", {"from": "yesterday"}, "from"),
        ("lanes", {"from": BEGIN + SECOND, "to": BEGIN + SECOND}, "to"),
        ("lanes", {"from": 0, "to": 1}, "from"),
        ("lanes", {"from": 0, "to": 1 << 62}, "to"),
        ("heat", {"cores": "3-1"}, "cores"),
        ("heat", {"cores": "1,,2"}, "cores"),
        ("heat", {"symbol": "("}, "symbol"),
        ("heat", {"comm": "x" * 201}, "comm"),
        ("heat", {"pid": "-1"}, "pid"),
        ("flame", {"by": "colour"}, "by"),
        ("flame", {"idle": "yes"}, "idle"),
        ("flame", {"base_from": BEGIN}, "base_to"),
        ("flame", {"base": "auto", "base_from": BEGIN, "base_to": BEGIN + SECOND}, "base"),
        ("flame", {"cgroup": "(a|bc)*d"}, "cgroup"),
        ("verdict", {"to": "x"}, "to"),
        ("export", {}, "format"),
        ("export", {"format": "exe"}, "format"),
    ],
)
def test_what_is_wrong_is_named(user: Browser, path: str, query: dict[str, object], parameter: str) -> None:
    answer = user.get(f"/api/{path}", query)
    assert answer.status == 400
    assert answer.json()["parameter"] == parameter
    assert parameter in answer.json()["error"]


def test_a_parameter_is_given_once(user: Browser) -> None:
    answer = user.get("/api/overview", "columns=1&columns=2")
    assert (answer.status, answer.json()["parameter"]) == (400, "columns")


def test_too_much_is_refused(user: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.web.heat.MOST_SAMPLES", 10)
    monkeypatch.setattr("exhume.web.flame.MOST_SAMPLES", 10)
    monkeypatch.setattr("exhume.web.exports.MOST_BYTES", 10)
    for path, query in (("heat", {"comm": "x"}), ("flame", {}), ("export", {"format": "csv"})):
        assert user.get(f"/api/{path}", query).status == 413


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(CHEAP), st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
def test_no_query_is_a_bug_of_ours(user: Browser, path: str, query: dict[str, str]) -> None:
    answer = user.get(f"/api/{path}", {name: value.encode("utf-8", "replace").decode() for name, value in query.items()})
    assert answer.status in (200, 400, 413)
    if answer.headers["content-type"] == "application/json" and "content-disposition" not in answer.headers:
        assert isinstance(json.loads(answer.content, parse_constant=lambda name: pytest.fail(name)), dict)


@settings(max_examples=examples(200))
@given(st.binary(max_size=60))
def test_any_bytes_as_a_query_are_read_or_refused(raw: bytes) -> None:
    with suppress(Complaint):
        Query(raw, NAMES)


@pytest.mark.parametrize(
    "text",
    [
        *("kube", "^a.*b$", "a{2,5}", "(foo|bar)baz", "[ab]+c", "(?i)x", "mem_cgroup|css_", "a?b?c?", "^/(kube|sys).*pod.*x"),
        *("|".join(f"name{at}.*x" for at in range(15)), "[0-9a-f]{64}", r"\w+_\w+", "mem.*(alloc|free).*page", "(?=.*a)b"),
    ],
)
def test_ordinary_expressions_are_taken(text: str) -> None:
    assert pattern(text).pattern == text


@pytest.mark.parametrize(
    "text",
    [
        *("(a+)+b", "(a*)*", "(a|aa)+$", "((a{1,9}){1,9}){1,9}", "(.*)*x", r"(a)\1", "a*a*a*a*a*b", "(" * 150, "a" * 201, "["),
        *(".?" * 60 + "~", "(a|aa){10}" * 3, ".*.*.*~", r"((\b){999}){999}", "(a*b){3}", "(a|b|cd){1,9}", "x{0,70}" * 3),
        *("(?=.*)" * 3, "(?>a*)" * 3, "(ab?){0,65535}", "a{1,65}" * 3, ".*.*.?.?!", ".*" + ".?" * 6 + "!"),
    ],
)
def test_expressions_that_can_take_for_ever_are_not(text: str) -> None:
    with pytest.raises(ValueError):
        pattern(text)


def test_long_names_are_searched_at_their_begin() -> None:
    assert pattern("b").search("a" * 500 + "b")
    assert not pattern("b").search("a" * 600 + "b")


def test_a_name_is_searched_once_however_many_threads_have_it() -> None:
    slow = pattern("[^q]*[^q]*[^q][!~]")
    began = time.process_time()
    for _ in range(300):
        assert not slow.search("/kubepods" * 40)
        assert slow.search("/kubepods~")
    assert time.process_time() - began < 3  # and not 20 s


def test_all_names_together_take_a_few_seconds_at_most(user: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.web.patterns._MOST_S", 0.0)
    answer = user.get("/api/heat", {"cgroup": "nothing.*like.*it"})
    assert (answer.status, answer.json()["parameter"]) == (413, "cgroup")
    assert "takes too long" in answer.json()["error"]


BODIES = ("a", ".", "[ab]", "(a|aa)", "(a|b|cd)", "(a?)", "(a{1,2})", r"(\b)", "(a|)", "(?=a)", "(?:aa|a)", "(.a)", "(?>a|aa)")
REPEATED = ("", "?", "??", "*", "+", "*?", "{2}", "{10}", "{0,9}", "{3,}", "{1,64}", "{1,65}", "{999}", "*+")
PIECES = st.builds("{}{}".format, st.sampled_from(BODIES), st.sampled_from(REPEATED))


@st.composite
def _slow_by_construction(draw: st.DrawFn) -> str:
    """Many of the same, and some in groups that are repeated: what takes matchers long that go back."""
    piece = "".join(draw(st.lists(PIECES, min_size=1, max_size=4)))
    if draw(st.booleans()):
        piece = f"({piece}){draw(st.sampled_from(REPEATED))}"
    return piece * draw(st.integers(1, 70)) + "~"


@settings(max_examples=examples(300))
@given(st.one_of(st.text("ab|*+?(){},[]^$\\.d1", max_size=16), _slow_by_construction()))
def test_what_is_taken_is_quick(text: str) -> None:
    try:
        found = pattern(text)
    except ValueError:
        return
    found.search("a" * 4000 + "!")


@pytest.mark.parametrize("piece", [".?", "(a|aa){10}", ".*", "(a|b|.)", "a{0,9}", "a{1,64}", "(a?){9}", "(a|aa)?", r"(\b){99}"])
def test_however_often_it_stands_there(piece: str) -> None:
    """The longest of each family that is taken."""
    taken = []
    for times in range(1, 1 + 198 // len(piece)):
        try:
            taken.append(pattern(piece * times + "~"))
        except ValueError:
            break
    began = time.process_time()
    for found in taken[-1:]:
        found.search("a" * 4000 + "!")
    assert time.process_time() - began < 1.5
