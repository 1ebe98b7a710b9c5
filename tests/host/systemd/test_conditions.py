"""Conditions that the tree decides, and those that it leaves open."""

from pathlib import Path

from exhume.host.systemd.conditions import Judged, judge
from exhume.host.systemd.unit_file import merge, parse
from tests.host.systemd.written import tree


def judged(place: Path, *lines: str) -> Judged:
    text = "\n".join(("[Unit]", *lines)).encode()
    with tree(place, {}) as root:
        return judge(root, "a@b.service", merge([parse(text)]))


def test_paths_are_looked_up_in_the_tree_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "etc/x.d").mkdir(parents=True)
    (tmp_path / "etc/x.d/b.conf").write_text("x")
    (tmp_path / "etc/empty").touch()
    (tmp_path / "etc/passwd-link").symlink_to("/etc/passwd")
    holding = (
        *("ConditionPathExists=/etc/x.d", "ConditionPathExists=!/etc/passwd", "ConditionPathExistsGlob=/etc/*.d/%i.conf"),
        *("ConditionPathIsDirectory=/etc/x.d", "ConditionFileNotEmpty=/etc/x.d/b.conf", "ConditionDirectoryNotEmpty=/etc/x.d"),
        *("ConditionFileNotEmpty=!/etc/empty", "ConditionFileIsExecutable=!/etc/empty", "ConditionUser=root"),
        *("ConditionPathIsSymbolicLink=/etc/passwd-link", "ConditionPathExists=!/etc/passwd-link"),
    )
    assert judged(tmp_path, *holding) == Judged()
    failing = [
        line.replace("=!", "=") if "=!" in line else line.replace("=", "=!", 1) for line in holding if "User" not in line
    ]
    assert judged(tmp_path, *failing).failing == tuple(f"{line} does not hold on this image" for line in failing)


def test_what_only_the_machine_knows_is_left_open(tmp_path: Path) -> None:
    lines = (
        "ConditionVirtualization=!container",
        "ConditionPathExists=/sys/x",
        "AssertKernelCommandLine=debug",
        "ConditionUser=ann",
    )
    assert judged(tmp_path, *lines) == Judged(
        (),
        (
            "ConditionVirtualization=!container",
            "ConditionPathExists=/sys/x",
            "ConditionUser=ann",
            "AssertKernelCommandLine=debug",
        ),
    )


def test_one_of_those_with_a_pipe_is_enough_and_an_empty_one_forgets_all(tmp_path: Path) -> None:
    none = ("ConditionPathExists=|/etc/a", "ConditionPathExists=|/etc/b")
    assert judged(tmp_path, *none).failing == (
        "none of ConditionPathExists=|/etc/a, ConditionPathExists=|/etc/b holds on this image",
    )
    assert judged(tmp_path, *none, "ConditionPathExists=|!/etc/c") == Judged()
    assert judged(tmp_path, *none, "ConditionSecurity=|selinux") == Judged((), ("ConditionSecurity=|selinux",))
    assert judged(tmp_path, *none, "ConditionFirstBoot=") == Judged()
