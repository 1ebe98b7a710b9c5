"""The same fleet, whatever the server does: slow, cut off, 429, 503, partial, too much. The real one, behind a bad proxy."""

import json
import re
from collections.abc import Iterator

import pytest

from exhume.errors import ExhumeError
from exhume.fleet import prometheus
from exhume.fleet.model import Fleet
from exhume.fleet.prometheus_query import Client
from tests.agent.prometheus import Prometheus, free_port
from tests.fleet.served import Answer, Asked, History, proxied, served

pytestmark = pytest.mark.ci

DAY_S = 86_400.0
WINDOW_S = 2 * DAY_S


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    made = History(2.0)
    first = made.times[0]
    for name, rate in (("a", 8640.0), ("b", 0.0)):
        made.add("exhume_memory_cgroups", lambda now, r=rate: r * (now - first) / DAY_S, node=name, state="dying")  # type: ignore[misc]
        made.add("exhume_memory_cgroups", lambda now: 200.0, node=name, state="live")
        made.add("node_boot_time_seconds", lambda now: first - DAY_S, node=name)
    with served(tmp_path_factory.mktemp("prometheus"), made) as running:
        yield running


@pytest.fixture(scope="module")
def plain(server: Prometheus) -> Fleet:
    return prometheus.load(server.url, WINDOW_S)


def loaded(url: str, waits: list[float] | None = None, timeout_s: float = 20.0, attempts: int = 6) -> Fleet:
    return prometheus.load(url, WINDOW_S, client=Client(url, timeout_s, attempts, (waits if waits is not None else []).append))


def same(found: Fleet, plain: Fleet) -> None:
    """The windows are seconds apart."""
    assert [node.name for node in found.nodes] == [node.name for node in plain.nodes] == ["a", "b"]
    for one, other in zip(found.nodes, plain.nodes, strict=True):
        assert one.zombies == pytest.approx(other.zombies, abs=60)
        assert one.leak_per_day == pytest.approx(other.leak_per_day, abs=1)
        assert one.sick == other.sick


def test_without_trouble_nothing_is_said(plain: Fleet) -> None:
    assert plain.troubles == ()
    assert [node.sick for node in plain.nodes] == [True, False]


def test_429_and_503_are_waited_for_as_long_as_they_say(server: Prometheus, plain: Fleet) -> None:
    def behaves(asked: Asked, before: int) -> Answer | None:
        if before == 0:
            return Answer(
                429, b'{"status":"error","errorType":"too_many_requests","error":"slow down"}', (("Retry-After", "7"),)
            )
        return Answer(503, b"try later") if before == 1 else None

    waits: list[float] = []
    with proxied(server, behaves) as proxy:
        found = loaded(proxy.url, waits)
    same(found, plain)
    assert any(7.0 <= one <= 7.7 for one in waits)
    assert any(0.25 <= one <= 0.5 for one in waits)
    assert any(
        re.search(r"had to be asked again: slow down \(429 too_many_requests\) \(\d+ times\)", said) for said in found.troubles
    )


def test_answers_that_break_off_are_asked_for_again(server: Prometheus, plain: Fleet) -> None:
    with proxied(server, lambda asked, before: Answer(cut=True) if before == 0 else None) as proxy:
        found = loaded(proxy.url)
    same(found, plain)
    assert any("had to be asked again" in said for said in found.troubles)


def test_a_partial_answer_is_taken_and_said(server: Prometheus, plain: Fleet) -> None:
    def partial(raw: bytes) -> bytes:
        return json.dumps({**json.loads(raw), "warnings": ["store eu-2 is unreachable"]}).encode()

    with proxied(server, lambda asked, before: Answer(change=partial)) as proxy:
        found = loaded(proxy.url)
    same(found, plain)
    assert any("it warns: store eu-2 is unreachable" in said for said in found.troubles)


def test_too_many_samples_are_asked_for_in_halves(server: Prometheus, plain: Fleet) -> None:
    def behaves(asked: Asked, before: int) -> Answer | None:
        if asked.start is not None and asked.end is not None and asked.end - asked.start > DAY_S / 3:
            error = "query processing would load too many samples into memory in query execution"
            return Answer(422, json.dumps({"status": "error", "errorType": "execution", "error": error}).encode())
        return None

    with proxied(server, behaves) as proxy:
        found = loaded(proxy.url)
    same(found, plain)
    assert any("a question was too large and was asked in halves" in said for said in found.troubles)


def test_a_real_limit_of_samples_is_kept_to(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Prometheus itself refuses what is too much: 300 samples at a time are a fraction of a series here."""
    made = History(1.0)
    for i in range(5):
        made.add("exhume_memory_cgroups", lambda now: 7.0, node=f"n{i}", state="dying")
    with served(tmp_path_factory.mktemp("small"), made, "--query.max-samples=300") as small:
        found = prometheus.load(small.url, DAY_S)
    assert [node.zombies for node in found.nodes] == [7.0] * 5
    assert any("asked in halves" in said for said in found.troubles)


def test_a_server_that_is_too_slow_is_asked_for_less(server: Prometheus, plain: Fleet) -> None:
    """What takes for ever as a whole comes when it is asked for in parts."""

    def behaves(asked: Asked, before: int) -> Answer | None:
        slow = "dying" in asked.query and asked.start is not None and asked.end is not None and asked.end - asked.start > DAY_S
        return Answer(hang=True) if slow else None

    with proxied(server, behaves) as proxy:
        found = loaded(proxy.url, timeout_s=1.0)
    same(found, plain)
    assert any("no answer within 1 s" in said for said in found.troubles)


def test_a_part_that_cannot_be_had_is_said_and_the_rest_is_there(server: Prometheus) -> None:
    """One half of the past is broken: what is known of the other is told."""

    def behaves(asked: Asked, before: int) -> Answer | None:
        if asked.start is None or asked.end is None:
            return None
        error = {"status": "error", "errorType": "execution"}
        if asked.end - asked.start > 0.6 * WINDOW_S:
            return Answer(422, json.dumps({**error, "error": "too many samples"}).encode())
        early = asked.start < middle - DAY_S / 2
        return (
            Answer(422, json.dumps({**error, "error": "block is corrupt"}).encode())
            if early and "dying" in asked.query
            else None
        )

    middle = float(server.query("vector(time())")[0]["value"][0]) - WINDOW_S / 2
    with proxied(server, behaves) as proxy:
        found = loaded(proxy.url)
    assert [node.name for node in found.nodes] == ["a", "b"]
    assert found.nodes[0].leak_per_day == pytest.approx(8640, rel=0.01)
    assert any("nothing could be read from" in said and "block is corrupt" in said for said in found.troubles)


def test_a_question_that_is_refused_for_good_costs_only_its_answer(server: Prometheus, plain: Fleet) -> None:
    refused = b'{"status":"error","errorType":"bad_data","error":"unknown function last_over_time"}'
    with proxied(server, lambda asked, before: Answer(400, refused) if "last_over_time" in asked.query else None) as proxy:
        same(loaded(proxy.url), plain)


def test_nobody_there_is_one_sentence() -> None:
    with pytest.raises(ExhumeError, match="does not answer: Connection refused"):
        loaded(f"http://127.0.0.1:{free_port()}", attempts=3)
