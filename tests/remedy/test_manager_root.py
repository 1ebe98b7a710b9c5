"""Whose systemd is told what to do: that of the root that was named, and never the one of whoever asks."""

from pathlib import Path

import pytest

from exhume.host.root import Root
from exhume.remedy.manager import running


@pytest.fixture
def booted(tmp_path: Path) -> Path:
    """A root with the marks of a running systemd and of this kernel: the host's own, mounted somewhere."""
    (tmp_path / "ours/run/systemd/system").mkdir(parents=True)
    (tmp_path / "ours/proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "ours/proc/sys/kernel/random/boot_id").write_text(Path("/proc/sys/kernel/random/boot_id").read_text())
    (tmp_path / "theirs").mkdir()
    return tmp_path


def test_the_hosts_own_root_has_its_manager(booted: Path) -> None:
    root = Root(str(booted / "ours"))
    assert root.same_kernel()
    assert running(root) is not None
    (booted / "ours/proc/1").mkdir()
    (booted / "ours/proc/1/root").symlink_to(booted / "ours")
    assert running(root) is not None


@pytest.mark.parametrize("links", [("run", "proc"), ("run/systemd", "proc/sys"), ("run/systemd/system", "proc/sys/kernel")])
def test_an_image_whose_links_lead_into_our_root_has_none(booted: Path, links: tuple[str, ...]) -> None:
    for link in links:
        place = booted / "theirs" / link
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(booted / "ours" / link)
    root = Root(str(booted / "theirs"))
    assert (booted / "theirs/run/systemd/system").is_dir()
    assert not root.same_kernel()
    assert running(root) is None


def test_an_image_that_is_built_in_a_chroot_with_our_proc_and_run_has_none(booted: Path) -> None:
    root = Root(str(booted / "ours"))
    (booted / "ours/proc/1").mkdir()
    (booted / "ours/proc/1/root").symlink_to("/")
    assert root.same_kernel()
    assert running(root) is None


def test_a_link_instead_of_boot_id_is_not_read(booted: Path) -> None:
    (booted / "theirs/proc/sys/kernel/random").mkdir(parents=True)
    (booted / "theirs/proc/sys/kernel/random/boot_id").symlink_to("/proc/sys/kernel/random/boot_id")
    assert not Root(str(booted / "theirs")).same_kernel()
