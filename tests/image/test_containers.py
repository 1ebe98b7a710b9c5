"""Containers that runtimes start again: docker, podman, containerd, quadlet, from files and from databases."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.service import Service
from exhume.image import containers
from exhume.image.container_stores import CONTAINERD
from tests.examples import examples
from tests.image import bolt_file
from tests.image.planted import Content, Planted

DOCKER = {"/usr/bin/dockerd": "#!"}


def docker(policy: str, retries: int = 0, **state: Any) -> dict[str, Content]:
    place = "/var/lib/docker/containers/0123abc"
    config = {
        "ID": "0123abc",
        "Name": "/agent",
        "Path": "/agent",
        "Args": ["--api-key", "k3y"],
        "Config": {"Image": "amazon/amazon-ecs-agent:latest"},
        "State": {"Running": state.pop("running", True), "ExitCode": state.pop("code", 0)},
        **state,
    }
    host = {"RestartPolicy": {"Name": policy, "MaximumRetryCount": retries}}
    return {f"{place}/config.v2.json": json.dumps(config), f"{place}/hostconfig.json": json.dumps(host)}


def only(tree: Planted) -> Service:
    (service,) = containers.read(tree)
    return service


def test_dockers_always_never_ends_and_says_so() -> None:
    service = only(Planted({**DOCKER, **docker("always")}))
    assert service.name == "agent"
    assert service.kind == "container"
    assert service.starts
    assert service.description == "amazon/amazon-ecs-agent:latest"
    assert service.command == ("/agent --api-key ***",)
    assert service.restart is not None
    assert service.restart.endless
    assert service.restart.delay_s == 0.1
    assert "100 ms to 1 min" in service.restart.why
    assert service.cgroups


@pytest.mark.parametrize(
    ("policy", "state", "starts", "endless"),
    [
        ("always", {"HasBeenManuallyStopped": True}, True, True),
        ("unless-stopped", {}, True, True),
        ("unless-stopped", {"HasBeenManuallyStopped": True}, False, True),
        ("on-failure", {"running": False, "code": 1}, True, True),
        ("on-failure", {"running": False, "code": 0}, False, True),
        ("no", {}, False, False),
        ("", {}, False, False),
    ],
)
def test_what_dockerd_starts_when_it_comes_up(policy: str, state: dict[str, Any], starts: bool, endless: bool) -> None:
    service = only(Planted({**DOCKER, **docker(policy, **state)}))
    assert service.restart is not None
    assert (service.starts, service.restart.endless) == (starts, endless)
    assert bool(service.conditions) != starts


def test_a_number_of_retries_ends_it() -> None:
    service = only(Planted({**DOCKER, **docker("on-failure", 5)}))
    assert service.restart is not None
    assert not service.restart.endless
    assert service.restart.burst == 5


def test_without_dockerd_nothing_starts_and_live_restore_is_noted() -> None:
    assert only(Planted(docker("always"))).conditions == ("no dockerd is installed on this image",)
    assert (
        "live-restore"
        in only(Planted({**DOCKER, **docker("always"), "/etc/docker/daemon.json": '{"live-restore": true}'})).notes[0]
    )


def test_the_place_of_dockers_data_is_dockers_to_say() -> None:
    moved = {path.replace("/var/lib/docker", "/data"): text for path, text in docker("always").items()}
    assert only(Planted({**DOCKER, **moved, "/etc/docker/daemon.json": '{"data-root": "/data/"}'})).starts


PODMAN = {
    "/usr/bin/podman": "#!",
    "/usr/lib/systemd/system/podman-restart.service": "ExecStart=podman start --all --filter restart-policy=always\n",
}
BOOT = {"/etc/systemd/system/default.target.wants/podman-restart.service": "/usr/lib/systemd/system/podman-restart.service"}
CONFIG = {"name": "web", "restart_policy": "always", "rootfsImageName": "docker.io/library/nginx:1", "command": ["nginx", "-g"]}


def database(tmp_path: Path, *configs: object) -> bytes:
    """As libpod's SQLite state has it: a row of JSON for each container."""
    connection = sqlite3.connect(tmp_path / "db.sql")
    connection.execute("pragma journal_mode=wal")
    connection.execute("create table ContainerConfig (ID text primary key, Name text, PodID text, JSON text not null)")
    for number, config in enumerate(configs):
        connection.execute("insert into ContainerConfig values (?, ?, null, ?)", (str(number), str(number), json.dumps(config)))
    connection.commit()
    connection.close()
    return (tmp_path / "db.sql").read_bytes()


def test_podmans_containers_of_either_database(tmp_path: Path) -> None:
    bolted = bolt_file.write(
        {b"ctr": {b"id1": {b"config": json.dumps(CONFIG).encode(), b"state": b"{}"}}, b"all-ctrs": {b"id1": b"web"}}
    )
    for path, data in (("libpod/bolt_state.db", bolted), ("db.sql", database(tmp_path, CONFIG))):
        service = only(Planted({**PODMAN, f"/var/lib/containers/storage/{path}": data}, BOOT))
        assert service.name == "web"
        assert service.description == "docker.io/library/nginx:1"
        assert service.command == ("nginx -g",)
        assert service.starts
        assert service.restart is not None
        assert service.restart.endless


