"""Batches of pages are put onto the lists, and nothing else happens."""

import os

from exhume.remedy.drain import drain_batches


def test_it_visits_every_cpu_and_comes_back_to_where_it_may_run() -> None:
    allowed, open_files = os.sched_getaffinity(0), len(os.listdir("/proc/self/fd"))
    drain_batches()
    assert os.sched_getaffinity(0) == allowed
    assert len(os.listdir("/proc/self/fd")) == open_files
