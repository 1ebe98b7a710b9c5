"""A purge on cgroup v2, beside a live group with hot cache: it takes no more than it promised."""

import json

import pytest

from tests.vm import vm


@pytest.mark.ci
def test_a_live_group_on_v2_loses_no_more_than_was_promised() -> None:
    if why := vm.unavailable("6.1"):
        pytest.skip(why)
    script = "from tests.vm import purge_beside; purge_beside.main(runs=2, live_mib=160, zombies=40)"
    story = json.loads(vm.run("6.1", "v2", script).check().stdout)
    for run in story["evict"]:
        assert (run["ways"], run["promised"], run["gone"]) == (["evict"], 0, run["zombies"])
        assert run["lost"] < 1 << 20
    for run in story["reclaim"]:
        assert run["ways"] == ["reclaim"]
        assert run["lost"] <= run["promised"]
        assert run["gone"] > 0
