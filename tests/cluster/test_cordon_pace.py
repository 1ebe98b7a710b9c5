"""How a change of a node keeps time when the API server has too much to do, with one that is played."""

from typing import Any, cast

import pytest

from exhume.cluster.client import Client
from exhume.cluster.cordon import cordon, left_mark
from exhume.cluster.replies import ApiError, refusal
from exhume.errors import Refused


class Busy:
    """Refuses so many patches before it takes one."""

    def __init__(self, refusals: int, status: int = 429) -> None:
        self.refusals, self.status = refusals, status
        self.node: dict[str, Any] = {"metadata": {"name": "n1", "resourceVersion": "7"}, "spec": {}}

    def get(self, path: str) -> dict[str, Any]:
        return self.node

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert body["metadata"]["resourceVersion"] == "7"
        if self.refusals:
            self.refusals -= 1
            raise refusal("PATCH", path, self.status, {}, 3.0)
        self.node |= body
        return self.node


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    told: list[float] = []
    monkeypatch.setattr("exhume.cluster.cordon.time.sleep", told.append)
    return told


def test_it_waits_as_long_as_the_server_says(slept: list[float]) -> None:
    busy = Busy(2)
    assert cordon(cast(Client, busy), "n1", "plan-1") == ""
    assert left_mark(busy.node) is not None
    assert len(slept) == 2
    assert all(3.0 <= one <= 3.3 for one in slept)


def test_one_that_stays_busy_is_said(slept: list[float]) -> None:
    with pytest.raises(Refused, match="node n1 is as it was: the API server is too busy to take it; try again"):
        cordon(cast(Client, Busy(100)), "n1", "plan-1")
    assert len(slept) == 8


def test_what_is_wrong_is_not_asked_for_again(slept: list[float]) -> None:
    with pytest.raises(ApiError, match="could not patch nodes n1"):
        cordon(cast(Client, Busy(1, 422)), "n1", "plan-1")
    assert slept == []
