"""A fleet out of a real Prometheus with days of history: what is known of each node, and what is said about the rest."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exhume.agent.metrics import METRICS
from exhume.errors import ExhumeError
from exhume.fleet import prometheus
from exhume.fleet.model import Fleet, Node
from exhume.fleet.sources import open as open_source
from tests.agent.prometheus import Prometheus
from tests.fleet.served import EVERY_S, History, served

pytestmark = pytest.mark.ci

DAY_S = 86_400.0
DAYS = 3.0
WINDOW_S = 2.5 * DAY_S


def within(value: float, since: float, until: float) -> Callable[[float], float | None]:
    return lambda now: value if since <= now <= until else None


def history() -> History:
    made = History(DAYS)
    end = made.end_s
    booted = {"sick": end - 9.5 * DAY_S, "well": end - 20 * DAY_S, "again": end - 0.5 * DAY_S, "skewed": end - 4 * DAY_S}

    def agent(name: str, dying: float | None, since: float, until: float = end, per_day: float = 0.0, **labels: str) -> None:
        at = {"instance": f"10.0.0.{len(name)}:9435", "node": name, **labels}

        def grown(now: float) -> float | None:
            return None if not since <= now <= until or dying is None else dying + per_day * (now - since) / DAY_S

        made.add("exhume_memory_cgroups", grown, state="dying", hierarchy="v1", **at)
        made.add("exhume_memory_cgroups", within(240.0, since, until), state="live", hierarchy="v1", **at)

        made.add("exhume_build_info", within(1.0, since, until), version="1", **at)

    first = made.times[0]
    agent("sick", 60_000.0, first, per_day=8640.0, zone="zone-b")
    agent("well", 12.0, first, zone="zone-a")
    agent("gone", 100.0, first, end - DAY_S, zone="zone-a")
    agent("old-name", 500.0, first, end - 1.2 * DAY_S, per_day=100.0, zone="zone-a")
    agent("new-name", 500.0 + 180.0, end - 1.2 * DAY_S + EVERY_S, per_day=100.0, zone="zone-a")
    for name, since, until in (("old-name", first, end - 1.2 * DAY_S), ("new-name", end - 1.2 * DAY_S + EVERY_S, end)):
        made.add("node_boot_time_seconds", within(end - 30 * DAY_S, since, until), node=name)
    # Rebooted half a day ago, and leaks.
    back = booted["again"]
    made.add(
        "exhume_memory_cgroups",
        lambda now: (30_000.0 if now < back else 0.0) + 8640.0 * max(0.0, now - back) / DAY_S,
        node="again",
        state="dying",
    )
    made.add("node_boot_time_seconds", lambda now: back if now >= back else back - 10 * DAY_S, node="again")
    # What the sick one has besides.
    made.add("exhume_nic_resets_total", lambda now: float((now - first) // (DAY_S / 2)), node="sick", device="eth0", reason="r")
    made.add("exhume_node_health", lambda now: 1.0, node="sick", health="critical")
    made.add("exhume_node_health", lambda now: 0.0, node="sick", health="healthy")
    made.add("exhume_node_health", lambda now: 1.0, node="well", health="healthy")
    made.add(
        "exhume_verdict_confidence", lambda now: 0.97, node="sick", cause="memcg-leak", subject="/system.slice/ecs.service"
    )
    made.add("node_boot_time_seconds", lambda now: booted["sick"], node="sick")
    made.add("node_boot_time_seconds", lambda now: booted["well"], node="well")
    # Only node_exporter and the kubelet; scraped by address, its clock ten minutes ahead, and six hours of it are missing.
    plain = {"instance": "10.9.9.9:9100", "job": "node"}

    def unless_missing(value: float, now: float) -> float | None:
        return None if end - 12 * 3600 < now < end - 6 * 3600 else value

    made.add(
        "node_cgroups_cgroups",
        lambda now: unless_missing(5000 + 2000 * (now - first) / DAY_S, now),
        subsys_name="memory",
        **plain,
    )
    made.add("node_boot_time_seconds", lambda now: booted["skewed"] + 600, **plain)
    made.add("node_time_seconds", lambda now: now + 600, **plain)
    made.add(
        "node_uname_info", lambda now: 1.0, nodename="Skewed.example.com", release="5.4.0-1103-aws", zone="zone-c", **plain
    )
    made.add(
        "kube_node_info",
        lambda now: 1.0,
        node="skewed",
        internal_ip="10.9.9.9",
        provider_id="aws:///c/i-1",
        kernel_version="5.4",
    )
    for i in range(40):
        made.add("container_memory_usage_bytes", lambda now: 1e6, node="skewed", id=f"/kubepods/{i}")
    return made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with served(tmp_path_factory.mktemp("prometheus"), history()) as running:
        yield running


@pytest.fixture(scope="module")
def fleet(server: Prometheus) -> Fleet:
    return open_source(server.url, window_s=WINDOW_S)


def node(fleet: Fleet, name: str) -> Node:
    (found,) = [each for each in fleet.nodes if each.name == name]
    return found


def test_every_node_is_there_once(fleet: Fleet) -> None:
    assert [each.name for each in fleet.nodes] == ["again", "gone", "new-name", "sick", "skewed", "well"]


def test_a_sick_node_is_told_with_verdict_rate_and_resets(fleet: Fleet) -> None:
    sick = node(fleet, "sick")
    assert sick.sick is True
    assert sick.why.startswith("critical: memcg-leak of /system.slice/ecs.service; 85,")
    assert sick.zombies == pytest.approx(60_000 + 3 * 8640, rel=0.01)
    assert sick.leak_per_day == pytest.approx(8640, rel=0.01)
    assert sick.resets == 4  # every half a day; the first was before the window
    assert sick.uptime_s == pytest.approx(9.5 * DAY_S, abs=3600)
    assert sick.facts["zone"] == "zone-b"
    assert max(fleet.nodes, key=lambda each: each.badness) is sick


def test_a_healthy_node_is_healthy(fleet: Fleet) -> None:
    well = node(fleet, "well")
    assert (well.sick, well.badness, well.why, well.leak_per_day) == (False, 0.0, "", 0.0)


def test_a_reboot_begins_a_new_count(fleet: Fleet) -> None:
    again = node(fleet, "again")
    assert again.leak_per_day == pytest.approx(8640, rel=0.02)
    assert again.uptime_s == pytest.approx(0.5 * DAY_S, abs=1800)
    assert again.exposed_s is not None
    assert again.exposed_s == pytest.approx(10 * DAY_S, abs=3600)
    before, after = [boot for boot in fleet.boots if boot.node == "again"]
    assert before.zombies == 30_000
    assert after.zombies_from < 200


def test_a_node_that_vanished_is_there_as_it_was_last(fleet: Fleet) -> None:
    assert node(fleet, "gone").zombies == 100
    assert any("1 node (gone) not seen any more" in said for said in fleet.troubles)


def test_a_node_that_was_renamed_is_one_and_its_past_is_kept(fleet: Fleet) -> None:
    renamed = node(fleet, "new-name")
    assert any("old-name is new-name now" in said for said in fleet.troubles)
    (boot,) = [each for each in fleet.boots if each.node == "new-name"]
    assert boot.zombies_from == pytest.approx(550, abs=30)
    assert renamed.leak_per_day == pytest.approx(100, rel=0.05)


def test_without_the_agent_cgroups_are_counted_by_node_exporter_and_that_is_said(fleet: Fleet) -> None:
    plain = node(fleet, "skewed")
    assert plain.zombies == pytest.approx(5000 + 3 * 2000 - 40, rel=0.01)
    assert plain.leak_per_day == pytest.approx(2000, rel=0.01)
    assert plain.facts["kernel"] == "5.4.0-1103-aws"
    assert plain.facts["provider-id"] == "aws:///c/i-1"
    assert any("1 node (skewed) without the agent" in said for said in fleet.troubles)


def test_a_clock_that_is_off_and_a_gap_are_said_and_the_clock_is_put_right(fleet: Fleet) -> None:
    plain = node(fleet, "skewed")
    assert plain.uptime_s == pytest.approx(4 * DAY_S, abs=900)
    assert any(re.search(r"\(skewed\) with a clock that is off, by (10 min|9 min 5\d s)", said) for said in fleet.troubles)
    assert any(re.search(r"\(skewed\) with gaps .* 6 h", said) for said in fleet.troubles)


def test_an_empty_prometheus_says_what_is_missing(tmp_path: Path) -> None:
    made = History(0.1)
    made.add("up", lambda now: 1.0, instance="a")
    with served(tmp_path, made) as empty, pytest.raises(ExhumeError, match="neither the agent's metrics nor node_exporter's"):
        prometheus.load(empty.url, DAY_S)


def test_only_metrics_that_the_agent_exports_are_asked_for() -> None:
    asked = " ".join([*prometheus.GAUGES.values(), *prometheus.COUNTERS.values(), prometheus.HEALTH, prometheus.VERDICT])
    names = set(re.findall(r"\bexhume_\w+", asked)) | {name for name in prometheus.FACTS if name.startswith("exhume_")}
    assert len(names) >= 6
    assert names <= set(METRICS)
