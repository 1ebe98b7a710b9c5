"""Every test file is in the lane of what it uses, so that lanes do not disturb each other."""

import re

import pytest

from tests.lanes import LANES, PURE, ROOT, files, lane_of

RESOURCES = {
    "kernel": ("zombies", "starved", "kernel.bpf.needs"),
    "containers": ("systemd",),
    "guests": ("vm.vm", "vm"),
}
"""Helpers below tests/ whose users share something with each other."""


def imports(text: str, helper: str) -> bool:
    """`from tests import a, helper`, `from tests.helper import b` or `from tests.package import helper`."""
    package, _, name = f"tests.{helper}".rpartition(".")
    return bool(re.search(rf"^from (?:tests\.{re.escape(helper)} import|{re.escape(package)} import .*\b{name}\b)", text, re.M))


def test_every_place_of_a_lane_exists() -> None:
    assert [place for places in LANES.values() for place in places if not (ROOT / "tests" / place).exists()] == []


def test_every_file_is_in_one_lane() -> None:
    found = [path for paths in files().values() for path in paths]
    assert len(found) == len(set(found)) > 300
    assert lane_of("sources/test_softirqs.py") == PURE


@pytest.mark.parametrize("lane", RESOURCES)
def test_what_uses_a_shared_resource_is_not_in_the_pure_lane(lane: str) -> None:
    users = [path for path in files()[PURE] if any(imports((ROOT / path).read_text(), one) for one in RESOURCES[lane])]
    assert users == []
