"""What is printed to be done by hand, and for images: only what exists, and the same as the plan writes."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import UsageError
from exhume.host.systemd.manager import Defaults
from exhume.host.systemd.refused import actions, refused
from exhume.host.systemd.start_limit import ACCURACY_S, Limit, restart
from exhume.host.systemd.unit_file import Sections, merge, parse
from exhume.remedy.plan_model import Plan
from exhume.remedy.snippets import cloud_config, commands, packer, preset
from exhume.remedy.steps.files import make_link, remove_link, write_file
from exhume.remedy.steps.purge import purge
from exhume.remedy.steps.units import stop_unit
from exhume.remedy.templates import TEMPLATES, template
from exhume.remedy.templates_systemd import LASTS_S, do_nothing, no_restart, start_limit

AGENT = b"[Service]\nType=notify\nExecStartPre=/bin/a\nExecStart=/bin/b\nExecStop=/bin/c\nRestart=always\nRestartSec=10s\n"
# The fields of KubeletConfiguration (kubelet.config.k8s.io/v1beta1) that the template may use, from its reference page.
KUBELET_FIELDS = {
    *("apiVersion", "kind", "cgroupDriver", "reservedSystemCPUs", "systemReserved", "kubeReserved", "enforceNodeAllocatable"),
    *("evictionHard", "evictionSoft", "evictionSoftGracePeriod"),
}
# What the kubelet has of these by itself on Linux (DefaultEvictionHard in pkg/kubelet/apis/config/v1beta1/defaults_linux.go).
HARD_DEFAULTS = {"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"}


def with_drop_in(content: bytes, unit: bytes = AGENT) -> Sections:
    return merge([parse(unit), parse(content)])


def test_without_restarts_it_does_not_come_back() -> None:
    assert restart(with_drop_in(AGENT), Defaults()) is not None
    assert restart(with_drop_in(no_restart()), Defaults()) is None


@given(
    st.integers(0, 600_000).map(lambda ms: ms / 1000),
    st.none() | st.tuples(st.integers(1, 50), st.integers(1, 3600)),
    st.sampled_from([b"", b"StartLimitIntervalSec=0\n", b"StartLimitBurst=1000\n"]),
)
def test_the_start_limit_bites_whatever_the_delays_are(delay_s: float, steps: tuple[int, int] | None, unit: bytes) -> None:
    text = b"[Unit]\n" + unit + f"[Service]\nRestart=always\nRestartSec={delay_s:.3f}\n".encode()
    if steps is not None:
        text += f"RestartSteps={steps[0]}\nRestartMaxDelaySec={steps[1]}\n".encode()
    told = restart(merge([parse(text), parse(start_limit(merge([parse(text)]), Defaults()))]), Defaults())
    assert told is not None
    assert not told.endless, told.why
    longest = max(delay_s, steps[1] if steps else 0)
    assert Limit(longest, told.burst, told.interval_s, start_s=LASTS_S).bites(ACCURACY_S)


def test_what_does_nothing_runs_nothing_but_true_and_counts_as_started() -> None:
    sections = with_drop_in(do_nothing())
    assert sections.lines("Service", "ExecStart") == ("/bin/true",)
    for key in ("ExecCondition", "ExecStartPre", "ExecStartPost", "ExecReload", "ExecStop", "ExecStopPost"):
        assert sections.lines("Service", key) == ()
    assert sections.last("Service", "Type") == "oneshot"
    assert sections.flag("Service", "RemainAfterExit", False)
    assert restart(sections, Defaults()) is None


def test_an_exit_status_that_forces_a_restart_does_not_bring_it_back() -> None:
    forced = AGENT + b"RestartForceExitStatus=42\n"
    assert restart(with_drop_in(b"[Service]\nRestart=no\n", forced), Defaults()) is not None
    assert restart(with_drop_in(no_restart(), forced), Defaults()) is None


@pytest.mark.parametrize("how", ["no-restart", "start-limit", "do-nothing"])
def test_the_end_of_a_loop_is_not_the_end_of_the_machine(how: str) -> None:
    unit = b"[Unit]\nStartLimitAction=reboot\nFailureAction=poweroff-force\n" + AGENT + b"FailureAction=reboot\n"
    sections = merge([parse(unit)])
    made = {
        "no-restart": lambda: no_restart(sections),
        "start-limit": lambda: start_limit(sections, Defaults()),
        "do-nothing": lambda: do_nothing(sections),
    }[how]()
    assert set(actions(sections)) == {"StartLimitAction", "FailureAction"}
    assert not actions(with_drop_in(made, unit))
    assert b"Action" not in no_restart(merge([parse(AGENT)]))


def test_what_does_nothing_is_not_refused_by_systemd(tmp_path: Path) -> None:
    unit = AGENT + b"ExitType=cgroup\nUser=nobody-of-that-name\nLoadCredential=key:/not/there\nStandardOutput=file:/not/there\n"
    unit += b"ReadWritePaths=/not/there\nDynamicUser=yes\nRestartForceExitStatus=0\n"
    assert not refused("x.service", with_drop_in(do_nothing(), unit))
    if shutil.which("systemd-analyze") is None:
        pytest.skip("asking systemd itself needs systemd-analyze")
    file = tmp_path / "x.service"
    file.write_bytes(b"[Unit]\nDefaultDependencies=no\n" + unit + do_nothing())
    asked = subprocess.run(["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, timeout=300)
    assert "x.service:" not in asked.stderr, asked.stderr


def test_the_kubelets_fields_exist() -> None:
    document = yaml.safe_load(template("kubelet"))
    assert document["kind"] == "KubeletConfiguration"
    assert set(document) <= KUBELET_FIELDS
    assert document["evictionSoft"].keys() == document["evictionSoftGracePeriod"].keys()  # the kubelet refuses one alone


def test_the_kubelets_template_takes_nothing_away() -> None:
    """A threshold that is not named is zero once another is; with a driver that is not the runtime's no pod starts."""
    document = yaml.safe_load(template("kubelet"))
    assert document["evictionHard"].keys() == HARD_DEFAULTS
    assert "cgroupDriver" not in document
    assert "# cgroupDriver: systemd" in template("kubelet")


