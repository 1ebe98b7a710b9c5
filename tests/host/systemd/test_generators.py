"""What generators would make, by our models; those of systemd itself are the oracle where they take their input from a file."""

import os
import subprocess
from pathlib import Path

import pytest

from exhume.host.directory import Directory
from exhume.host.systemd.fstab import mounts
from exhume.host.systemd.generators import model
from exhume.host.systemd.instances import crypttab
from exhume.host.systemd.units import read_units
from tests.host.systemd.test_units import BASE, DEFAULT, services
from tests.host.systemd.written import tree

GENERATORS = "/usr/lib/systemd/system-generators"
FSTAB = """# a comment
UUID=0a1b / ext4 errors=remount-ro 0 1
LABEL=home /home/big\\040disk xfs nofail 0 2
/dev/sdb1 /srv/data ext4 defaults 0 2
server:/share /mnt/share nfs defaults 0 0
/dev/sdc1 /mnt/later ext4 noauto 0 0
/dev/sdd1 /mnt/asked ext4 noauto,x-systemd.automount 0 0
/dev/sde1 none swap sw 0 0
/dev/sdf1 none swap noauto 0 0
short
tmpfs /tmp tmpfs size=1g
"""
CRYPTTAB = """# a comment
plain UUID=12 none luks
later /dev/sdb1 none noauto
soft-one /dev/sdc1 none nofail
"""


def made_by(generator: str, variable: str, path: Path, out: Path) -> set[str]:
    """Files and links that systemd's own generator makes of this input, by their place below its directory."""
    program = f"{GENERATORS}/{generator}"
    if not os.access(program, os.X_OK):
        pytest.skip(f"there is no {program}")
    places = [out / name for name in ("normal", "early", "late")]
    for place in places:
        place.mkdir()
    environment = {**os.environ, variable: str(path), "SYSTEMD_LOG_LEVEL": "err", "SYSTEMD_PROC_CMDLINE": ""}
    done = subprocess.run([program, *places], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {str(file.relative_to(places[0])) for file in places[0].rglob("*") if file.is_symlink() or file.is_file()}


def test_mounts_and_swaps_are_those_of_systemds_own_generator(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with tree(root, {"/etc/fstab": FSTAB}) as image:
        ours = {where for where, _ in mounts(image)}
    theirs = made_by("systemd-fstab-generator", "SYSTEMD_FSTAB", root / "etc/fstab", tmp_path)
    # File system checks and waiting for devices start nothing that stays.
    noise = ("systemd-fsck", "device.d/", "systemd-growfs")
    assert "local-fs.target.requires/srv-data.mount" in theirs
    swaps = {name for name in ours if name.endswith(".swap")}  # which the generator leaves out where the kernel has none
    assert swaps == {"dev-sde1.swap", "dev-sdf1.swap", "swap.target.requires/dev-sde1.swap"}
    assert {name for name in theirs if not any(part in name for part in noise)} - swaps == ours - swaps


def test_encrypted_volumes_are_those_of_systemds_own_generator(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with tree(root, {"/etc/crypttab": CRYPTTAB}) as image:
        ours = {where for where, _ in crypttab(image)}
    theirs = made_by("systemd-cryptsetup-generator", "SYSTEMD_CRYPTTAB", root / "etc/crypttab", tmp_path)
    wanted = {name for name in theirs if name.startswith(("cryptsetup.target", "remote-cryptsetup.target")) or "/" not in name}
    assert len(ours) == 5
    assert ours == wanted


def test_instances_of_packages_are_made_and_start(tmp_path: Path) -> None:
    vendor = "/usr/lib/systemd/system/"
    run = "[Service]\nExecStart=/bin/true\n"
    names = ("openvpn-generator", "postgresql-generator", "cloud-init-generator", "systemd-fstab-generator", "mystery")
    files: dict[str, str | bytes] = {
        **BASE,
        **{vendor + unit: run for unit in ("openvpn.service", "openvpn@.service", "postgresql.service", "postgresql@.service")},
        vendor + "cloud-init.target": "[Unit]\n",
        **{f"{GENERATORS}/{name}": "#!/bin/sh\ntouch /tmp/exhume-test-was-run\n" for name in names},
        f"{GENERATORS}/off": "#!/bin/sh\n",
        "/etc/openvpn/site.conf": "x",
        "/etc/openvpn/other.conf": "x",
        "/etc/default/openvpn": 'AUTOSTART="site"\n',
        "/etc/postgresql/15/main/postgresql.conf": "x",
        "/etc/postgresql/15/old/postgresql.conf": "x",
        "/etc/postgresql/15/old/start.conf": "manual\n",
        "/etc/fstab": "/dev/sdb1 /srv ext4 defaults 0 0\n",
    }
    links = DEFAULT | {
        f"/etc/systemd/system/multi-user.target.wants/{unit}": vendor + unit
        for unit in ("openvpn.service", "postgresql.service")
    }
    links |= {"/etc/systemd/system-generators/off": "/dev/null"}
    with tree(tmp_path, files, links) as image:
        for name in (*names, "off"):
            os.chmod(tmp_path / f"{GENERATORS.lstrip('/')}/{name}", 0o755)
        units = read_units(image)
        every = services(units)
        assert units.unknown == (f"{GENERATORS}/mystery",)
    started = {name: service.pulled_by for name, service in every.items() if "@" in name and service.starts}
    assert started == {"openvpn@site.service": ("openvpn.service",), "postgresql@15-main.service": ("postgresql.service",)}
    assert every["cloud-init.target"].pulled_by == ("multi-user.target",)
    assert every["srv.mount"].state == "generated"
    assert not os.path.exists("/tmp/exhume-test-was-run")


def test_where_generators_have_run_nothing_is_put_on_top(tmp_path: Path) -> None:
    files = {
        "/run/systemd/generator/a.mount": "[Mount]\nWhat=x\nWhere=/a\n",
        "/etc/fstab": "/dev/sdb1 /srv ext4 defaults 0 0\n",
    }
    files |= {f"{GENERATORS}/mystery": "#!/bin/sh\n", f"{GENERATORS}/systemd-fstab-generator": "x"}
    with tree(tmp_path, files) as image:
        units = read_units(image)
        assert units.unknown == ()
        assert units.files() == {"a.mount": "generated"}


def test_garbage_in_fstab_and_crypttab_is_passed_over(tmp_path: Path) -> None:
    noise = b"\xff\xfe / x\n/dev/x /\xff ext4\n" + b"a " * 3000 + b"\n\0\0\0 / x x\n/dev/y /" + b"n" * 400 + b" ext4 defaults\n"
    with tree(tmp_path, {"/etc/fstab": noise, "/etc/crypttab": noise}) as image:
        assert [where for where, _ in mounts(image)] == []
        assert all(len(where) < 300 for where, _ in crypttab(image))
        assert isinstance(image, Directory)
        assert model(image).unknown == ()
