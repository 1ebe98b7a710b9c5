"""What holds zombies on cgroup v2, on real kernels of other versions."""

import json
from typing import Any

import pytest

from tests.vm import holders, vm


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("6.1", "v2"), id="6.1-v2", marks=pytest.mark.ci),
        pytest.param(("6.12", "v2"), id="6.12-v2", marks=pytest.mark.long),
    ],
)
def seen(request: pytest.FixtureRequest) -> dict[str, Any]:
    kernel, hierarchy = request.param
    if why := vm.unavailable(kernel):
        pytest.skip(why)
    told: dict[str, Any] = json.loads(vm.run(kernel, hierarchy, "from tests.vm import holders; holders.main()").check().stdout)
    return told


def test_each_zombie_has_the_holder_that_it_has(seen: dict[str, Any]) -> None:
    kinds = seen["before"]["kinds"]
    assert seen["before"]["exact"], seen["before"]["note"]
    assert kinds["unreaped"] == {"UNREAPED_PROCESS": holders.CHILDREN}
    assert kinds["tmpfs"] == {"SHARED_MEMORY": 1}
    assert seen["before"]["parents"][0][::2] == [seen["pid"], holders.CHILDREN]


def test_a_socket_holds_on_v2(seen: dict[str, Any]) -> None:
    assert seen["before"]["kinds"]["socket"] == {"SOCKET_OR_INODE": 1}


def test_without_the_iterator_proc_says_the_same(seen: dict[str, Any]) -> None:
    assert not seen["by_proc"]["exact"]
    assert seen["by_proc"]["kinds"] == seen["before"]["kinds"]


def test_they_are_gone_when_their_holders_are(seen: dict[str, Any]) -> None:
    assert seen["after"]["kinds"] == {"tmpfs": {"SHARED_MEMORY": 1}}
    assert seen["after"]["parents"] == []
