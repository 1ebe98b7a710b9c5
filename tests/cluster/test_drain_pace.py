"""How a drain keeps time, with an API server that is played and a clock that is turned by hand."""

from typing import Any, cast

import pytest

from exhume.cluster.client import Client
from exhume.cluster.drain import Pace, drain, eviction_version, wait_ready
from exhume.cluster.pods import Allowed
from exhume.cluster.replies import ApiError, Forbidden, Unreachable, refusal
from exhume.errors import Refused
from tests.cluster.objects import pod

BUDGET = {"details": {"causes": [{"reason": "DisruptionBudget"}]}}


class Played:
    """Answers evictions by `answers`, one after the other; an accepted pod is gone at once."""

    def __init__(self, answers: list[ApiError | None], version: str = "v1") -> None:
        self.answers, self.version = answers, version
        self.now = 0.0
        self.asked: list[tuple[float, str]] = []
        self.pods: list[dict[str, Any]] = [pod("a", "n1", uid="1")]

    def get(self, path: str) -> dict[str, Any]:
        if path == "/api/v1":
            eviction = {"name": "pods/eviction", "kind": "Eviction", "group": "policy", "version": self.version}
            return {"resources": [{"name": "pods", "kind": "Pod"}, *([eviction] if self.version else [])]}
        raise self.answers.pop(0) or AssertionError

    def list(self, path: str, **query: str) -> list[dict[str, Any]]:
        assert query == {"fieldSelector": "spec.nodeName=n1"}
        return self.pods

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/default/pods/a/eviction"
        assert body["deleteOptions"] == {"preconditions": {"uid": "1"}}
        self.asked.append((self.now, body["apiVersion"]))
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer
        self.pods = []
        return {}

    def sleep(self, for_s: float) -> None:
        self.now += for_s

    @property
    def pace(self) -> Pace:
        return Pace(60.0, now=lambda: self.now, sleep=self.sleep)

    @property
    def client(self) -> Client:
        return cast(Client, self)


def answer(status: int, told: dict[str, Any] | None = None, after: float | None = None) -> ApiError:
    return refusal("POST", "/api/v1/namespaces/default/pods/a/eviction", status, told or {}, after)


def test_what_the_server_says_about_when_to_ask_again_is_kept() -> None:
    played = Played([answer(429, BUDGET), answer(429, {}, 17.0), answer(409), None])
    done = drain(played.client, "n1", Allowed(), played.pace)
    assert [one.name for one in done.evicted] == ["a"]
    assert [at for at, _ in played.asked] == [0.0, 6.0, 24.0, 30.0]


def test_an_older_server_is_asked_in_its_own_version() -> None:
    played = Played([None], "v1beta1")
    drain(played.client, "n1", Allowed(), played.pace)
    assert played.asked == [(0.0, "policy/v1beta1")]


def test_without_an_eviction_api_nothing_is_deleted() -> None:
    with pytest.raises(Refused, match="has no eviction API"):
        eviction_version(Played([], "").client)


def test_a_pod_that_two_budgets_cover_is_named() -> None:
    told = {"message": "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}
    played = Played([answer(500, told) for _ in range(20)])
    with pytest.raises(Refused, match="more than one PodDisruptionBudget"):
        drain(played.client, "n1", Allowed(), played.pace)
    assert played.now >= 60.0


def test_missing_rights_end_it_at_once() -> None:
    played = Played([answer(403)])
    with pytest.raises(Forbidden, match="the verb create on pods/eviction"):
        drain(played.client, "n1", Allowed(), played.pace)
    assert played.now == 0.0


def test_a_namespace_that_is_being_deleted_is_waited_for() -> None:
    played = Played([answer(403, {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}), None])
    assert len(drain(played.client, "n1", Allowed(), played.pace).evicted) == 1


def test_a_node_whose_api_server_is_away_for_a_while_is_still_waited_for() -> None:
    played = Played([answer(503) for _ in range(40)])
    with pytest.raises(Refused, match="did not come back within 1 min: the API server could not"):
        wait_ready(played.client, "n1", "first", played.pace)


class Away(Played):
    """An API server that cannot be reached for a while, and whose first answer to an eviction is lost on the way."""

    def __init__(self, until_s: float) -> None:
        super().__init__([None])
        self.until_s = until_s
        self.lost = False

    def list(self, path: str, **query: str) -> list[dict[str, Any]]:
        if 0.0 < self.now < self.until_s:
            raise Unreachable("the API server at https://x cannot be reached: Connection refused")
        if self.lost and self.now >= self.until_s:
            self.pods = []
        return super().list(path, **query)

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The pod is being deleted from now on, and nobody hears of it."""
        self.lost = True
        self.pods[0]["metadata"]["deletionTimestamp"] = "2026-11-16T12:00:00Z"
        self.now += 1.0
        raise Unreachable("the API server at https://x cannot be reached: no answer in time")


def test_an_api_server_that_restarts_is_waited_for_and_a_lost_answer_is_no_pod_less() -> None:
    played, said = Away(20.0), list[str]()
    pace = Pace(60.0, now=lambda: played.now, sleep=played.sleep, tell=lambda what, _: said.append(what))
    done = drain(played.client, "n1", Allowed(), pace)
    assert [one.name for one in done.evicted] == ["a"]
    assert done.ended == ()
    assert said[0].endswith("no answer in time")
    assert said[1].endswith("Connection refused")
    assert 20.0 <= played.now < 30.0


def test_one_that_does_not_come_back_is_said_when_the_time_is_up() -> None:
    played = Away(1e9)
    with pytest.raises(Refused, match="node n1 is not drained after 1 min: the API server at https://x cannot be reached"):
        drain(played.client, "n1", Allowed(), played.pace)
    assert 60.0 <= played.now < 70.0


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_busy_api_server_is_asked_again(status: int) -> None:
    played = Played([answer(status), None])
    assert [one.name for one in drain(played.client, "n1", Allowed(), played.pace).evicted] == ["a"]
    assert [at for at, _ in played.asked] == [0.0, 5.0]


def test_what_is_wrong_for_good_ends_it_at_once() -> None:
    played = Played([answer(400, {"message": "no"})])
    with pytest.raises(ApiError, match="could not create pods/eviction a: no"):
        drain(played.client, "n1", Allowed(), played.pace)
    assert played.now == 0.0
