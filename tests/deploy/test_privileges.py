"""What each source needs of the host, tried on this kernel: root with few capabilities, one less each time."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from exhume.agent import privileges
from exhume.agent.privileges import NEEDS, capabilities, mounts
from tests.deploy import capability
from tests.sources.sampling.symbol_processes import PROGRAM, compiled, offsets, running

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("many_zombies", "tracefs")]

TOP = Path(__file__).parents[2]
NEEDED = capabilities(())

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root, and setpriv (Debian: util-linux)"
)


# As ReadOnlyPaths= of the unit has it: what is mounted below them, too.
READ_ONLY = """
awk '$5 ~ "^/(proc|sys)(/|$)" { print $5 }' /proc/self/mountinfo | while read -r at; do
  mount -o remount,bind,ro "$at" || exit 1
done
! echo 0 2>/dev/null >/proc/self/oom_score_adj && exec "$@"
"""


@cache
def seen(kept: tuple[str, ...] | None, read_only: bool = False) -> dict[str, list[str]]:
    """What the sources say to root with these capabilities and no others, or with all of them."""
    command = [*(capability.setpriv(kept) if kept is not None else ()), sys.executable, "-m", "tests.deploy.seen", "/"]
    if read_only:
        command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", *command]
    done = subprocess.run(
        command, cwd=TOP, capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": "src"}
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@needs_root
def test_with_the_needed_capabilities_everything_is_seen_that_root_sees() -> None:
    assert seen(NEEDED) == seen(None)


@needs_root
def test_nothing_is_written_to_proc_and_sys_to_see_it() -> None:
    less = seen(NEEDED, read_only=True)
    assert {source: lines for source, lines in seen(None).items() if not set(lines) <= set(less.get(source, ()))} == {}


@needs_root
@pytest.mark.parametrize("missing", NEEDED)
def test_each_capability_taken_away_shows_in_the_sources_that_need_it_and_in_no_other(missing: str) -> None:
    whole, less = seen(NEEDED), seen(tuple(one for one in NEEDED if one != missing))
    changed = {source for source in whole if whole[source] != less.get(source)}
    expected = {need.source for need in NEEDS if need.group == "always" and missing in need.capabilities}
    if missing == "SYSLOG" and Path("/proc/sys/kernel/dmesg_restrict").read_text().strip() == "0":
        expected.discard("kernel-log")
    assert changed == expected


@needs_root
def test_what_is_off_says_which_capability_it_takes() -> None:
    less = seen(())
    for source in ("zombies", "samples", "cgroup-events", "latency"):
        said = " ".join(less[source])
        assert "CAP_PERFMON" in said, said
    assert "/dev/kmsg is not readable" in " ".join(less["kernel-log"])


@pytest.fixture(scope="module")
def jail(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A container's root directory with one program."""
    made = tmp_path_factory.mktemp("jail")
    compiled(made, PROGRAM, "gcc", "-static")
    return made


def named(kept: tuple[str, ...], jail: Path) -> dict[str, Any]:
    """The name of a function of a container's program, asked for with these capabilities."""
    program = jail / "program"
    told, at = program.stat(), offsets(program)["dig_here"]
    with running("/program", root=jail) as pid:
        words = map(str, ("/", pid, "/program", told.st_dev, told.st_ino, at))
        command = [*capability.setpriv(kept), sys.executable, "-m", "tests.deploy.named", *words]
        environment = {**os.environ, "PYTHONPATH": "src"}
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_root
@pytest.mark.parametrize("more", [(), ("SETUID", "SETGID"), ("SETUID", "SETGID", "SYS_CHROOT"), ("SETUID", "SETGID", "KILL")])
def test_programs_have_names_with_the_capabilities_of_the_unit_and_the_readers_end_in_good_order(
    more: tuple[str, ...], jail: Path
) -> None:
    """With CAP_SETUID the reader becomes nobody, and without CAP_KILL root may not kill it."""
    found = named((*capabilities(("user-stacks", "priority")), *more), jail)
    assert (found["names"], found["left"]) == (["dig_here"], [])
    assert ("stays user 0" in found["reason"]) == ("SETUID" not in more)
    assert ("no chroot" in found["reason"]) == ("SYS_CHROOT" not in more)


@needs_root
def test_without_the_capability_for_names_the_source_says_which_it_takes(jail: Path) -> None:
    found = named(NEEDED, jail)
    assert (found["names"], found["left"]) == ([""], [])
    assert found["reason"].startswith("only some programs have names")
    assert "CAP_SYS_PTRACE" in found["reason"]


def test_every_source_of_the_recorder_is_told_of() -> None:
    from exhume.host.cgroups import Tree
    from exhume.host.root import Root
    from exhume.recorder.profiles import FLIGHT

    root = Root()
    names = {reader.name for reader in FLIGHT.readers(root, Tree(root), root)}
    assert {need.source for need in NEEDS} == names | {"cpu", "samples", "latency", "audit"}


def test_the_systemd_unit_asks_for_the_same() -> None:
    unit = (TOP / "deploy/systemd/exhume-agent.service").read_text()
    found = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    assert found is not None
    asked = {word.removeprefix("CAP_") for word in found[1].split()}
    assert asked == set(capabilities(privileges.SYSTEMD_UNIT, "before-5.11"))


def test_a_need_without_capabilities_loses_nothing_and_one_with_them_says_what() -> None:
    assert all(bool(need.without) == bool(need.capabilities) for need in NEEDS)


def test_older_kernels_know_other_names() -> None:
    assert capabilities(()) == ("BPF", "PERFMON", "SYSLOG")
    assert capabilities((), "before-5.11") == ("BPF", "PERFMON", "SYSLOG", "SYS_RESOURCE")
    assert capabilities((), "before-5.8") == ("SYSLOG", "SYS_ADMIN", "SYS_RESOURCE")


def test_what_makes_root_of_the_host_is_asked_for_by_no_default() -> None:
    assert not {*capabilities(()), *capabilities(privileges.SYSTEMD_UNIT, "before-5.11")} & set(privileges.HOST_ROOT)


def test_mounts_are_whole_paths_and_each_only_once() -> None:
    everything = {need.group for need in NEEDS}
    for groups in (everything, everything - {"audit"}, set()):
        found = mounts(groups)
        assert len({one.path for one in found}) == len(found) == len({one.at for one in found})
        assert all(one.at in (one.path, privileges.HOST + one.path.rstrip("/")) for one in found)
    assert {one.path for one in mounts({"audit"})} == {"/", "/sys/kernel/tracing"}