def test_podman_starts_at_boot_only_what_its_unit_is_told_to(tmp_path: Path) -> None:
    data = {
        "/var/lib/containers/storage/db.sql": database(
            tmp_path, CONFIG, {**CONFIG, "name": "b", "restart_policy": "unless-stopped"}
        )
    }
    assert [service.starts for service in containers.read(Planted({**PODMAN, **data}, BOOT))] == [True, False]
    assert [service.starts for service in containers.read(Planted({**PODMAN, **data}))] == [False, False]
    command = "podman start --all --filter restart-policy=always --filter restart-policy=unless-stopped\n"
    newer = {"/usr/lib/systemd/system/podman-restart.service": command}
    assert [service.starts for service in containers.read(Planted({**PODMAN, **newer, **data}, BOOT))] == [True, True]


def containerd(**labels: str) -> Planted:
    named = {name.replace("__", "/").replace("_", "."): value for name, value in labels.items()}
    container: bolt_file.Buckets = {
        b"image": b"docker.io/library/x:1",
        b"labels": {k.encode(): v.encode() for k, v in named.items()},
    }
    data = bolt_file.write({b"v1": {b"default": {b"containers": {b"c1": container}}}}, inline=True)
    return Planted({"/usr/bin/containerd": "#!", CONTAINERD: data})


def test_labels_of_the_restart_monitor() -> None:
    service = only(containerd(containerd_io__restart_status="running", nerdctl__name="web"))
    assert (service.name, service.starts, service.description) == ("web", True, "docker.io/library/x:1")
    assert service.restart is not None
    assert service.restart.endless
    limited = only(containerd(containerd_io__restart_status="running", containerd_io__restart_policy="on-failure:4"))
    assert limited.restart is not None
    assert (limited.restart.endless, limited.restart.burst) == (False, 4)
    assert not only(containerd(containerd_io__restart_status="stopped")).starts
    assert containers.read(containerd(io_cri__kind="container")) == []


def test_a_quadlet_file_is_a_service_with_systemds_own_arithmetic() -> None:
    text = "[Container]\nImage=quay.io/x/agent:1\nExec=run --fast\n[Service]\nRestart=always\nRestartSec=10\n"
    text += "[Install]\nWantedBy=default.target\n"
    generator = {"/usr/lib/systemd/system-generators/podman-system-generator": "#!"}
    files = {"/etc/containers/systemd/agent.container": text, "/usr/share/containers/systemd/agent.container": "[Container]\n"}
    service = only(Planted({**generator, **files}))
    assert (service.name, service.starts, service.description) == ("agent.service", True, "quay.io/x/agent:1")
    assert service.restart is not None
    assert service.restart.endless
    assert service.pulled_by == ("default.target",)
    assert not only(Planted(files)).starts
    assert not only(Planted({**generator, "/etc/containers/systemd/a.container": "[Container]\nImage=x\n"})).starts


def test_quadlets_of_drop_ins_and_pods() -> None:
    files = {
        "/usr/lib/systemd/system-generators/podman-system-generator": "#!",
        "/etc/containers/systemd/a.pod": "[Pod]\nPodName=a\n[Install]\nWantedBy=multi-user.target\n",
        "/etc/containers/systemd/b.container": "[Container]\nImage=x\n",
        "/etc/containers/systemd/b.container.d/10-install.conf": "[Install]\nWantedBy=multi-user.target\n",
        "/etc/containers/systemd/c.volume": "[Volume]\n",
    }
    assert [(service.name, service.starts) for service in containers.read(Planted(files))] == [
        ("a-pod.service", True),
        ("b.service", True),
    ]


def test_a_database_that_is_broken_is_told() -> None:
    for data in (b"", b"x" * 5000, bolt_file.write({})[:4100]):
        tree = Planted({"/usr/bin/containerd": "", CONTAINERD: data})
        assert containers.read(tree) == []
        assert len(tree.troubles) == 1


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["Name", "Path", "Args", "Config", "Image", "State", "RestartPolicy", "MaximumRetryCount", "data-root"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=examples(60))
@given(JSON, JSON, JSON)
def test_any_json_of_docker_is_a_service_or_nothing(config: Any, host: Any, daemon: Any) -> None:
    place = "/var/lib/docker/containers/x"
    files = {f"{place}/config.v2.json": config, f"{place}/hostconfig.json": host, "/etc/docker/daemon.json": daemon}
    services = containers.read(Planted({**DOCKER, **{path: json.dumps(value) for path, value in files.items()}}))
    assert all(service.restart is not None and bool(service.conditions) != service.starts for service in services)


@settings(max_examples=examples(100))
@given(st.binary(max_size=200))
def test_any_bytes_in_every_place_end_in_services(text: bytes) -> None:
    paths = ["/etc/docker/daemon.json", "/var/lib/docker/containers/x/config.v2.json", CONTAINERD]
    paths += [
        "/var/lib/containers/storage/db.sql",
        "/var/lib/containers/storage/libpod/bolt_state.db",
        "/etc/containers/systemd/a.container",
    ]
    tree = Planted(dict.fromkeys(paths, text))
    assert [service.name for service in containers.read(tree)] == ["a.service"]
    assert all(trouble.endswith(".") for trouble in tree.troubles)
