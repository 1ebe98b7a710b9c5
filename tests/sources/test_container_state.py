"""From a container's id to its name, image and the unit that asked for it, by what runtimes and the kubelet keep on disk."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.container_units import bare_image, starts
from exhume.host.owners import Owner, owner
from exhume.host.root import Root
from exhume.host.systemd.unit_file import merge, parse
from exhume.sources.container_state import Containers, ContainerState, describe
from tests.examples import examples
from tests.trees import Tree

ID = "0123456789abcdef" * 4
GONE = "fedcba9876543210" * 4
UID = "12345678-90ab-cdef-1234-567890abcdef"

ECS_UNIT = """\
[Unit]
Description=the agent
After=docker.service

[Service]
Restart=on-failure
RestartPreventExitStatus=5
RestartSec=10s
ExecStartPre=/usr/libexec/amazon-ecs-init pre-start
ExecStart=/usr/libexec/amazon-ecs-init start
ExecStop=/usr/libexec/amazon-ecs-init stop
"""


def docker(tree: Tree, container: str, name: str, image: str, labels: dict[str, str] | None = None, at: str = "") -> None:
    """config.v2.json, as far as moby's daemon writes what concerns us."""
    state = {
        "StreamConfig": {},
        "State": {"Running": True, "Restarting": False, "OOMKilled": False, "Pid": 4711, "ExitCode": 0},
        "ID": container,
        "Created": "2025-03-07T03:59:11.534433546Z",
        "Config": {"Hostname": container[:12], "Image": image, "Labels": labels or {}, "Env": ["A=b"]},
        "Image": "sha256:" + "a" * 64,
        "Name": "/" + name,
        "Driver": "overlay2",
        "RestartCount": 7,
    }
    tree.write(f"{at or 'var/lib/docker'}/containers/{container}/config.v2.json", json.dumps(state))


def oci(tree: Tree, place: str, annotations: dict[str, str]) -> None:
    tree.write(place, json.dumps({"ociVersion": "1.0.2", "process": {"args": ["/app"]}, "annotations": annotations}))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def of(tree: Tree, path: str) -> ContainerState:
    return describe(Root(str(tree.path)), owner(path))


def test_the_ecs_agent_is_named_and_leads_to_the_unit_that_starts_it_again_and_again(tree: Tree) -> None:
    docker(tree, ID, "ecs-agent", "amazon/amazon-ecs-agent:latest")
    tree.write("usr/lib/systemd/system/ecs.service", ECS_UNIT)
    state = of(tree, f"/docker/{ID}")
    assert (state.name, state.image, state.restarts) == ("ecs-agent", "amazon/amazon-ecs-agent:latest", 7)
    assert (state.started_by_unit, state.confidence) == ("ecs.service", 0.95)
    assert "ecs-init" in state.how


def test_the_ecs_agent_under_another_name_is_known_by_its_image(tree: Tree) -> None:
    docker(tree, ID, "odd", "public.ecr.aws/ecs/amazon-ecs-agent:v1.90.0")
    tree.write("etc/systemd/system/ecs.service", ECS_UNIT)
    assert of(tree, f"/docker/{ID}").started_by_unit == "ecs.service"


def test_without_the_unit_file_it_is_less_sure(tree: Tree) -> None:
    docker(tree, ID, "ecs-agent", "amazon/amazon-ecs-agent:latest")
    state = of(tree, f"/docker/{ID}")
    assert (state.started_by_unit, state.confidence) == ("ecs.service", 0.6)
    assert "no unit file" in state.how


def test_a_masked_unit_starts_nothing(tree: Tree) -> None:
    docker(tree, ID, "ecs-agent", "amazon/amazon-ecs-agent:latest")
    tree.write("usr/lib/systemd/system/ecs.service", ECS_UNIT)
    os.makedirs(tree.path / "etc/systemd/system")
    os.symlink("/dev/null", tree.path / "etc/systemd/system/ecs.service")
    assert of(tree, f"/docker/{ID}").confidence == 0.6


def test_a_container_that_docker_removed_has_an_heir_and_that_is_only_a_hint(tree: Tree) -> None:
    docker(tree, ID, "ecs-agent", "amazon/amazon-ecs-agent:latest")
    tree.write("usr/lib/systemd/system/ecs.service", ECS_UNIT)
    state = of(tree, f"/docker/{GONE}")
    assert state.started_by_unit == "ecs.service"
    assert 0.3 < state.confidence < 0.5
    assert "gone" in state.how
    # Another container that no unit asks for could as well be the one that comes and goes.
    docker(tree, "ab" * 32, "build-17", "ci/build")
    assert of(tree, f"/docker/{GONE}").confidence == pytest.approx(state.confidence / 2)


