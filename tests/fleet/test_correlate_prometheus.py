"""The published question asked of a real Prometheus: the kubelet's throttling, node_exporter's reclaim, names that differ."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from exhume.cli.main import main
from exhume.errors import ExhumeError
from exhume.fleet.correlate_tracks import Asked, from_prometheus
from exhume.fleet.prometheus_query import Client
from tests.agent.prometheus import Prometheus
from tests.fleet.served import EVERY_S, History, served

CAPTURE = pytest.CaptureFixture[str]
DAYS = 4.0
AHEAD_S = 3 * 2 * EVERY_S


def counter(grown: NDArray[np.floating[Any]], first: float, late_s: float = 0.0) -> Callable[[float], float]:
    """Its value at a time, if it grows so much in each sample's time; or as a clock that is ahead stamps it."""
    sums = np.cumsum(grown)
    return lambda now: float(sums[min(len(sums) - 1, max(0, round((now - late_s - first) / EVERY_S)))])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    made = History(DAYS)
    first, count = made.times[0], len(made.times)
    for index in range(3):
        draws = np.random.default_rng(index)
        starts = draws.random(count) < 0.02
        active = np.convolve(starts, np.ones(5))[:count] > 0
        own = (draws.random(count) < 0.1) * draws.exponential(1.0, count)
        caused = active * draws.exponential(1.0, count)
        caused *= 4 * own.sum() / caused.sum()
        name, address = f"node-{index}", f"10.0.0.{index}"
        late = AHEAD_S if index == 2 else 0.0
        made.add("node_vmstat_pgscan_direct", counter(active * 5e6, first), instance=f"{address}:9100")
        made.add("node_time_seconds", lambda now, late=late: now + late, instance=f"{address}:9100")  # type: ignore[misc]
        made.add("node_uname_info", lambda now: 1.0, instance=f"{address}:9100", nodename=name)
        throttled = "container_cpu_cfs_throttled_seconds_total"
        made.add(throttled, counter(caused, first, late), node=name, namespace="training", container="a", pod="p")
        made.add(throttled, counter(own, first, late), node=name, namespace="other", container="b", pod="q")
        # The pod's own cgroup has the sum of its containers': it must not be counted again.
        made.add(throttled, counter(caused, first, late), node=name, namespace="training", container="", pod="p")
    made.add("node_vmstat_pgscan_direct", lambda now: 5.0, instance="10.9.9.9:9100")
    with served(tmp_path_factory.mktemp("prometheus"), made) as running:
        yield running


ASK = ["--for", "4d", "--step", f"{2 * EVERY_S}s", "--json"]


def asked(server: Prometheus, capsys: CAPTURE, *more: str) -> dict[str, object]:
    assert main(["fleet", "correlate", server.url, *ASK, *more]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_share_is_that_of_what_was_planted(server: Prometheus, capsys: CAPTURE) -> None:
    found = asked(server, capsys)
    overall = found["overall"]
    assert isinstance(overall, dict)
    assert found["rhythm"] == "day"
    # Four fifths were planted; rates over eight minutes and more smear what is in bursts of twenty.
    assert 0.65 < overall["explained"] < 0.9
    assert overall["low"] < overall["explained"] < overall["high"]
    assert overall["chance"] < 0.01


def test_a_namespace_is_asked_for_alone(server: Prometheus, capsys: CAPTURE) -> None:
    training, other = (asked(server, capsys, "--namespace", name)["overall"] for name in ("train.*", "other"))
    assert isinstance(training, dict)
    assert isinstance(other, dict)
    assert training["explained"] > 0.8
    assert other["explained"] < 0.15
    assert training["throttled_s"] == pytest.approx(4 * other["throttled_s"], rel=0.1)


def test_a_clock_that_is_ahead_is_put_right_and_said(server: Prometheus, capsys: CAPTURE) -> None:
    found = asked(server, capsys, "--namespace", "training")
    nodes = found["nodes"]
    troubles = found["troubles"]
    assert isinstance(nodes, list)
    assert isinstance(troubles, list)
    assert {each["node"] for each in nodes} == {"node-0", "node-1", "node-2"}
    assert all(each["explained"] > 0.75 for each in nodes)
    assert any("the clocks of 1 node are off" in said for said in troubles)


@pytest.mark.parametrize("namespace", ["nowhere", 'x"} or up{a="'])
def test_a_namespace_that_is_not_there_is_a_sentence(server: Prometheus, namespace: str) -> None:
    with pytest.raises(ExhumeError, match="knows of no throttling in namespaces like"):
        from_prometheus(Client(server.url), Asked(DAYS * 86_400, 2 * EVERY_S, namespace=namespace))
