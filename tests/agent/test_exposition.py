"""The metrics as Prometheus reads them, by its own parser and its own tool: whatever the names are, every line is good."""

import shutil
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from exhume.agent.exposition import LONGEST_LABEL, MOST_KINDS, Collector, Exposition
from exhume.agent.gathering import Gathered
from exhume.agent.metrics import METRICS
from exhume.sources.latency.histogram import BUCKETS
from tests.agent.made import batch, memcg, waited, walked
from tests.examples import examples

HOSTILE = st.text(st.characters(codec=None), max_size=40)


def read(gathered: Gathered) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every series of a scrape; one that comes twice would make Prometheus refuse all of it."""
    body, kind = Exposition(gathered).text()
    assert kind.startswith("text/plain")
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for family in parse(body.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found
            found[key] = sample.value
    return found


def filled() -> Gathered:
    gathered = Gathered(2)
    for at in (0, 70):
        rows = batch(at)
        memcg(rows, at, 200, 60_000 + at)
        walked(rows, at, [("/system.slice/*", "ecs.service", 60_000)])
        waited(rows, "napi", "eth0", [1] * BUCKETS, 10**9)
        rows.count(at * 10**9, "vmstat_pgscan_direct", at)
        gathered.add(rows)
    for name, metric in METRICS.items():
        if not metric.labels and metric.kind == "gauge":
            gathered.set(name, 1.0)
    return gathered


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(HOSTILE, st.integers(1, 1000)), max_size=12), st.lists(HOSTILE, max_size=6))
def test_hostile_names_are_labels_that_prometheus_reads_and_nothing_is_lost(
    groups: list[tuple[str, int]], devices: list[str]
) -> None:
    gathered, rows = Gathered(2), batch(1)
    walked(rows, 1, [(path, "", zombies) for path, zombies in groups])
    for device in devices:
        waited(rows, "napi", device, [1] * BUCKETS, 5)
        waited(rows, "napi", device, [1] * BUCKETS, 5, "stall")
    gathered.add(rows)
    found = read(gathered)
    total = sum(value for (name, _), value in found.items() if name == "exhume_zombie_memory_cgroups")
    assert total == sum(zombies for _, zombies in groups)
    waits = sum(value for (name, _), value in found.items() if name == "exhume_latency_seconds_count")
    assert waits == BUCKETS * len(devices)
    assert all(len(value) <= LONGEST_LABEL for _, labels in found for _, value in labels)


def test_names_that_are_the_same_when_they_are_cut_or_escaped_are_one_series() -> None:
    gathered, rows = Gathered(2), batch(1)
    long = "/kubepods/" + "a" * 400
    walked(rows, 1, [(f"{long}{'b' * i}{'c' * 200}", "", 10) for i in (1, 2)])
    for device in ("e\x01", "e\\x01"):
        waited(rows, "napi", device, [0, 0, 7] + [0] * (BUCKETS - 3), 5)
    gathered.add(rows)
    found = read(gathered)
    zombies = [value for (name, _), value in found.items() if name == "exhume_zombie_memory_cgroups"]
    assert zombies == [20.0]
    assert found["exhume_latency_seconds_count", frozenset({("what", "napi"), ("device", "e\\x01")})] == 14


def test_every_metric_has_its_help_its_type_and_the_labels_it_says() -> None:
    families = {family.name: family for family in parse(Exposition(filled()).text()[0].decode())}
    for metric in METRICS.values():
        family = families[metric.name.removesuffix("_total")]
        assert family.type == metric.kind
        assert family.documentation == metric.help
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == set(metric.labels)


def test_a_histogram_is_cumulative_and_its_count_is_its_last_bucket() -> None:
    found = read(filled())
    buckets = sorted(
        (float(dict(labels)["le"]), value) for (name, labels), value in found.items() if name == "exhume_latency_seconds_bucket"
    )
    counts = [count for _, count in buckets]
    assert counts == sorted(counts)
    at = frozenset({("what", "napi"), ("device", "eth0")})
    assert found["exhume_latency_seconds_count", at] == counts[-1] == 2 * BUCKETS
    assert found["exhume_latency_seconds_sum", at] == 2.0


def test_whoever_asks_for_openmetrics_gets_it() -> None:
    body, kind = Exposition(filled()).text("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    families = parse_openmetrics(body.decode())  # type: ignore[no-untyped-call]
    assert {family.name for family in families} >= {"exhume_memory_cgroups", "exhume_latency_seconds"}


def test_whoever_asks_all_the_time_gets_what_was_said_last_for_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    gathered = filled()
    exposition = Exposition(gathered)
    written: list[None] = []
    collect = Collector.collect

    def collected(self: Collector) -> Iterator[Metric]:
        written.append(None)
        return collect(self)

    monkeypatch.setattr(Collector, "collect", collected)
    for _ in range(20):
        assert exposition.text() == exposition.text()
    assert len(written) == 1
    for version in range(1, 100):  # each is a content type of its own
        kind = exposition.text(f"application/openmetrics-text; version={version}.0.0")[1]
    assert len(written) == MOST_KINDS
    assert kind.startswith("text/plain")
    gathered.set("exhume_agent_disk_bytes", 4242.0)
    monkeypatch.setattr("exhume.agent.exposition.FRESH_S", 0.0)
    assert b"exhume_agent_disk_bytes 4242.0" in exposition.text()[0]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool (Debian: prometheus)")
def test_promtool_has_nothing_to_say() -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=Exposition(filled()).text()[0], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