def test_two_possible_heirs_are_none(tree: Tree) -> None:
    docker(tree, ID, "ecs-agent", "amazon/amazon-ecs-agent:latest")
    docker(tree, "ab" * 32, "web", "nginx")
    tree.write("usr/lib/systemd/system/ecs.service", ECS_UNIT)
    tree.write("etc/systemd/system/web.service", "[Service]\nExecStart=/usr/bin/docker run --rm --name web nginx\n")
    state = of(tree, f"/docker/{GONE}")
    assert (state.started_by_unit, state.name, state.confidence) == ("", "", 0.0)


def test_docker_is_found_where_its_configuration_says_and_behind_a_link(tree: Tree) -> None:
    docker(tree, ID, "far", "x", at="mnt/nvme/docker")
    tree.write("etc/docker/daemon.json", '{"data-root": "/data/docker"}')
    os.makedirs(tree.path / "data")
    os.symlink("/mnt/nvme/docker", tree.path / "data/docker")
    assert of(tree, f"/system.slice/docker-{ID}.scope").name == "far"


CONTAINERD = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.container-name": "trainer",
    "io.kubernetes.cri.image-name": "registry.local/ray:2.9",
    "io.kubernetes.cri.sandbox-name": "ray-worker-7",
    "io.kubernetes.cri.sandbox-namespace": "ml",
    "io.kubernetes.cri.sandbox-uid": UID,
}


