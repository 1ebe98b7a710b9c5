"""All sources in one list, on the incident's image and on a real Debian root."""

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.host.directory import Directory
from exhume.host.service import Inventory, Service
from exhume.host.tree import Entry
from exhume.image import inventory, inventory_pods
from exhume.image.inventory import os_release, take_inventory
from tests.image.incident import incident, link, write
from tests.image.roots import debian


class Files:
    """A tree of a few files."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.name, self.live, self.troubles = "/image", True, list[str]()
        self._files = files

    def entry(self, path: str, follow: bool = True) -> Entry | None:
        if path in self._files:
            return Entry("file")
        return Entry("directory") if self.names(path) else None

    def real(self, path: str) -> str | None:
        return path if self.entry(path) else None

    def names(self, path: str) -> list[str]:
        inside = path.rstrip("/") + "/"
        return sorted({file[len(inside) :].split("/")[0] for file in self._files if file.startswith(inside)})

    def read(self, path: str, largest: int = 1 << 20) -> bytes | None:
        return self._files.get(path)


def taken(root: Path) -> Inventory:
    with Directory(str(root)) as tree:
        return take_inventory(tree)


def named(found: Inventory, name: str) -> Service:
    return next(one for one in found.services if one.name == name)


def test_the_incidents_image_has_units_cron_and_packages(tmp_path: Path) -> None:
    found = taken(incident(tmp_path / "root"))
    assert found.system == "Ubuntu 20.04.6 LTS"
    assert found.facts["image_id"] == "gpu-training"
    ecs = named(found, "ecs.service")
    assert (ecs.state, ecs.starts, ecs.package, ecs.needed_by) == ("enabled", True, "amazon-ecs-init", ())
    assert named(found, "docker.service").needed_by == ("ecs.service",)
    assert [one.name for one in found.services if one.kind == "cron"] == ["/etc/crontab:1"]
    assert (found.troubles, found.unknown) == ((), ())


def test_generators_that_are_not_known_are_listed_and_never_run(tmp_path: Path) -> None:
    root = incident(tmp_path / "root")
    canary = tmp_path / "ran"
    script = write(root, "usr/lib/systemd/system-generators/vendor-magic", f"#!/bin/sh\ntouch {canary}\n")
    script.chmod(0o755)
    found = taken(root)
    assert [name for name in found.unknown if name.endswith("vendor-magic")]
    assert not canary.exists()


def test_a_source_that_fails_hides_nothing_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(tree: object) -> list[Service]:
        raise ExhumeError("the crontabs are on fire")

    monkeypatch.setattr(inventory, "_READERS", (fails,))
    found = taken(incident(tmp_path / "root"))
    assert "the crontabs are on fire" in found.troubles
    assert named(found, "ecs.service").starts


def test_progress_goes_up_to_the_end(tmp_path: Path) -> None:
    seen: list[float] = []
    with Directory(str(incident(tmp_path / "root"))) as tree:
        take_inventory(tree, seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@given(st.binary(max_size=120))
def test_any_os_release_is_read(raw: bytes) -> None:
    told = os_release(Files({"/etc/os-release": raw + b'\nPRETTY_NAME="Debian \\"12\\""\n'}))
    assert told["PRETTY_NAME"] == 'Debian "12"'


def test_daemonsets_are_known_by_their_pods_names_with_images_and_restarts() -> None:
    uid = "11111111-2222-3333-4444-555555555555"
    task = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
    said = {
        "io.kubernetes.cri.sandbox-name": "exporter-x7k2p",
        "io.kubernetes.cri.sandbox-namespace": "monitoring",
        "io.kubernetes.cri.image-name": "quay.io/prometheus/node-exporter:v1.8.0",
    }
    files = {
        f"/var/log/pods/monitoring_exporter-x7k2p_{uid}/main/0.log": b"",
        f"/var/log/pods/monitoring_exporter-x7k2p_{uid}/sidecar/41.log": b"",
        f"/var/log/pods/monitoring_exporter-x7k2p_{uid}/sidecar/40.log": b"",
        f"/var/log/pods/web_shop-6d4cf56db6-x7k2p_{uid}/main/0.log": b"",  # a Deployment's
        f"/var/log/pods/db_postgres-0_{uid}/main/0.log": b"",  # a StatefulSet's
        f"{task}/abc/config.json": json.dumps({"annotations": said}).encode(),
        f"{task}/def/config.json": b"[[[",
    }
    (one,) = inventory_pods.read(Files(files))
    assert (one.name, one.kind, one.starts) == ("monitoring/exporter", "daemonset", True)
    assert one.description == "quay.io/prometheus/node-exporter:v1.8.0"
    assert "its container sidecar has been restarted 41 times" in one.notes


@given(st.text(max_size=60), st.binary(max_size=60))
def test_any_names_and_states_of_pods_are_read(name: str, raw: bytes) -> None:
    task = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/x/config.json"
    found = inventory_pods.read(Files({f"/var/log/pods/{name}/c/0.log": b"", task: raw}))
    assert len(found) <= 1


def test_of_a_real_debian_root_everything_enabled_is_there_with_its_package() -> None:
    root = debian()
    listed = subprocess.run(
        ["systemctl", f"--root={root}", "list-unit-files", "--state=enabled", "--no-legend", "--no-pager"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip(f"systemctl --root does not work here: {listed.stderr}")
    enabled = {line.split()[0] for line in listed.stdout.splitlines() if line.strip()}
    found = taken(root)
    units = {one.name: one for one in found.services if one.kind == "unit"}
    instances = {name for name in units if "@" in name and "@." not in name}  # which it does not list
    assert enabled == {name for name, one in units.items() if one.state == "enabled"} - instances
    assert units["ssh.service"].package == "openssh-server"
    assert units["containerd.service"].package == "containerd"
    assert {one.kind for one in found.services} >= {"unit", "cron"}


def test_links_out_of_the_root_show_nothing_of_this_machine(tmp_path: Path) -> None:
    root = incident(tmp_path / "root")
    outside = write(tmp_path, "outside.service", "[Service]\nExecStart=/bin/outside\n")
    link(root, "etc/systemd/system/leak.service", str(outside))
    link(root, "etc/systemd/system/multi-user.target.wants/leak.service", str(outside))
    assert "/bin/outside" not in repr(taken(root))
