"""What each source needs of the host, tried on this kernel: root with few capabilities, one less each time."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from exhume.agent import privileges
from exhume.agent.privileges import NEEDS, capabilities, mounts

pytestmark = [pytest.mark.ci, pytest.mark.usefixtures("many_zombies")]

TOP = Path(__file__).parents[2]
NUMBERS = {"BPF": "cap_39", "PERFMON": "cap_38"}  # include/uapi/linux/capability.h; setpriv of 2022 knows them by number alone
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
def seen(kept: tuple[str, ...], read_only: bool = False) -> dict[str, list[str]]:
    """What the sources say to root with these capabilities and no others."""
    wanted = ",".join(["-all", *(f"+{NUMBERS.get(one, one.lower())}" for one in kept)])
    command = ["setpriv", f"--bounding-set={wanted}", "--no-new-privs", sys.executable, "-m", "tests.deploy.seen", "/"]
    if read_only:
        command = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", *command]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": "src"})
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@cache
def to_root() -> dict[str, list[str]]:
    command = [sys.executable, "-m", "tests.deploy.seen", "/"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": "src"})
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@needs_root
def test_with_the_needed_capabilities_everything_is_seen_that_root_sees() -> None:
    assert seen(NEEDED) == to_root()


@needs_root
def test_nothing_is_written_to_proc_and_sys_to_see_it() -> None:
    less = seen(NEEDED, read_only=True)
    assert {source: lines for source, lines in to_root().items() if not set(lines) <= set(less.get(source, ()))} == {}


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


def test_every_source_of_the_recorder_is_told_of() -> None:
    from exhume.node.cgroups import Tree
    from exhume.node.root import Root
    from exhume.recorder import sources

    root = Root()
    names = {reader.name for reader in [*sources.fast(root), *sources.flight(root, Tree(root))]}
    assert {need.source for need in NEEDS} == names | {"samples", "latency", "audit"}


def test_the_systemd_unit_asks_for_the_same() -> None:
    unit = (TOP / "deploy/systemd/exhume-agent.service").read_text()
    found = re.search(r"^CapabilityBoundingSet=(.*)$", unit, re.MULTILINE)
    assert found is not None
    asked = {word.removeprefix("CAP_") for word in found[1].split()}
    assert asked == set(capabilities(privileges.SYSTEMD_UNIT, "before-5.11"))


def test_a_need_without_capabilities_loses_nothing_and_one_with_them_says_what() -> None:
    assert all(bool(need.without) == bool(need.capabilities) for need in NEEDS)


def test_older_kernels_know_other_names() -> None:
    assert capabilities(()) == ("BPF", "DAC_READ_SEARCH", "PERFMON", "SYSLOG")
    assert capabilities((), "before-5.11") == ("BPF", "DAC_READ_SEARCH", "PERFMON", "SYSLOG", "SYS_RESOURCE")
    assert capabilities((), "before-5.8") == ("DAC_READ_SEARCH", "SYSLOG", "SYS_ADMIN", "SYS_RESOURCE")


def test_mounts_are_whole_paths_and_each_only_once() -> None:
    everything = {need.group for need in NEEDS}
    for groups in (everything, everything - {"audit"}, set()):
        found = mounts(groups)
        assert len({one.path for one in found}) == len(found) == len({one.at for one in found})
        assert all(one.at in (one.path, privileges.HOST + one.path.rstrip("/")) for one in found)
    assert {one.path for one in mounts({"audit"})} == {"/", "/sys/kernel/tracing"}
