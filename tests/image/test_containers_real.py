"""Containers as real dockerd and containerd of a real Debian write them down. They are created, never started.

The daemons run in namespaces of their own (mounts, processes, network), on an overlay of the kept root, with /sys read-only.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from exhume.host.catalogue import load
from exhume.host.directory import Directory
from exhume.image import containers
from tests.image.roots import debian

pytestmark = pytest.mark.ci

SCRIPT = r"""
set -e
mount -t overlay overlay -o "lowerdir=$1,upperdir=upper,workdir=work" merged
mount -t proc proc merged/proc
mount --rbind -o ro /sys merged/sys
for place in run tmp dev; do mount -t tmpfs tmpfs merged/$place; done
mknod merged/dev/null c 1 3; mknod merged/dev/urandom c 1 9; mknod merged/dev/random c 1 8
ready() { n=0; until chroot merged "$@" >/dev/null 2>&1; do n=$((n + 1)); [ $n -lt 300 ] || exit 75; sleep 0.1; done; }
chroot merged containerd >containerd.log 2>&1 &
ready ctr version
mkdir -p merged/srv/rootfs
chroot merged ctr -n test containers create --rootfs --label containerd.io/restart.status=running \
  --label containerd.io/restart.policy=on-failure:3 /srv/rootfs monitored /bin/true
for i in $(seq 60); do chroot merged ctr -n many containers create --rootfs /srv/rootfs filler-$i /bin/true; done
chroot merged dockerd --containerd /run/containerd/containerd.sock --iptables=false --ip6tables=false --bridge=none \
  --storage-driver=vfs >dockerd.log 2>&1 &
ready docker info
tar -c -C merged/etc hostname | chroot merged docker import - amazon/amazon-ecs-agent:latest
chroot merged docker create --restart always --name endless amazon/amazon-ecs-agent:latest /bin/agent --token abcdef
chroot merged docker create --restart on-failure:5 --name five amazon/amazon-ecs-agent:latest /bin/agent
chroot merged docker create --name none amazon/amazon-ecs-agent:latest /bin/agent
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = debian()
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("namespaces for the daemons need root and unshare")
    here = tmp_path_factory.mktemp("runtimes")
    for name in ("upper", "work", "merged"):
        (here / name).mkdir()
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "sh", "-c", SCRIPT, "sh", str(root)]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False, timeout=120)
    if "overlay" in done.stderr and "mount" in done.stderr:
        pytest.skip(f"no overlay file system here: {done.stderr.strip()}")
    if done.returncode == 75:
        pytest.skip(f"the daemons do not come up here: {(here / 'containerd.log').read_text()[-300:]}")
    assert done.returncode == 0, done.stderr
    # Only what the daemons wrote is kept of the overlay, so the programs that it lies under are named again.
    upper = here / "upper"
    (upper / "usr/bin").mkdir(parents=True, exist_ok=True)
    for name in ("dockerd", "containerd"):
        (upper / "usr/bin" / name).touch()
    return upper


def test_what_real_runtimes_wrote_is_read(written: Path) -> None:
    with Directory(str(written)) as tree:
        found = {service.name: service for service in containers.read(tree)}
        assert tree.troubles == []
    assert set(found) == {"endless", "five", "none", "monitored"}
    endless, five, none, monitored = (found[name].restart for name in ("endless", "five", "none", "monitored"))
    assert endless is not None
    assert endless.endless
    assert five is not None
    assert (five.endless, five.burst) == (False, 5)
    assert none is not None
    assert (none.policy, none.endless) == ("no", False)
    assert monitored is not None
    assert (monitored.policy, monitored.burst) == ("on-failure:3", 3)
    assert found["endless"].command == ("/bin/agent --token ***",)
    assert found["endless"].starts
    assert found["monitored"].starts
    assert not found["none"].starts
    agent = load().recognise(found["endless"])
    assert agent is not None
    assert agent.id == "ecs-agent"
