"""The incident's image as a directory: a GPU node's root with a kubelet, containerd, sshd, and an ECS agent that nobody uses.

The units are written from what is known of each (FACTS of the incident, the units' documentation), not copied.
`python -m tests.image.incident DIR` makes one to look at.
"""

import sys
from pathlib import Path

OS_RELEASE = """\
NAME="Ubuntu"
ID=ubuntu
VERSION_ID="20.04"
PRETTY_NAME="Ubuntu 20.04.6 LTS"
IMAGE_ID=gpu-training
"""

# As Debian's packaging of ecs-init has it: no RestartPreventExitStatus=, which the one for RPM has.
ECS = """\
[Unit]
Description=Amazon Elastic Container Service agent
Requires=docker.service
After=docker.service cloud-final.service

[Service]
Type=simple
Restart=on-failure
RestartSec=10s
EnvironmentFile=-/etc/ecs/ecs.config
ExecStartPre=/usr/libexec/amazon-ecs-init pre-start
ExecStart=/usr/libexec/amazon-ecs-init start
ExecStop=/usr/libexec/amazon-ecs-init stop

[Install]
WantedBy=multi-user.target
"""

UNITS = {
    "ecs.service": ECS,
    "docker.service": """\
[Unit]
Description=Docker Application Container Engine
Requires=docker.socket
Wants=containerd.service
StartLimitBurst=3
StartLimitIntervalSec=60

[Service]
Type=notify
ExecStart=/usr/bin/dockerd -H fd://
Restart=always
RestartSec=2
Delegate=yes

[Install]
WantedBy=multi-user.target
""",
    "docker.socket": """\
[Unit]
Description=Docker's socket for its API

[Socket]
ListenStream=/run/docker.sock

[Install]
WantedBy=sockets.target
""",
    "containerd.service": """\
[Unit]
Description=containerd container runtime

[Service]
Type=notify
ExecStart=/usr/bin/containerd
Restart=always
RestartSec=5
Delegate=yes

[Install]
WantedBy=multi-user.target
""",
    "kubelet.service": """\
[Unit]
Description=kubelet: the Kubernetes node agent
Wants=network-online.target containerd.service
After=containerd.service
StartLimitIntervalSec=0

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
""",
    "ssh.service": """\
[Unit]
Description=OpenBSD Secure Shell server

[Service]
Type=notify
ExecStart=/usr/sbin/sshd -D
Restart=on-failure
RestartPreventExitStatus=255

[Install]
WantedBy=multi-user.target
Alias=sshd.service
""",
    "cron.service": """\
[Unit]
Description=Regular background program processing daemon

[Service]
ExecStart=/usr/sbin/cron -f
Restart=on-failure

[Install]
WantedBy=multi-user.target
""",
    "metrics-shim.service": """\
[Unit]
Description=An agent of our own that nobody remembers

[Service]
ExecStart=/opt/metrics/shim
Restart=on-failure

[Install]
WantedBy=multi-user.target
""",
    "dbus.service": "[Unit]\nDescription=D-Bus System Message Bus\n\n[Service]\nExecStart=/usr/bin/dbus-daemon --system\n",
    "multi-user.target": "[Unit]\nDescription=Multi-User System\nRequires=basic.target\n",
    "basic.target": "[Unit]\nDescription=Basic System\nRequires=sysinit.target\nWants=sockets.target timers.target\n",
    "sysinit.target": "[Unit]\nDescription=System Initialization\n",
    "sockets.target": "[Unit]\nDescription=Sockets\n",
    "timers.target": "[Unit]\nDescription=Timers\n",
    "network-online.target": "[Unit]\nDescription=Network is Online\n",
    "systemd-journald.service": (
        "[Unit]\nDescription=Journal Service\nDefaultDependencies=no\n\n"
        "[Service]\nExecStart=/lib/systemd/systemd-journald\nRestart=always\nRestartSec=0\n"
    ),
    "systemd-udevd.service": (
        "[Unit]\nDescription=Rule-based Manager for Device Events and Files\nDefaultDependencies=no\n\n"
        "[Service]\nExecStart=/lib/systemd/systemd-udevd\nRestart=always\nRestartSec=0\n"
    ),
}

ENABLED = {
    "multi-user.target": ("ecs", "docker", "containerd", "kubelet", "ssh", "cron", "metrics-shim"),
    "sockets.target": (),
}
PACKAGES = {
    "amazon-ecs-init": ("ecs.service",),
    "docker.io": ("docker.service", "docker.socket"),
    "containerd": ("containerd.service",),
    "kubelet": ("kubelet.service",),
    "openssh-server": ("ssh.service",),
    "cron": ("cron.service",),
    "dbus": ("dbus.service",),
    "systemd": (*(name for name in UNITS if name.endswith(".target")), "systemd-journald.service"),
    "udev": ("systemd-udevd.service",),
}


def write(root: Path, name: str, text: str) -> Path:
    file = root / name.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def link(root: Path, name: str, target: str) -> None:
    file = root / name.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.symlink_to(target)


def incident(root: Path) -> Path:
    """The image as it was rolled out."""
    root.mkdir(parents=True, exist_ok=True)
    write(root, "etc/os-release", OS_RELEASE)
    units = "/lib/systemd/system"
    for name, text in UNITS.items():
        write(root, f"{units}/{name}", text)
    for target, names in ENABLED.items():
        for name in names:
            link(root, f"etc/systemd/system/{target}.wants/{name}.service", f"{units}/{name}.service")
    link(root, "etc/systemd/system/sockets.target.wants/docker.socket", f"{units}/docker.socket")
    link(root, "etc/systemd/system/sshd.service", f"{units}/ssh.service")
    link(root, f"{units}/default.target", "multi-user.target")
    for name in ("systemd-journald.service", "systemd-udevd.service"):
        link(root, f"{units}/sysinit.target.wants/{name}", f"../{name}")
    link(root, f"{units}/multi-user.target.wants/dbus.service", "../dbus.service")
    status = ""
    for package, names in PACKAGES.items():
        write(root, f"var/lib/dpkg/info/{package}.list", "".join(f"{units}/{name}\n" for name in names))
        status += f"Package: {package}\nStatus: install ok installed\nVersion: 1\nArchitecture: amd64\n\n"
    write(root, "var/lib/dpkg/status", status)
    write(root, "etc/crontab", "17 * * * * root cd / && run-parts --report /etc/cron.hourly\n")
    for program in ("usr/sbin/cron", "usr/bin/kubelet"):
        write(root, program, "").chmod(0o755)
    return root


if __name__ == "__main__":
    print(incident(Path(sys.argv[1])))
