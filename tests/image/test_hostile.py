"""Images made to hurt: nothing outside of them is opened, memory stays bounded, and what is wrong is a sentence.

What is opened is seen from outside, by strace, and from inside, by Python's audit hook; a canary beside it must not sing.
"""

import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from exhume.errors import UsageError
from exhume.image.opening import open_image
from tests.image import archives
from tests.image.archives import UNIT, directory, link, member, tar

CANARY = b"the canary sings"
MOST_MEMORY_MB = 300

# Opens an image, asks for everything in it, and says what it heard and opened; the chdir marks where the imports end.
EXPLORE = """
import json, os, sys
from exhume.errors import ExhumeError
from exhume.image.opening import open_image
opened, status = [], open("/proc/self/status")
os.chdir("/")
sys.addaudithook(lambda event, args: opened.append(args[0]) if event in ("open", "os.scandir", "os.listdir") else None)
heard, paths, said = [], [], ""
try:
    with open_image(sys.argv[1]) as tree:
        paths = ["/"]
        for path in paths:
            tree.entry(path), tree.real(path)
            heard.append((tree.read(path) or b"")[:100].decode("latin-1"))
            tree.entry(path, follow=False)
            if len(paths) < 400:
                paths += [path.rstrip("/") + "/" + name for name in tree.names(path)[:200]]
        troubles = tree.troubles
except ExhumeError as error:
    said, troubles = str(error), []
opened = [str(os.fsdecode(name) if isinstance(name, bytes) else name) for name in opened]
# Not getrusage's: that one remembers the process that started this one (exec_mmap() in fs/exec.c).
peak = int(status.read().partition("VmHWM:")[2].split()[0]) >> 10
print(json.dumps({"heard": heard, "paths": len(paths), "opened": opened, "troubles": troubles, "said": said, "peak_mb": peak}))
"""