def test_the_sysctls_exist() -> None:
    names = re.findall(r"^([a-z_.]+) =", template("sysctl"), re.MULTILINE)
    assert names
    missing = [name for name in names if not Path("/proc/sys", *name.split(".")).exists()]
    assert not missing


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_is_what_a_plan_writes(name: str) -> None:
    text = template(name)
    assert text.startswith(("#", "api"))
    written = {"do-nothing": do_nothing(), "no-restart": no_restart()}.get(name)
    assert written is None or text.endswith(written.decode())


def test_a_template_that_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="there is no template nothing; there are do-nothing"):
        template("nothing")


PLAN = Plan(
    "ecs.service",
    "it leaks",
    (
        stop_unit("ecs.service", "r"),
        remove_link("/etc/systemd/system/multi-user.target.wants/ecs.service", "", "r"),
        remove_link("/etc/systemd/system/timers.target.wants/o'dd ${name}", "", "r"),
        make_link("/etc/systemd/system/ecs.service", "/dev/null", "r", over_file=True),
        make_link("/etc/systemd/system/a\\x2db.service", "/dev/null", "r"),
        write_file("/etc/systemd/system/x.service.d/zz-exhume.conf", do_nothing(), "r"),
        purge("/", "r"),
    ),
)


def run(lines: list[str], root: Path) -> None:
    """The lines as a shell runs them, with every absolute path of ours put below a root."""
    for line in lines:
        subprocess.run(["sh", "-euc", line.replace("/etc/", f"{root}/etc/")], check=True)


def test_the_shells_lines_make_what_the_plan_makes_and_may_run_twice(tmp_path: Path) -> None:
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    (wants / "ecs.service").symlink_to("x")
    (tmp_path / "etc/systemd/system/timers.target.wants").mkdir()
    (tmp_path / "etc/systemd/system/timers.target.wants/o'dd ${name}").symlink_to("x")
    (tmp_path / "etc/systemd/system/ecs.service").write_text("[Service]\n")
    for _ in range(2):
        run(commands(PLAN), tmp_path)
    left = sorted(
        str(path.relative_to(tmp_path / "etc")) for path in tmp_path.rglob("*") if path.is_symlink() or path.is_file()
    )
    assert left == ["systemd/system/a\\x2db.service", "systemd/system/ecs.service", "systemd/system/x.service.d/zz-exhume.conf"]
    assert (tmp_path / "etc/systemd/system/ecs.service").readlink() == Path("/dev/null")
    assert (tmp_path / "etc/systemd/system/x.service.d/zz-exhume.conf").read_bytes() == do_nothing()


def test_a_preset_disables_what_is_masked() -> None:
    assert preset(PLAN).splitlines()[1:] == ["disable ecs.service", "disable a\\x2db.service"]


def test_packers_strings_are_the_same_lines() -> None:
    text = packer(PLAN)
    quoted = [line.strip().rstrip(",") for line in text.splitlines() if line.startswith("    ")]
    lines = [json.loads(line.replace("$${", "${").replace("%%{", "%{")) for line in quoted]
    assert lines == ["set -eu", *commands(PLAN)]
    assert not re.search(r"(?<!\$)\$\{", text)  # HCL would put a value in there


def test_cloud_inits_list_is_the_same_lines() -> None:
    text = cloud_config(PLAN)
    assert text.startswith("#cloud-config\n")
    every = yaml.safe_load(text)["bootcmd"]
    assert [line for shell, option, line in every[: len(commands(PLAN))] if (shell, option) == ("sh", "-c")] == commands(PLAN)
    assert ["systemctl", "daemon-reload"] in every


@given(st.text(st.characters(exclude_characters="\0\n\r", codec="utf-8"), min_size=1, max_size=30))
def test_any_name_is_quoted(name: str) -> None:
    path = "/etc/" + name.replace("/", "")
    plan = Plan("x", name, (remove_link(path, "", "r"),))
    (line,) = commands(plan)
    assert shlex.split(line) == ["rm", "-f", path]
    assert yaml.safe_load(cloud_config(plan))["bootcmd"][0] == ["sh", "-c", line]
