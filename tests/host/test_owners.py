"""A cgroup path tells whom it belongs to, with either driver of every runtime."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.owners import Owner, owner

ID = "0123456789abcdef" * 4
UID = "12345678-90ab-cdef-1234-567890abcdef"
UNDERSCORED = UID.replace("-", "_")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/system.slice/ecs.service", Owner(unit="ecs.service")),
        ("/system.slice/system-getty.slice/getty@tty1.service", Owner(unit="getty@tty1.service")),
        ("/system.slice/containerd.service/inner", Owner(unit="containerd.service")),
        ("/user.slice/user-0.slice/session-3.scope", Owner(unit="session-3.scope")),
        ("/system.slice", Owner()),
        ("/", Owner()),
        (f"/docker/{ID}", Owner(container=ID, runtime="docker")),
        (f"/system.slice/docker-{ID}.scope", Owner(container=ID, runtime="docker")),
        (f"/machine.slice/libpod-{ID}.scope/container", Owner(container=ID, runtime="podman")),
        (f"/kubepods/burstable/pod{UID}/{ID}", Owner(pod=UID, container=ID)),
        (f"/kubepods/besteffort/pod{UID}", Owner(pod=UID)),
        (f"/kubepods/pod{UID}/crio-{ID}", Owner(pod=UID, container=ID, runtime="cri-o")),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
            Owner(pod=UID, container=ID, runtime="containerd"),
        ),
        (
            f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope",
            Owner(pod=UID, container=ID, runtime="cri-o"),
        ),
        (f"/kubepods/burstable/pod{'ab' * 16}/{ID}", Owner(pod="ab" * 16, container=ID)),
        (
            "/ecs/0123456789abcdef0123456789abcdef/0123456789abcdef0123456789abcdef-1234567890",
            Owner(container="0123456789abcdef0123456789abcdef-1234567890", runtime="ecs"),
        ),
    ],
)
def test_the_owner_of_a_path(path: str, expected: Owner) -> None:
    assert owner(path) == expected


SLICE = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice"
PLAIN = f"/kubepods/burstable/pod{UID}"
CONTAINERD, CRIO, DOCKER = "containerd", "cri-o", "docker"


@pytest.mark.parametrize(
    ("path", "runtime"),
    [
        # containerd: systemd driver, cgroupfs driver, and the two mixed up; a nested group of the container's own on v2
        (f"{SLICE}/cri-containerd-{ID}.scope", CONTAINERD),
        (f"{SLICE}/cri-containerd-{ID}.scope/init.scope", CONTAINERD),
        (f"{PLAIN}/{ID}", ""),
        (f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{ID}", CONTAINERD),
        # the same in a kubelet with a --cgroup-root, as kind has it, inside of a docker container
        (
            f"/docker/{'f' * 64}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope",
            CRIO,
        ),
        (f"/kubelet{PLAIN}/{ID}", ""),
        # CRI-O: systemd driver with runc and with crun, its conmon, cgroupfs driver
        (f"{SLICE}/crio-{ID}.scope", CRIO),
        (f"{SLICE}/crio-{ID}.scope/container", CRIO),
        (f"{SLICE}/crio-conmon-{ID}.scope", CRIO),
        (f"{PLAIN}/crio-{ID}", CRIO),
        (f"{PLAIN}/crio-conmon-{ID}", CRIO),
        # docker (dockershim, cri-dockerd)
        (f"{SLICE}/docker-{ID}.scope", DOCKER),
        (f"{PLAIN}/docker-{ID}", DOCKER),
        # guaranteed and best effort
        (f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope", CONTAINERD),
        (f"/kubepods/pod{UID}/{ID}", ""),
        (
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
            CONTAINERD,
        ),
    ],
)
def test_every_runtime_and_driver_leads_to_the_pod_and_its_container(path: str, runtime: str) -> None:
    """A path of the cgroupfs driver does not say which runtime it was: containerd and docker write the same."""
    found = owner(path)
    assert (found.pod, found.container, found.runtime) == (UID, ID, runtime)


@pytest.mark.parametrize(
    "path",
    [f"/kubepods.slice:{ID}", f"/x.slice:cri:{ID[:-1]}", f"/kubepods-pod{UID}x.slice", f"/kubepods/pod{UID[:-1]}", "/a:b:c"],
)
def test_what_only_looks_like_a_pod_is_none(path: str) -> None:
    found = owner(path)
    assert (found.pod, found.container) == ("", "")


@given(st.text(max_size=300))
def test_any_path_has_an_answer(path: str) -> None:
    assert isinstance(str(owner(path)), str)