@pytest.mark.parametrize("place", ["run/containerd", "run/k3s/containerd"])
def test_a_container_of_containerd_has_its_pod_from_its_annotations(tree: Tree, place: str) -> None:
    oci(tree, f"{place}/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json", CONTAINERD)
    tree.write("etc/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n")
    state = of(tree, f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{ID}.scope")
    assert (state.name, state.pod, state.namespace) == ("trainer", "ray-worker-7", "ml")
    assert state.image == "registry.local/ray:2.9"
    assert (state.started_by_unit, state.confidence) == ("kubelet.service", 0.95)


def test_the_sandbox_of_a_pod_is_named_as_docker_named_it(tree: Tree) -> None:
    sandbox = {key: value for key, value in CONTAINERD.items() if "container-name" not in key and "image" not in key}
    oci(tree, f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json", sandbox)
    state = of(tree, f"/kubepods/pod{UID}/{ID}")
    assert (state.name, state.pod) == ("POD", "ray-worker-7")


@pytest.mark.parametrize("place", ["run", "var/lib"])
def test_a_container_of_cri_o(tree: Tree, place: str) -> None:
    annotations = {
        "io.kubernetes.container.name": "etcd",
        "io.kubernetes.pod.name": "etcd-0",
        "io.kubernetes.pod.namespace": "kube-system",
        "io.kubernetes.cri-o.ImageName": "quay.io/etcd:3",
        "io.kubernetes.cri-o.Labels": '{"tier": "control", "n": 3}',
    }
    oci(tree, f"{place}/containers/storage/overlay-containers/{ID}/userdata/config.json", annotations)
    state = of(tree, f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{ID}.scope")
    assert (state.name, state.pod, state.namespace, state.image) == ("etcd", "etcd-0", "kube-system", "quay.io/etcd:3")
    assert ("tier", "control") in state.labels


@pytest.mark.parametrize("index", ["containers.json", "volatile-containers.json"])
def test_a_container_of_podman_by_the_list_of_its_storage(tree: Tree, index: str) -> None:
    said = json.dumps({"image-name": "docker.io/library/redis:7", "name": "cache"})
    entries = [{"id": GONE, "names": ["other"]}, {"id": ID, "names": ["cache"], "image": "ab" * 32, "metadata": said}]
    tree.write(f"var/lib/containers/storage/overlay-containers/{index}", json.dumps(entries))
    tree.write("etc/containers/systemd/redis.container", "[Container]\nContainerName=cache\nImage=docker.io/library/redis:7\n")
    state = of(tree, f"/machine.slice/libpod-{ID}.scope")
    assert (state.name, state.image) == ("cache", "docker.io/library/redis:7")
    assert (state.started_by_unit, state.confidence) == ("redis.service", 0.9)


def test_dockers_labels_of_the_kubelet_name_the_pod(tree: Tree) -> None:
    labels = {
        "io.kubernetes.container.name": "dns",
        "io.kubernetes.pod.name": "coredns-1",
        "io.kubernetes.pod.namespace": "kube-system",
    }
    docker(tree, ID, "k8s_dns_coredns-1_kube-system_x_0", "sha256:" + "a" * 64, labels)
    state = of(tree, f"/docker/{ID}")
    assert (state.name, state.pod, state.namespace) == ("dns", "coredns-1", "kube-system")
    assert state.started_by_unit == "kubelet.service"


def test_the_kubelets_links_name_a_container_that_its_runtime_has_forgotten(tree: Tree) -> None:
    os.makedirs(tree.path / "var/log/containers")
    link = tree.path / f"var/log/containers/web-0_shop_nginx-proxy-{ID}.log"
    os.symlink(f"/var/log/pods/shop_web-0_{UID}/nginx-proxy/3.log", link)
    state = of(tree, f"/kubepods/burstable/pod{UID}/{ID}")
    assert (state.name, state.pod, state.namespace) == ("nginx-proxy", "web-0", "shop")


def test_the_kubelets_log_directory_names_the_pod_of_a_container_that_is_wholly_gone(tree: Tree) -> None:
    os.makedirs(tree.path / f"var/log/pods/shop_web-0_{UID}/nginx")
    state = of(tree, f"/kubepods/burstable/pod{UID}/{GONE}")
    assert (state.name, state.pod, state.namespace) == ("", "web-0", "shop")
    tree.write("etc/systemd/system/k3s-agent.service", "[Service]\nExecStart=/usr/local/bin/k3s agent\n")
    assert of(tree, f"/kubepods/burstable/pod{UID}/{GONE}").started_by_unit == "k3s-agent.service"


@pytest.mark.parametrize(
    ("unit", "text", "container"),
    [
        ("web.service", "ExecStart=/usr/bin/docker run --rm --name web -p 80:80 nginx", "web"),
        ("web.service", "ExecStart=-/usr/bin/docker run \\\n  # a note\n  --rm \\\n  --name=web \\\n  nginx", "web"),
        ("web.service", "ExecStart=/bin/sh -c 'docker rm -f web; exec docker run --name web nginx'", "web"),
        ("web.service", "ExecStartPre=/usr/bin/docker create --name %p nginx\nExecStart=/usr/bin/docker start -a %p", "web"),
        ("web.service", "ExecStart=/usr/bin/docker -H unix:///run/docker.sock container run --name %N nginx", "web"),
        ("web.service", "ExecStart=/usr/bin/podman start -a old\nExecStart=/usr/bin/podman start web", "web"),
        ("web.service", "ExecStart=/usr/bin/docker run --name %n nginx", "web.service"),
        ("job@.service", "ExecStart=/usr/bin/docker run --name job-%i nginx", "job-17"),
    ],
)
def test_a_unit_file_that_starts_the_container_by_name_asked_for_it(tree: Tree, unit: str, text: str, container: str) -> None:
    docker(tree, ID, container, "nginx")
    tree.write(f"etc/systemd/system/{unit}", f"[Unit]\nAfter=docker.service\n[Service]\n{text}\n")
    state = of(tree, f"/docker/{ID}")
    assert state.started_by_unit == unit.replace("@", "@17")
    assert state.confidence == 0.9


@pytest.mark.parametrize(
    "text",
    [
        "ExecStop=/usr/bin/docker start web",
        "ExecStart=/usr/bin/docker rm -f web",
        "ExecStart=/usr/bin/docker run --name other web",
        "# ExecStart=/usr/bin/docker run --name web nginx",
        "ExecStart=/usr/bin/echo run --name web",
        "ExecStart=/usr/bin/docker run --name x y ; echo --name web",
    ],
)
def test_a_unit_file_that_does_not_start_it_is_not_blamed(tree: Tree, text: str) -> None:
    docker(tree, ID, "web", "nginx")
    tree.write("etc/systemd/system/web.service", f"[Service]\n{text}\n")
    assert of(tree, f"/docker/{ID}").started_by_unit == ""


def test_a_name_that_two_units_start_is_half_as_sure(tree: Tree) -> None:
    docker(tree, ID, "web", "nginx")
    for unit in ("a", "b"):
        tree.write(f"etc/systemd/system/{unit}.service", "[Service]\nExecStart=/usr/bin/docker start web\n")
    assert of(tree, f"/docker/{ID}").confidence == 0.45


def test_an_unnamed_container_is_found_by_its_image(tree: Tree) -> None:
    docker(tree, ID, "zen_hopper", "corp/exporter:3")
    tree.write("etc/systemd/system/exporter.service", "[Service]\nExecStart=/usr/bin/docker run --rm corp/exporter:3\n")
    state = of(tree, f"/docker/{ID}")
    assert (state.started_by_unit, state.confidence) == ("exporter.service", 0.7)


def test_a_drop_in_starts_it_too(tree: Tree) -> None:
    docker(tree, ID, "web", "nginx")
    tree.write("usr/lib/systemd/system/app.service", "[Service]\nExecStart=/usr/bin/app\n")
    tree.write("etc/systemd/system/app.service.d/50.conf", "[Service]\nExecStart=\nExecStart=/usr/bin/docker start -a web\n")
    assert of(tree, f"/docker/{ID}").started_by_unit == "app.service"


def test_a_compose_project_is_named_and_its_unit_where_there_is_one(tree: Tree) -> None:
    labels = {"com.docker.compose.project": "shop", "com.docker.compose.project.working_dir": "/srv/shop"}
    docker(tree, ID, "shop-web-1", "nginx", labels)
    alone = of(tree, f"/docker/{ID}")
    assert alone.started_by_unit == ""
    assert "compose project shop" in alone.how
    tree.write(
        "etc/systemd/system/shop.service", "[Service]\nWorkingDirectory=/srv/shop\nExecStart=/usr/bin/docker compose up\n"
    )
    assert of(tree, f"/docker/{ID}").started_by_unit == "shop.service"


def test_podmans_label_names_the_unit(tree: Tree) -> None:
    docker(tree, ID, "web", "nginx", {"PODMAN_SYSTEMD_UNIT": "web-7.service"})
    state = of(tree, f"/docker/{ID}")
    assert (state.started_by_unit, state.confidence) == ("web-7.service", 0.97)


def test_a_group_in_a_unit_belongs_to_the_unit(tree: Tree) -> None:
    assert of(tree, "/system.slice/ecs.service").started_by_unit == "ecs.service"
    assert of(tree, f"/system.slice/redis.service/libpod-payload-{ID}").started_by_unit == "redis.service"


def test_an_ecs_task_was_asked_for_by_the_agent_even_when_it_is_gone(tree: Tree) -> None:
    state = of(tree, f"/ecs/{'ab' * 16}/{'ab' * 16}-1234567890")
    assert (state.started_by_unit, state.confidence) == ("ecs.service", 0.6)


@pytest.mark.parametrize("hand", ["init.scope", "docker.service", "containerd.service"])
def test_the_hand_is_never_accused(tree: Tree, hand: str) -> None:
    docker(tree, ID, "web", "nginx")
    state = describe(Root(str(tree.path)), Owner(unit=hand, container=ID, runtime="docker"))
    assert (state.started_by_unit, state.name) == ("", "web")
    assert describe(Root(str(tree.path)), Owner(unit=hand)).started_by_unit == ""


def test_nothing_known_is_said_so(tree: Tree) -> None:
    state = of(tree, f"/somewhere/{ID}")
    assert (state.name, state.started_by_unit, state.confidence) == ("", "", 0.0)
    assert state.how


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"Name": 7, "Config": []}',
        b"[" * 100_000,
        b'{"Name": "/x", "Config": {"Labels": 3}}',
    ],
)
def test_damaged_state_says_nothing_and_raises_nothing(tree: Tree, raw: bytes) -> None:
    tree.write(f"var/lib/docker/containers/{ID}/config.v2.json", raw)
    tree.write(f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json", raw)
    tree.write("var/lib/containers/storage/overlay-containers/containers.json", raw)
    tree.write("etc/docker/daemon.json", raw)
    tree.write("etc/systemd/system/x.service", raw)
    assert of(tree, f"/docker/{ID}").image == ""


def test_a_fifo_and_a_giant_are_passed_over(tree: Tree) -> None:
    directory = tree.path / f"var/lib/docker/containers/{ID}"
    os.makedirs(directory)
    os.mkfifo(directory / "config.v2.json")
    assert of(tree, f"/docker/{ID}").name == ""
    os.unlink(directory / "config.v2.json")
    with open(directory / "config.v2.json", "wb") as file:
        file.truncate(1 << 40)
    assert of(tree, f"/docker/{ID}").name == ""


def test_hostile_names_are_carried_as_data(tree: Tree) -> None:
    docker(tree, ID, "a\x1b[2J\ud800\n", "i" * 10_000)
    state = of(tree, f"/docker/{ID}")
    assert state.name == "a\x1b[2J\\xed\\xa0\\x80\n"
    assert len(state.image) == 4096
    state.name.encode()


@pytest.mark.parametrize("container", ["../../etc", "..", "a/b", "", "x" * 5000, "\0" * 64])
def test_an_id_cannot_lead_out_of_the_runtimes_directory(tree: Tree, container: str) -> None:
    tree.write("var/lib/docker/config.v2.json", '{"Name": "/wrong", "Config": {"Image": "x"}}')
    assert describe(Root(str(tree.path)), Owner(container=container)).name == ""


def test_links_stay_inside_the_root_they_are_of(tree: Tree) -> None:
    root = Root(str(tree.path))
    tree.write("real/file", "inside")
    for name, target in (("absolute", "/real"), ("relative", "../../../real"), ("loop", "loop"), ("out", "/../../etc")):
        os.symlink(target, tree.path / name)
    assert root.regular("absolute/file", 100) == b"inside"
    assert root.regular("relative/file", 100) == b"inside"
    assert root.first_names("absolute", 9) == ["file"]
    assert root.regular("loop/file", 100) is None
    assert root.regular("out/passwd", 1 << 20) is None
    assert root.regular("a\0b", 100) is None
    assert root.regular("real", 100) is None
    assert root.first_names("real/file", 9) == []


@pytest.mark.parametrize(
    ("image", "bare"),
    [
        ("amazon/amazon-ecs-agent:latest", "amazon/amazon-ecs-agent"),
        ("public.ecr.aws/ecs/amazon-ecs-agent:v1.2@sha256:" + "a" * 64, "ecs/amazon-ecs-agent"),
        ("localhost:5000/x", "x"),
        ("nginx", "nginx"),
        ("", ""),
    ],
)
def test_the_bare_image(image: str, bare: str) -> None:
    assert bare_image(image) == bare


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)
keyed = st.fixed_dictionaries(
    {},
    optional={
        "Name": json_values,
        "Config": st.fixed_dictionaries({}, optional={"Image": json_values, "Labels": json_values}),
        "annotations": st.dictionaries(st.sampled_from([*CONTAINERD, "io.kubernetes.cri-o.Labels"]), json_values),
        "RestartCount": json_values,
    },
)