def explore(path: Path, *prefix: str) -> dict[str, Any]:
    command = [*prefix, sys.executable, "-c", EXPLORE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def make_hostile(root: Path, canary: Path) -> None:
    archives.make_root(root)
    units = root / "etc/systemd/system"
    up = "../" * 30
    for number, target in enumerate((str(canary), up + str(canary)[1:], f"/proc/self/root{canary}", f"/proc/1/root{canary}")):
        (units / f"out-{number}.service").symlink_to(target)
        (units / f"out-{number}.target.wants").symlink_to(os.path.dirname(target))
    (units / "round.service").symlink_to("again.service")
    (units / "again.service").symlink_to("round.service")
    (units / "self").symlink_to(".")
    (units / "up").symlink_to(up)
    (units / "console.service").symlink_to("/dev/console")
    os.mkfifo(units / "pipe.service")
    with open(units / "sparse.service", "wb") as file:
        file.truncate(10 << 30)
    if os.geteuid() == 0:
        os.mknod(units / "zero.service", stat.S_IFCHR | 0o666, os.makedev(1, 5))


def as_directory(root: Path, path: Path) -> None:
    root.rename(path)


def as_disk(root: Path, path: Path) -> None:
    if shutil.which("mke2fs", path="/usr/sbin:/sbin:/usr/bin") is None:
        pytest.skip("needs mke2fs")
    (root / "etc/systemd/system/sparse.service").unlink()  # ten gigabytes take mke2fs a minute
    tool = {**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
    subprocess.run(["mke2fs", "-q", "-F", "-d", str(root), str(path), "16M"], check=True, env=tool)


def as_archive(root: Path, path: Path) -> None:
    subprocess.run(["tar", "--sparse", "-cf", str(path), "-C", str(root), "."], check=True)


def as_image(root: Path, path: Path) -> None:
    as_archive(root, path)
    slip = tar([member("../../canary", b"x"), link("etc/systemd/system/../../../../canary", "/"), member("etc/.wh...", b"")])
    path.write_bytes(archives.docker([path.read_bytes(), slip]))


@pytest.mark.parametrize("form", [as_directory, as_archive, as_image, as_disk], ids=lambda form: form.__name__)
def test_nothing_outside_of_a_hostile_image_is_opened(tmp_path: Path, form: Callable[[Path, Path], None]) -> None:
    canary = tmp_path / "canary"
    canary.write_bytes(CANARY)
    make_hostile(tmp_path / "root", canary)
    image = tmp_path / "image"
    form(tmp_path / "root", image)
    found = explore(image)
    assert found["said"] == ""
    assert len(found["heard"]) > 25
    assert any(one.encode() == UNIT[:100] for one in found["heard"])
    assert not any(CANARY.decode() in one for one in found["heard"])
    # Names without a slash are opened in a directory of the image; the rest is the image itself, and what is open already.
    allowed = re.compile(re.escape(str(image)) + r"|/proc/self/fd/\d+|[^/]+|\d+")
    assert found["opened"]
    assert [name for name in found["opened"] if not allowed.fullmatch(name)] == []
    assert found["peak_mb"] < MOST_MEMORY_MB
    assert canary.read_bytes() == CANARY


@pytest.mark.parametrize("form", [as_directory, as_archive, as_image, as_disk], ids=lambda form: form.__name__)
def test_the_kernel_was_asked_for_nothing_outside_either(tmp_path: Path, form: Callable[[Path, Path], None]) -> None:
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")
    canary = tmp_path / "canary"
    canary.write_bytes(CANARY)
    make_hostile(tmp_path / "root", canary)
    image, trace = tmp_path / "image", tmp_path / "trace"
    form(tmp_path / "root", image)
    explore(
        image, "strace", "-f", "-y", "-o", str(trace), "-e", "trace=open,openat,openat2,chdir,creat,mkdir,mkdirat,unlink,rename"
    )
    lines = trace.read_text(errors="replace").splitlines()
    begin = next(number for number, line in enumerate(lines) if 'chdir("/")' in line)
    calls = [line for line in lines[begin + 1 :] if re.search(r"\b(open|openat|openat2)\(", line)]
    opened = [match[1] for line in calls if (match := re.search(r" = \d+<(.*?)>(?:\(deleted\))?$", line))]
    assert opened
    assert {path for path in opened if path != str(image) and not path.startswith(f"{image}/")} == set()
    if form is as_directory:
        assert not [
            path for path in opened if path.endswith(("pipe.service", "zero.service")) and not is_path_only(path, calls)
        ]
    assert not [line for line in lines[begin + 1 :] if re.search(r"O_CREAT|O_WRONLY|O_RDWR|creat\(|mkdir|unlink|rename", line)]


def is_path_only(path: str, calls: list[str]) -> bool:
    return all("O_PATH" in line for line in calls if f"<{path}>" in line.rsplit(" = ", 1)[-1])


def test_sparse_gigabytes_in_an_archive_are_known_by_name_alone(tmp_path: Path) -> None:
    make_hostile(tmp_path / "root", tmp_path / "canary")
    as_archive(tmp_path / "root", tmp_path / "image")
    with open_image(str(tmp_path / "image")) as tree:
        entry = tree.entry("/etc/systemd/system/sparse.service")
        assert entry is not None
        assert entry.kind == "file"
        assert tree.read("/etc/systemd/system/sparse.service") is None
        assert tree.troubles == ["/etc/systemd/system/sparse.service is there, but its content was not kept."]


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_what_is_neither_file_nor_directory_is_no_image(tmp_path: Path, what: str) -> None:
    path = tmp_path / "pipe" if what == "pipe" else Path("/dev/null")
    if what == "pipe":
        os.mkfifo(path)
    with pytest.raises(UsageError, match="is neither a file nor a directory; mount it read-only"), open_image(str(path)):
        pass


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(UsageError, match="/nowhere cannot be opened: No such file or directory"), open_image("/nowhere"):
        pass


def blocks(name: bytes, content: bytes) -> bytes:
    """A member, made faster than tarfile makes one."""
    head = bytearray(512)
    head[: len(name)] = name
    head[100:124] = b"0000644\0" * 3
    head[124:136] = b"%011o\0" % len(content)
    head[136:156] = b"00000000000\0" + b" " * 8
    head[156:157] = b"0"
    head[257:265] = b"ustar\0" + b"00"
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + content + bytes(-len(content) % 512)


def packed(path: Path, parts: Iterator[bytes]) -> None:
    packer = zlib.compressobj(1, wbits=31)
    with open(path, "wb") as file:
        for part in parts:
            file.write(packer.compress(part))
        file.write(packer.compress(bytes(1024)))  # the end of the archive
        file.write(packer.flush())


@pytest.mark.ci
@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        (
            "etc/systemd/system/%07d.service",
            "/etc/systemd/system holds more than 65,536 names; the first of the archive were read.",
        ),
        ("etc/systemd/system/%07d.service.d/10.conf", "It holds more files that matter than 128 MiB of memory keep"),
        pytest.param("srv/%07d/file", "It holds more names than 128 MiB of memory keep", marks=pytest.mark.long),
        pytest.param("srv/conda/%07d.py", "/srv/conda holds more than 65,536 names", marks=pytest.mark.long),
    ],
    ids=["units", "drop-ins", "directories", "files"],
)
def test_a_million_names_in_an_archive(tmp_path: Path, place: str, sentence: str) -> None:
    first = blocks(b"etc/crontab", b"first")
    million = (blocks(place.encode() % number, UNIT) for number in range(1_000_000))
    packed(tmp_path / "image", chained(first, million))
    found = explore(tmp_path / "image")
    (tmp_path / "image").unlink()
    assert "first" in found["heard"]
    assert any(one.startswith(sentence) for one in found["troubles"])
    assert found["peak_mb"] < MOST_MEMORY_MB


def chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


@pytest.mark.ci
def test_a_million_files_in_a_directory(tmp_path: Path) -> None:
    units = tmp_path / "image/etc/systemd/system"
    units.mkdir(parents=True)
    at = os.open(units, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(1_000_000):
        if number % 50_000 == 0:  # ext4 links a file up to 65,000 times
            with open(units / f"{number:07}.service", "wb") as file:
                file.write(UNIT)
            source = f"{number:07}.service"
        else:
            os.link(source, f"{number:07}.service", src_dir_fd=at, dst_dir_fd=at)
    os.close(at)
    try:
        found = explore(tmp_path / "image")
    finally:
        shutil.rmtree(tmp_path / "image")
    assert "/etc/systemd/system holds more than 65,536 names; the first of them were read." in found["troubles"]
    assert found["peak_mb"] < MOST_MEMORY_MB


@pytest.mark.ci
def test_a_bomb_of_a_terabyte_is_refused(tmp_path: Path) -> None:
    """A member that says it has a terabyte, and the zeros for the first ten gibibytes of it, packed."""
    info = member("srv/zeros")
    info.size = 1 << 40
    zeros = bytes(1 << 20)
    packed(tmp_path / "image", chained(info.tobuf(tarfile.GNU_FORMAT), (zeros for _ in range(10 << 10))))
    command = [sys.executable, "-m", "exhume", "audit", "--image", str(tmp_path / "image")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "unpacks to more than" in done.stderr
    assert "EXHUME_BUDGET" in done.stderr


def test_a_bomb_in_a_layer_of_a_packed_archive_costs_no_memory(tmp_path: Path) -> None:
    layer = gzip.compress(tar([directory("etc"), member("srv/zeros", bytes(64 << 20)), member("etc/a", b"behind")]))
    (tmp_path / "image").write_bytes(gzip.compress(archives.docker([layer])))
    found = explore(tmp_path / "image")
    assert "behind" in found["heard"]
    assert found["peak_mb"] < 100
