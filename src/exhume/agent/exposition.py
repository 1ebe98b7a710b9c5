"""The metrics in Prometheus's words, by its own library: a collector that asks `Gathered` when somebody scrapes."""

import threading
import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from exhume.agent.gathering import Gathered
from exhume.agent.histogram import Histogram
from exhume.agent.metrics import METRICS
from exhume.text import printable

LONGEST_LABEL = 200
# Whoever asks more often than once a second gets what was said last: to write down a large node is dear.
FRESH_S = 0.9
MOST_KINDS = 4


class Collector:
    """Two names may look the same when they are cut or escaped, and no series may come twice: a scrape with one is refused."""

    def __init__(self, gathered: Gathered) -> None:
        self._gathered = gathered

    def collect(self) -> Iterator[Metric]:
        for metric in METRICS.values():
            if metric.kind == "histogram":
                family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
                merged: dict[tuple[str, ...], Histogram] = {}
                for labels, histogram in list(self._gathered.histograms.items()):
                    merged.setdefault(_shown(labels), Histogram()).take(histogram)
                for shown, histogram in merged.items():
                    family.add_metric(shown, buckets=histogram.cumulative(), sum_value=histogram.sum_s)
                yield family
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            told = kind(metric.name, metric.help, labels=metric.labels)
            together: dict[tuple[str, ...], float] = {}
            for labels, value in self._gathered.samples(metric.name):
                shown = _shown(labels)
                together[shown] = together.get(shown, 0.0) + value
            for shown, value in together.items():
                told.add_metric(shown, value)
            yield told

    def describe(self) -> list[Metric]:
        return []  # what it has is known when it is asked


def _shown(labels: tuple[str, ...]) -> tuple[str, ...]:
    """A label is text: bytes that are none are shown escaped, and a name of megabytes is cut."""
    return tuple(printable(label, LONGEST_LABEL) for label in labels)


class Exposition:
    """`text` is what a scrape gets: the body and its content type."""

    def __init__(self, gathered: Gathered) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(Collector(gathered))
        self._said: dict[str, tuple[float, bytes]] = {}
        """By its content type: when, and what."""
        self._saying = threading.Lock()

    def text(self, accept: str = "") -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        with self._saying:
            now = time.monotonic()
            self._said = {kind: said for kind, said in self._said.items() if now - said[0] < FRESH_S}
            if content_type not in self._said and len(self._said) >= MOST_KINDS:  # versions that nobody has
                encode, content_type = choose_encoder("")
            if content_type not in self._said:
                self._said[content_type] = now, encode(self._registry)
            return self._said[content_type][1], content_type
