"""Runs inside a machine, as a service: the test's script, with its output and its end sent out through virtio ports.

Stands alone: it is the only part that must work before anything else does.
"""

import json
import os
import subprocess
import sys

HOME = "/run/exhume"
PORTS = ("status", "stdout", "stderr")
UNIT = "exhume-vm.service"
UNIT_TEXT = f"""\
[Unit]
Description=The script of a test
After=multi-user.target
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate
[Service]
Type=exec
ExecStart=/usr/bin/python3 -S {HOME}/tests/vm/guest.py
"""


def port(name: str) -> str:
    """The device of a port, by the name the host gave it (the links in /dev/virtio-ports are udev's, which is not here)."""
    ports = "/sys/class/virtio-ports"
    for device in os.listdir(ports):
        with open(f"{ports}/{device}/name", encoding="ascii") as file:
            if file.read().strip() == f"exhume.{name}":
                return f"/dev/{device}"
    raise FileNotFoundError(f"no virtio port exhume.{name}")


def main() -> None:
    status, stdout, stderr = (open(port(name), "wb", buffering=0) for name in PORTS)  # noqa: SIM115
    # A unit of the image's own that failed is no concern of ours, so what this answers does not matter.
    subprocess.run(["systemctl", "is-system-running", "--wait"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    status.write(json.dumps({"release": os.uname().release}).encode() + b"\n")
    environment = {**os.environ, "PYTHONPATH": f"{HOME}/src:{HOME}", "HOME": "/root", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, f"{HOME}/script.py"],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        env=environment,
        cwd=HOME,
    )
    status.write(json.dumps({"exit": done.returncode}).encode() + b"\n")


if __name__ == "__main__":
    main()