@given(state=st.one_of(json_values, keyed), unit=st.binary(max_size=300))
@settings(max_examples=examples(60))
def test_whatever_the_files_hold_there_is_an_answer(
    tmp_path_factory: pytest.TempPathFactory, state: object, unit: bytes
) -> None:
    tree = Tree(tmp_path_factory.mktemp("node"))
    raw = json.dumps(state)
    tree.write(f"var/lib/docker/containers/{ID}/config.v2.json", raw)
    tree.write(f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json", raw)
    tree.write(f"var/lib/containers/storage/overlay-containers/{ID}/userdata/config.json", raw)
    tree.write("var/lib/containers/storage/overlay-containers/containers.json", json.dumps([state, {"id": ID, "names": state}]))
    tree.write("etc/systemd/system/x.service", b"[Service]\nExecStart=docker " + unit)
    known = Containers(Root(str(tree.path)))
    for path in (f"/docker/{ID}", f"/docker/{GONE}", f"/kubepods/pod{UID}/{ID}"):
        described = known.describe(owner(path))
        assert 0.0 <= described.confidence <= 1.0
        assert described.how
        (described.name + described.image + described.pod + described.started_by_unit + str(described.labels)).encode()


@given(st.text(alphabet="web%inNp@.", max_size=12), st.binary(max_size=200))
def test_any_unit_file_is_read_to_its_end(unit: str, text: bytes) -> None:
    for start in starts(unit + ".service", merge([parse(b"[Service]\nExecStart=/usr/bin/docker " + text)])):
        assert start.unit == unit + ".service"
