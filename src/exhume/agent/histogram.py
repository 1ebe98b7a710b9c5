"""A histogram as Prometheus has it, filled from the buckets of a recording."""

from collections.abc import Iterable

from exhume.agent.metrics import EDGES_US


class Histogram:
    """Classic buckets: how many were at most so long, how long all together."""

    def __init__(self) -> None:
        self.counts = [0] * (len(EDGES_US) + 1)
        self.sum_s = 0.0

    def add(self, histogram: Iterable[int], sum_ns: int) -> None:
        """Buckets of the recording: bucket i holds what took less than 2**i us, and the last takes the rest."""
        place = 0
        for i, count in enumerate(histogram):
            while place < len(EDGES_US) and EDGES_US[place] < 1 << i:
                place += 1
            self.counts[place] += count
        self.sum_s += sum_ns / 1e9

    def take(self, other: "Histogram") -> None:
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum_s += other.sum_s

    def cumulative(self) -> list[tuple[str, float]]:
        told, total = [], 0
        for edge, count in zip(EDGES_US, self.counts, strict=False):
            total += count
            told.append((repr(edge / 1e6), float(total)))
        return [*told, ("+Inf", float(total + self.counts[-1]))]
