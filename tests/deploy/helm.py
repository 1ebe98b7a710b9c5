"""The chart as Helm renders it: the objects, with the values that a test gives."""

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import servers

TOP = Path(__file__).parents[2]
CHART = TOP / "deploy/helm/exhume"
KUBERNETES = "1.36.0"


@cache
def rendered(*settings: str, release: str = "node") -> subprocess.CompletedProcess[str]:
    servers.needed("helm")
    sets = [word for setting in settings for word in (_way(setting), setting)]
    command = [
        str(servers.program("helm")),
        "template",
        release,
        str(CHART),
        "--namespace",
        "watch",
        "--kube-version",
        KUBERNETES,
    ]
    return subprocess.run([*command, *sets], capture_output=True, text=True, timeout=300)


def objects(*settings: str) -> list[dict[str, Any]]:
    done = rendered(*settings)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(kind: str, *settings: str) -> dict[str, Any]:
    found = [one for one in objects(*settings) if one["kind"] == kind]
    assert len(found) == 1, f"{len(found)} objects of kind {kind}"
    return found[0]


def pod(*settings: str) -> dict[str, Any]:
    spec: dict[str, Any] = of_kind("DaemonSet", *settings)["spec"]["template"]["spec"]
    return spec


def _way(setting: str) -> str:
    """Helm takes a number with a point for text, unless it is JSON."""
    value = setting.partition("=")[2]
    return "--set-json" if value.startswith("[") or value.replace(".", "", 1).isdecimal() else "--set"
