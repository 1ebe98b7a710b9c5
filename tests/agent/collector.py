"""A real collector of OpenTelemetry for the tests: its own receiver and exporter of OTLP, built with Go into a cache.

`python -m tests.agent.collector` builds it (some ten minutes on two cores, once); a test only uses what it finds, and skips
with the reason otherwise. Everything comes from the Go module proxy that this machine's Go is set to.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.prometheus import free_port, until

VERSION = "0.160.0"
_MODULES = ("otelcol", "receiver/otlpreceiver", "exporter/otlphttpexporter")


def program() -> Path:
    """`$XDG_CACHE_HOME/exhume-collector/collector-VERSION`. A relative one is to be ignored (base directory specification)."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    home = Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache"))
    return home / "exhume-collector" / f"collector-{VERSION}"


def build() -> None:
    """Into a scratch directory, then renamed: a build that was ended leaves nothing that looks whole."""
    program().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    required = "\n".join(f"require go.opentelemetry.io/collector/{module} v{VERSION}" for module in _MODULES)
    with tempfile.TemporaryDirectory(prefix="scratch-", dir=program().parent) as scratch:
        shutil.copy(Path(__file__).with_suffix(".go"), Path(scratch, "main.go"))
        Path(scratch, "go.mod").write_text(f"module exhume.test/collector\n\ngo 1.24\n\n{required}\n")
        for command in (["go", "mod", "tidy"], ["go", "build", "-trimpath", "-o", "built", "."]):
            subprocess.run(["nice", "-n", "19", *command], cwd=scratch, check=True)
        os.rename(Path(scratch, "built"), program())


@contextlib.contextmanager
def collecting(scratch: Path, onward: str) -> Iterator[str]:
    """The address of a collector that hands on to another what profiles it takes."""
    if not os.access(program(), os.X_OK):
        pytest.skip("no collector built; run python -m tests.agent.collector")
    port = free_port()
    config = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"otlp_http": {"profiles_endpoint": f"{onward}/v1development/profiles", "sending_queue": None}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"profiles": {"receivers": ["otlp"], "exporters": ["otlp_http"]}},
        },
    }
    (scratch / "collector.yaml").write_text(json.dumps(config))
    # Profiles are behind a gate as long as their format is not stable.
    command = [str(program()), f"--config={scratch / 'collector.yaml'}", "--feature-gates=service.profilesSupport"]
    log = scratch / "collector.log"
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    address = f"http://127.0.0.1:{port}"
    try:
        until(lambda: process.poll() is not None or _answers(address), "the collector listens")
        assert process.poll() is None, log.read_text()
        yield address
    finally:
        process.terminate()
        process.wait(120)


def _answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=5).close()
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    if shutil.which("go") is None:
        sys.exit("Go is not installed")
    if not program().exists():
        build()
