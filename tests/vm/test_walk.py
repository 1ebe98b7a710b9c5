"""The walk on other kernels, both ways to run its program, and what their BTF says about kernel memory."""

import json
from typing import Any

import pytest

from tests.vm import vm

# Groups that live: how many there are does not change while nobody makes or removes one.
SCRIPT = """
import json
from pathlib import Path
from exhume.kernel.bpf import Btf, Features
from exhume.sources.memcg_program import kernel_pins, slab_pins
from exhume.sources.memcg_walk import walk

cgroups = Path("/sys/fs/cgroup")
parent = (cgroups / "memory" if (cgroups / "memory").exists() else cgroups) / "exhume-test"
parent.mkdir()
if (parent / "cgroup.subtree_control").exists():
    (parent / "cgroup.subtree_control").write_text("+memory")
for number in range(300):
    (parent / f"group-{number}").mkdir()
btf = Btf.vmlinux()
found = {}
for name, features in {"as found": Features(), "by faults": Features(test_run=False)}.items():
    seen = walk(features)
    found[name] = sorted(path for path in seen.paths() if "/exhume-test/" in path)
print(json.dumps({
    "walks": found, "slab": slab_pins(btf), "pages": kernel_pins(btf),
}))
"""


def machine(kernel: str, hierarchy: vm.Hierarchy, slab: bool, pages: bool) -> Any:
    return pytest.param(kernel, hierarchy, slab, pages, id=f"{kernel}-{hierarchy}", marks=[pytest.mark.long])


@pytest.mark.parametrize(
    ("kernel", "hierarchy", "slab", "pages"),
    [machine("5.10", "v1", False, True), machine("6.1", "v2", False, False), machine("7.2", "v2", False, False)],
)
def test_the_walk_by_page_faults_finds_the_same_groups(kernel: str, hierarchy: vm.Hierarchy, slab: bool, pages: bool) -> None:
    if why := vm.unavailable(kernel):
        pytest.skip(why)
    seen = json.loads(vm.run(kernel, hierarchy, SCRIPT).check().stdout)
    assert len(seen["walks"]["as found"]) == 300
    assert seen["walks"]["by faults"] == seen["walks"]["as found"]
    assert (seen["slab"], seen["pages"]) == (slab, pages)
