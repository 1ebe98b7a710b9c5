"""A flood of kernel messages, in the node's own log."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.lab import workshop
from exhume.lab.scenarios import printk
from tests.lab.runs import broken, needs_root, patiently, play, run

pytestmark = pytest.mark.ci

(SCENARIO,) = printk.SCENARIOS


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")


@needs_root
@pytest.mark.usefixtures("allowed")
def test_it_does_what_it_says() -> None:
    before = printk.SETTING.read_text()
    truth = play(SCENARIO, 8, 500)
    assert broken(truth) == []
    assert printk.SETTING.read_text() == before
    log = subprocess.run(("dmesg", "--facility", "user", "--notime"), capture_output=True, text=True, check=False).stdout
    if Path("/proc/sys/kernel/printk_devkmsg").read_text().strip() != "off":
        assert f"exhume-lab {truth['run']}: is over" in log


@needs_root
@pytest.mark.usefixtures("allowed")
def test_the_copy_for_the_reader_of_this_run_is_as_the_kernel_said_it() -> None:
    if why := SCENARIO.missing():
        pytest.skip(why)
    with workshop.Lab() as lab:
        made = printk.Flood(lab)
        try:
            assert patiently(lambda: made.lines.count > 100)
        finally:
            made.close()
        copied = lab.kmsg.read_text().splitlines()
    assert len(copied) == made.lines.count
    assert all(line.startswith("6,") and printk.device_of(lab.id) in line for line in copied)


@needs_root
@pytest.mark.usefixtures("allowed")
def test_what_was_changed_on_the_node_is_put_back(tmp_path: Path) -> None:
    setting, other = tmp_path / "setting", tmp_path / "other"
    setting.write_text("7\t4\t1\t7\n")
    other.write_text("on\n")
    with workshop.Lab() as lab:
        lab.set(setting, "6 4 1 7")
        lab.set(setting, "5 4 1 7")
        lab.set(other, "off")
        assert setting.read_text() == "5 4 1 7"
        other.write_text("ratelimit")  # by somebody else, meanwhile
    assert setting.read_text() == "7\t4\t1\t7"
    assert other.read_text() == "ratelimit"


@needs_root
@pytest.mark.usefixtures("allowed")
def test_also_after_a_run_that_was_killed(tmp_path: Path) -> None:
    setting = tmp_path / "setting"
    setting.write_text("before\n")
    lab = workshop.Lab()
    lab.set(setting, "changed")
    with open(lab.home / "settings", "a") as file:
        file.write('["/proc/sys/kern')  # the kill came while the next was written down
    (lab.home / "owner").write_text("0 0 nobody")
    assert lab.id in workshop.clean()
    assert setting.read_text() == "before"


@needs_root
def test_a_killed_flood_is_silent() -> None:
    if why := SCENARIO.missing():
        pytest.skip(why)
    with run("printk", "printk-flood", 500) as killed:
        name = killed.line()
        assert killed.line() == "under way"
        killed.kill()
        assert patiently(lambda: not killed.programs())
        assert name in workshop.clean()


def test_a_console_that_prints_it_is_told_not_to() -> None:
    assert printk.quiet_console("7\t4\t1\t7\n") == "6 4 1 7"
    assert printk.quiet_console("8 4 1 7") == "6 4 1 7"
    assert printk.quiet_console("6\t4\t1\t7\n") is None
    assert printk.quiet_console("4\t4\t1\t7\n") is None


@given(st.integers(1, 4_194_304), st.text("0123456789abcdef", min_size=6, max_size=6))
def test_a_device_has_a_name_that_the_kernel_takes(pid: int, token: str) -> None:
    assert len(printk.device_of(f"{pid}-{token}")) <= 15
    assert printk.device_of(f"{pid}-{token}").endswith(token)
