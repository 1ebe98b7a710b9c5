"""The single executable: what it begins with, which C library it needs, and that it runs where no Python is."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

TOP = Path(__file__).parents[2]
HERE = TOP / "deploy/onefile"
LIBRARIES = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1")
"""The C library's own. Everything else is in the executable, but for zlib, which unpacks it."""
ZLIB = "libz.so.1"


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"onefile_{name}", HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


needs = _module("needs")


def entry(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(TOP / "src")}
    command = [sys.executable, str(HERE / "entry.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def test_it_is_exhume() -> None:
    assert entry("--version").stdout.startswith("exhume ")
    assert entry("nonsense").returncode == 64


def test_it_is_the_python_that_exhume_starts_its_children_with() -> None:
    done = entry("-I", "-S", "-c", "import sys; print(sys.argv)", "one", "two")
    assert done.stdout == "['-c', 'one', 'two']\n"
    assert entry("-P", "-m", "exhume", "--version").stdout.startswith("exhume ")
    assert entry("-c", "raise SystemExit(7)").returncode == 7


def test_every_way_that_exhume_starts_itself_is_known_to_it() -> None:
    """Options of Python that are used anywhere with sys.executable."""
    used = set()
    for path in (TOP / "src").rglob("*.py"):
        for line in re.findall(r"\[sys\.executable,([^\]]*)", path.read_text()):
            used |= set(re.findall(r'"(-[A-Za-z])"', line))
    module = _module("entry")
    assert used
    assert used - {"-m", "-c"} <= set(module._ALONE)


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf (Debian: binutils)")
@pytest.mark.parametrize("path", [sys.executable, "/bin/ls", "/usr/bin/env"])
def test_versions_are_those_that_readelf_reads(path: str) -> None:
    said = subprocess.run(["readelf", "--version-info", os.path.realpath(path)], capture_output=True, text=True).stdout
    expected = set(re.findall(r"Name: (\S+)  Flags", said))
    assert expected
    assert needs.versions_needed(Path(path).read_bytes()) == expected


@given(st.binary(max_size=300), st.integers(0, 4000))
def test_what_is_no_elf_file_or_a_torn_one_is_no_trouble(garbage: bytes, cut: int) -> None:
    assert needs.versions_needed(garbage) == set()
    whole = Path("/bin/ls").read_bytes()
    torn = needs.versions_needed(whole[:cut] + garbage + whole[cut + len(garbage) :])
    assert isinstance(torn, set)


def test_the_newest_version_is_by_number() -> None:
    assert needs.newest({"GLIBC_2.9", "GLIBC_2.17", "GLIBC_PRIVATE", "GCC_3.0"}) == (2, 17)
    assert needs.newest(set()) == ()


@pytest.fixture(scope="module")
def executable(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Made anew: some minutes."""
    out = tmp_path_factory.mktemp("onefile") / "exhume"
    done = subprocess.run([str(HERE / "build"), str(out), sys.executable], capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="a root of its own needs root")
def test_it_runs_where_there_is_nothing_but_the_c_library(executable: tuple[Path, str], tmp_path: Path) -> None:
    made, said = executable
    assert re.fullmatch(r"needs glibc 2\.\d+ or later .*\n", said)
    root = tmp_path / "root"
    for name in ("lib64", "lib/x86_64-linux-gnu", "proc", "sys", "dev", "tmp", "data"):
        (root / name).mkdir(parents=True)
    shutil.copy("/lib64/ld-linux-x86-64.so.2", root / "lib64")
    for name in (*LIBRARIES, ZLIB):
        if os.path.exists(f"/lib/x86_64-linux-gnu/{name}"):
            shutil.copy(f"/lib/x86_64-linux-gnu/{name}", root / "lib/x86_64-linux-gnu")
    shutil.copy(made, root / "exhume")

    def inside(command: str) -> subprocess.CompletedProcess[str]:
        script = f"cd {root} && mount --rbind /proc proc && mount --rbind /sys sys && mount --rbind /dev dev && {command}"
        return subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True, timeout=120)

    run = f"env -i {shutil.which('chroot')} . /exhume"
    done = inside(f"exec {run} check --json --for 500ms")
    assert done.returncode in (0, 1, 2), done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "exhume.report/2"
    assert {one["name"] for one in report["sources"] if one["state"] != "off"} >= {"cpu", "memcg", "kernel-log"}
    # A recorder starts children of itself, and writes Parquet.
    done = inside(f"{run} record --for 3s /data/recording && exec {run} diagnose /data/recording --json")
    assert done.returncode in (0, 1, 2), done.stderr
    assert json.loads(done.stdout[done.stdout.index("{") :])["schema"] == "exhume.report/2"
