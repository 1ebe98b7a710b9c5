"""A cgroup path tells whom it belongs to, with either driver of every runtime."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.node.owners import Owner, owner

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


@given(st.text(max_size=300))
def test_any_path_has_an_answer(path: str) -> None:
    assert isinstance(str(owner(path)), str)
