"""A plugin of pytest for the environment with Ray: the tests it is given run with --engine ray, on one cluster for all."""

import os
from collections.abc import Sequence
from typing import Any

import pytest

from exhume.fleet import engine, engine_ray
from exhume.fleet.engine import Part, Progress, Result

passes = 0


class Counted(engine_ray.Ray):
    def run(self, part: Part[Result], source: str, files: Sequence[str], progress: Progress | None = None) -> list[Result]:
        global passes
        passes += 1
        return super().run(part, source, files, progress)


def pytest_configure(config: pytest.Config) -> None:
    os.environ[engine.VARIABLE] = "ray"
    engine_ray.Ray = Counted  # type: ignore[misc]
    ray = engine_ray._imported()
    ray.init(address="local", num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, logging_level="ERROR")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"passes by Ray: {passes}")


def pytest_unconfigure(config: pytest.Config) -> None:
    engine_ray._imported().shutdown()
