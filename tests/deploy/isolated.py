"""`python -m tests.deploy.isolated JOBS`: commands in pods as the chart has them, in a mount namespace of its own; prints JSON.

It is started by unshare(1). In its namespace /run is empty but for what a host with systemd and containerd has there, and a
system bus that counts who connects; tracefs is mounted; and the host's state directory is a temporary one.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any

from exhume.agent.privileges import Mount
from tests.deploy import oci

TOP = Path(__file__).parents[2]
BUS = "/run/dbus/system_bus_socket"


def prepare() -> list[int]:
    """The list grows with each connection to the bus."""
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    if not os.path.ismount("/sys/kernel/tracing"):
        subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=True)
    for name in ("dbus", "log/journal", "systemd/system", "containerd/io.containerd.runtime.v2.task"):
        os.makedirs(f"/run/{name}")
    bus = socket(AF_UNIX, SOCK_STREAM)
    bus.bind(BUS)
    bus.listen(16)
    calls: list[int] = []

    def serve() -> None:
        while True:
            bus.accept()[0].close()
            calls.append(1)

    threading.Thread(target=serve, daemon=True).start()
    return calls


def main(asked: str) -> None:
    calls = prepare()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="exhume-test-isolated-", dir="/var/tmp") as state:
        os.mkdir(root := f"{state}/root")
        for job in json.loads(asked):
            kept = tuple(job["capabilities"])
            writable = {at: f"{state}/{os.path.basename(at)}" for at in job["writable"]}
            for path in writable.values():
                os.makedirs(path, exist_ok=True)
            pod = oci.Pod(
                root,
                kept,
                (*oci.programs(TOP), *(Mount(*one) for one in job["mounts"])),
                seccomp=oci.with_calls(oci.profile(kept), oci.NEW_CALLS) if oci.PROFILE.exists() else None,
                environment=(f"PYTHONPATH={TOP}/src:{TOP}",),
                writable=writable,
            )
            before = len(calls)
            done = oci.run(pod, job["command"], 120)
            found.append({"code": done.returncode, "out": done.stdout, "error": done.stderr, "calls": len(calls) - before})
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
