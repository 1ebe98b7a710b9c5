"""The runner itself: what a test may rely on when it sends a script to another kernel."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.vm import cache, initramfs, vm
from tests.vm.apt import Archive
from tests.vm.tools import Unavailable, install

KERNEL = "6.1"
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def kernel() -> str:
    if why := vm.unavailable(KERNEL):
        pytest.skip(why)
    return KERNEL


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "exhume-vm"


def test_a_kernel_that_nobody_knows_is_unavailable_and_says_so(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm, "install", lambda tools: None)
    assert "no kernel 2.6" in vm.unavailable("2.6")


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Unavailable, match="needs the Debian packages some-package"):
        install({"no-such-program-anywhere": "some-package", "sh": "dash"})


def test_a_cache_that_cannot_be_written_is_a_reason_not_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "cannot be written" in vm.unavailable(KERNEL)


def test_what_a_killed_run_left_half_made_is_removed_by_the_next(own_cache: Path) -> None:
    with cache.alone() as here:
        left = here / "scratch-left"
        (left / "tree").mkdir(parents=True)
        (left / "tree" / "link").symlink_to("/")
    with cache.alone():
        assert not left.exists()
    assert os.path.exists("/etc")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_directory_with_something_mounted_in_it_is_not_removed(own_cache: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    point = own_cache / "scratch-left" / "mnt"
    point.mkdir(parents=True)
    subprocess.run(["mount", "--bind", outside, point], check=True)
    try:
        with cache.alone():
            assert (outside / "precious").exists()
    finally:
        subprocess.run(["umount", point], check=True)
    with cache.alone():
        assert not point.exists()


def test_two_runs_do_not_hold_the_cache_at_once(own_cache: Path) -> None:
    take = "from tests.vm import cache\nwith cache.alone():\n    print('in', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", take], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "in\n"
        waiting = subprocess.run(
            ["flock", "--nonblock", own_cache / "lock", "true"], stdin=subprocess.DEVNULL, capture_output=True
        )
        assert waiting.returncode == 1
        other.stdin.write("\n")
    with cache.alone():
        pass


def test_the_development_suite_has_no_security_updates() -> None:
    archive = Archive("place:main", "place:security")
    assert "bullseye-security" in archive.sources("bullseye")
    assert "security" not in archive.sources("sid")
    assert "security" not in Archive("place:main", "").sources("bullseye")


def test_the_initramfs_unpacks_to_what_was_put_in(tmp_path: Path) -> None:
    try:
        install({"busybox": "busybox-static"})
    except Unavailable as why:
        pytest.skip(str(why))
    module = tmp_path / "00-a.ko"
    module.write_bytes(b"\x7fELF\0odd")
    payload = {"exhume/script.py": b"", "exhume/a/b": b"x", "exhume/ü": bytes(range(256))}
    initramfs.make(tmp_path / "initrd", (module,), payload)
    out = tmp_path / "out"
    out.mkdir()
    with open(tmp_path / "initrd", "rb") as file:
        subprocess.run(["busybox", "cpio", "-id"], cwd=out, stdin=file, check=True, capture_output=True)
    assert (out / "modules/00-a.ko").read_bytes() == b"\x7fELF\0odd"
    assert {name: (out / "payload" / name).read_bytes() for name in payload} == payload
    assert (out / "dev").is_dir()
    assert os.access(out / "init", os.X_OK)


@pytest.mark.long
def test_a_script_gets_its_output_and_exit_code_out_and_leaves_the_image_as_it_was(kernel: str) -> None:
    (image,) = cache.directory().glob("root-*.ext4")
    before = _digest(image)
    script = """
import os, sys
open("/var/tmp/written", "w").write("x"); os.sync()
sys.stdout.buffer.write(b"out \\xff\\r\\n" + b"x" * 300_000)
sys.stderr.write("error ü")
sys.exit(7)
"""
    done = vm.run(kernel, "v2", script)
    assert done.exit == 7
    with pytest.raises(vm.MachineError, match=r"(?s)ended with 7.*error ü.*Power down"):
        done.check()
    assert done.stdout == "out \\xff\r\n" + "x" * 300_000
    assert done.stderr == "error ü"
    assert done.release.startswith(f"{kernel}.")
    assert "Linux version" in done.console
    assert _digest(image) == before


@pytest.mark.long
def test_a_machine_has_no_network_and_this_checkout(kernel: str) -> None:
    script = "import os, exhume; print(exhume.__file__, os.listdir('/sys/class/net'), os.geteuid())"
    done = vm.run(kernel, "v2", script)
    assert (done.exit, done.stdout) == (0, "/run/exhume/src/exhume/__init__.py ['lo'] 0\n"), done.stderr


@pytest.mark.long
def test_a_script_that_takes_the_machine_down_is_an_error_with_the_console_in_it(kernel: str) -> None:
    script = "print('so far', flush=True); open('/proc/sysrq-trigger', 'w').write('c')"
    with pytest.raises(vm.MachineError, match=r"(?s)took the machine down.*so far.*sysrq.*[Cc]rash"):
        vm.run(kernel, "v2", script)


@pytest.mark.long
def test_a_script_that_does_not_end_is_an_error_with_what_it_said(kernel: str) -> None:
    with pytest.raises(vm.MachineError, match=r"(?s)still runs after 2 s.*so far"):
        vm.run(kernel, "v2", "import time; print('so far', flush=True); time.sleep(600)", timeout=2)


@pytest.mark.long
def test_a_kernel_that_does_not_boot_is_an_error_with_the_console_in_it(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vm._HIERARCHIES, "v2", "rdinit=/absent init=/absent")
    with pytest.raises(vm.MachineError, match=r"(?s)the machine stopped before the script could start.*Kernel panic"):
        vm.run(kernel, "v2", "")


@pytest.mark.long
def test_a_kernel_that_hangs_in_its_boot_is_given_up(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vm, "_BOOT_SECONDS", 0.5)
    with pytest.raises(vm.MachineError, match="the machine hangs before the script could start"):
        vm.run(kernel, "v2", "")


@pytest.mark.long
def test_the_emulator_dies_with_a_test_run_that_is_killed(kernel: str) -> None:
    start = f"from tests.vm import vm; vm.run({kernel!r}, 'v2', 'import time; time.sleep(600)')"
    with subprocess.Popen([sys.executable, "-c", start], cwd=REPOSITORY) as run:
        while not (emulators := _children(run.pid)):
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(signal.SIGKILL)
    while any(_runs(pid) for pid in emulators):
        time.sleep(0.05)
    with cache.alone() as here:
        assert not list(here.glob("scratch-*"))


def _children(parent: int) -> list[int]:
    found = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in found if (stat := _stat(pid)) and "qemu" in stat[0] and int(stat[2]) == parent]


def _runs(pid: int) -> bool:
    stat = _stat(pid)
    return stat is not None and stat[1] != "Z"


def _stat(pid: int) -> tuple[str, str, str] | None:
    """Name, state and parent (proc_pid_stat(5))."""
    try:
        before, after = Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)
    except OSError:
        return None
    state, parent, *_ = after.split()
    return before.split("(", 1)[1], state, parent


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
