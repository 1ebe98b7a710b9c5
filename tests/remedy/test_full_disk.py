"""A journal that cannot be written: at every single line of it, with a part of the line on the disk, and room again later."""

import errno
import os
from pathlib import Path

import pytest

from exhume.errors import ExhumeError
from exhume.remedy import carry_out
from exhume.remedy.carry_out import Consent
from exhume.remedy.operations import Operations
from exhume.remedy.plan_model import Plan
from exhume.remedy.steps.files import make_link, write_file
from tests.remedy.nodes import UNITS, node, snapshot

ALL = Consent(True, True)


class Full(Operations):
    """From the n-th write on there is room for a few bytes only, for so many writes."""

    def __init__(self, number: int, lasts: int = 1, room: int = 7) -> None:
        self.writes = 0
        self._number, self._lasts, self._room = number, lasts, room

    def write(self, fd: int, data: bytes) -> None:
        self.writes += 1
        if self._number <= self.writes < self._number + self._lasts:
            os.write(fd, data[: self._room])
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(fd, data)


def plan() -> Plan:
    write = write_file(f"/{UNITS}/x.service.d/exhume.conf", b"new", "r")
    return Plan("x", "a test", (write, make_link(f"/{UNITS}/x.service", "/dev/null", "r", over_file=True)))


def made(root: Path) -> dict[str, tuple[object, ...]]:
    (root / UNITS).mkdir(parents=True)
    (root / UNITS / "x.service").write_text("[Service]\nExecStart=/bin/true\n")
    return snapshot(root)


def writes(root: Path) -> int:
    made(root)
    counting = Full(10**9)
    assert carry_out.apply(plan(), node(root, counting), ALL).exit_code == 0
    return counting.writes


@pytest.mark.parametrize("lasts", [1, 2, 10**9])
def test_a_full_disk_at_any_write_leaves_what_can_be_resumed_and_undone(tmp_path: Path, lasts: int) -> None:
    (tmp_path / "whole").mkdir()
    every = writes(tmp_path / "whole")
    assert every >= 7  # the plan; an intent and an end of each step; the file; the end
    for number in range(1, every + 1):
        for then in (carry_out.resume, carry_out.undo):
            root = tmp_path / f"{number}-{then.__name__}"
            root.mkdir()
            before = made(root)
            try:
                said = carry_out.apply(plan(), node(root, Full(number, lasts)), ALL).of("failed")[0].note
            except ExhumeError as why:
                said = str(why)
            assert "No space left on device" in said
            hanging = carry_out.pending(node(root))  # no journal is damaged by it
            if hanging is None:
                assert snapshot(root) == before
                continue
            assert then(node(root)).exit_code == 0
            if then is carry_out.resume:
                assert (root / UNITS / "x.service.d/exhume.conf").read_bytes() == b"new"
                assert os.readlink(root / UNITS / "x.service") == "/dev/null"
                assert carry_out.undo(node(root)).exit_code == 0
            assert snapshot(root) == before


def test_what_it_means_is_said(tmp_path: Path) -> None:
    made(tmp_path)
    with pytest.raises(ExhumeError, match="nothing was changed: the journal in /var/lib/exhume-remedy cannot be written"):
        carry_out.apply(plan(), node(tmp_path, Full(1)), ALL)
    with pytest.raises(ExhumeError, match="nothing more is done; when it can, exhume fix --resume goes on"):
        carry_out.apply(plan(), node(tmp_path, Full(2, 10**9)), ALL)
