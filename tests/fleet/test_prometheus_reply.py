"""Answers of Prometheus and of its likes, and what is none."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import UsageError
from exhume.fleet.prometheus_names import Names
from exhume.fleet.prometheus_nodes import growth, longer
from exhume.fleet.prometheus_query import Client
from exhume.fleet.prometheus_reply import Refusal, Series, joined, parse


def answered(result: list[dict[str, Any]], **more: Any) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}, **more}).encode()


def series(times: list[float], values: list[float], **labels: str) -> Series:
    return Series(labels, np.array(times, dtype=float), np.array(values, dtype=float))


def test_values_that_are_no_numbers_and_moments_twice_are_left_out() -> None:
    values = [[3, "4"], [1, "1"], [2, "NaN"], [2.5, "+Inf"], [3, "5"], [True, "1"], "x", [4], [5, None], [6, "six"]]
    (found,) = parse(200, answered([{"metric": {"node": "a", "n": 1}, "values": values}])).series
    assert found.labels == {"node": "a"}
    assert found.times.tolist() == [1, 3]
    assert found.values.tolist() == [1, 4]


def test_warnings_and_partial_answers_are_kept() -> None:
    reply = parse(200, answered([], warnings=["store \x1b[31m is away"], infos=["i"], isPartial=True))
    assert reply.warnings == ("store \\x1b[31m is away", "i", "the answer is partial: not every storage node took part")


@pytest.mark.parametrize(
    ("status", "body", "trouble"),
    [
        (422, ("execution", "query processing would load too many samples into memory in query execution"), "too much"),
        (400, ("bad_data", "exceeded maximum resolution of 11,000 points per timeseries."), "too much"),
        (503, ("timeout", "query timed out in expression evaluation"), "too much"),
        (422, ("execution", "the query exceeded the maximum number of chunks (limit: 2000000 chunks)"), "too much"),
        (413, ("", ""), "too much"),
        (429, ("too_many_requests", "too many outstanding requests"), "again"),
        (503, ("unavailable", "TSDB not ready, limit"), "again"),
        (500, ("internal", "x"), "again"),
        (400, ("bad_data", "parse error"), "never"),
        (401, ("", "who?"), "never"),
    ],
)
def test_what_a_refusal_means(status: int, body: tuple[str, str], trouble: str) -> None:
    raw = json.dumps({"status": "error", "errorType": body[0], "error": body[1]}).encode()
    with pytest.raises(Refusal) as told:
        parse(status, raw)
    assert told.value.trouble == trouble


@pytest.mark.parametrize(
    ("status", "raw", "trouble"),
    [
        (200, b"<html>", "again"),
        (200, b'{"status":"succ', "again"),
        (302, b"", "never"),
        (502, b"x", "again"),
        (404, b"x", "never"),
    ],
)
def test_what_is_not_of_prometheus(status: int, raw: bytes, trouble: str) -> None:
    with pytest.raises(Refusal) as told:
        parse(status, raw)
    assert told.value.trouble == trouble


anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["metric", "value", "values", "x"]), inner),
    max_leaves=12,
)


@given(st.integers(100, 599), st.binary(max_size=60), anything, st.sampled_from(["matrix", "vector", "scalar", "?"]))
def test_garbage_is_a_refusal_or_series_of_finite_numbers_in_order(status: int, raw: bytes, result: object, kind: str) -> None:
    made = json.dumps({"status": "success", "data": {"resultType": kind, "result": result}, "warnings": result}).encode()
    for body in (raw, made):
        try:
            found = parse(status, body).series
        except Refusal as refusal:
            found, said = (), str(refusal)
        else:
            said = ""
        assert said.isprintable()
        for each in found:
            assert len(each.times) == len(each.values) > 0
            assert np.isfinite(each.values).all()
            assert (np.diff(each.times) > 0).all()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(0, 20), min_size=1, unique=True)), max_size=5))
def test_pieces_are_joined_by_labels_and_every_moment_counts_once(pieces: list[tuple[str, list[int]]]) -> None:
    found = joined([series(sorted(map(float, at)), [float(each) for each in sorted(at)], node=name) for name, at in pieces])
    for each in found:
        wanted = {moment for name, at in pieces if name == each.labels["node"] for moment in at}
        assert each.times.tolist() == sorted(map(float, wanted))
        assert each.values.tolist() == each.times.tolist()
    assert len(found) == len({name for name, _ in pieces})


def test_a_counter_that_begins_anew_has_grown_by_what_it_is_now() -> None:
    assert growth(np.array([5.0, 7.0, 7.0, 1.0, 4.0])) == 2 + 1 + 3
    assert growth(np.array([5.0])) == 0


def test_a_series_goes_on_under_another_address() -> None:
    found = longer(series([3, 4, 5], [30, 40, 50]), series([1, 2, 3], [1, 2, 3]))
    assert found.times.tolist() == [1, 2, 3, 4, 5]
    assert found.values.tolist() == [1, 2, 30, 40, 50]


@pytest.mark.parametrize("url", ["http://", "ftp://x", "http://x:port", "http://[", "http://a b"])
def test_an_address_that_is_none_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a Prometheus"):
        Client(url)


def test_a_password_is_never_shown() -> None:
    assert Client("https://me:secret@prometheus:9090/api/").described == "https://prometheus:9090/api"


def test_names_by_label_by_address_and_by_what_the_cluster_says() -> None:
    uname = [
        series([1], [1], instance="10.0.0.1:9100", nodename="one"),
        series([1], [1], instance="127.0.0.1:9101", nodename="left"),
        series([1], [1], instance="127.0.0.1:9102", nodename="right"),
        series([1], [1], instance="10.0.0.3:9100", nodename="three.internal"),
    ]
    cluster = [series([1], [1], node="two.example.com", internal_ip="10.0.0.2"), series([1], [1], node="three", internal_ip="")]
    names = Names(uname, cluster)
    assert names.of({"instance": "10.0.0.1:9435"}) == "one"
    assert names.of({"instance": "127.0.0.1:9101"}) == "left"
    assert names.of({"instance": "127.0.0.1:9102"}) == "right"
    assert names.of({"instance": "10.0.0.2:10250"}) == "two.example.com"
    assert names.of({"node": "two"}) == "two.example.com"
    assert names.of({"instance": "10.0.0.3:1"}) == "three"
    assert names.of({"instance": "[fe80::1]:9100"}) == "fe80::1"
    assert names.of({"node": "n", "instance": "x:1"}) == "n"
    assert names.of({"job": "x"}) == ""
