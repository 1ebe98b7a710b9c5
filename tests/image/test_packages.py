"""Which package a file is of: dpkg and rpm themselves are the judges where they can be asked."""

import os
import shutil
import sqlite3
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.directory import Directory
from exhume.image import rpm
from exhume.image.packages import diversions, known, owners
from exhume.image.sqlite import Database
from tests.examples import examples
from tests.image.planted import Planted
from tests.image.roots import debian

INFO = "/var/lib/dpkg/info"


def test_dpkgs_lists_name_the_package_on_either_side_of_a_merged_usr() -> None:
    files = {
        f"{INFO}/agent:amd64.list": "/.\n/lib/systemd/system/agent.service\n/usr/bin/agent\n",
        f"{INFO}/other.list": "/usr/lib/other\n/usr/lib/systemd/system/agent.service.d\n",
    }
    asked = ["/usr/lib/systemd/system/agent.service", "/usr/bin/agent", "/lib/other", "/usr/bin/nobodys", "relative", "/a\nb"]
    assert owners(Planted(files), asked) == {
        "/usr/lib/systemd/system/agent.service": "agent",
        "/usr/bin/agent": "agent",
        "/lib/other": "other",
    }


def test_a_diverted_file_is_of_the_package_that_it_would_have_been() -> None:
    files = {
        "/var/lib/dpkg/diversions": "/bin/sh\n/bin/sh.distrib\ndash\n/etc/own\n/etc/own.orig\n:\n",
        f"{INFO}/bash.list": "/bin/sh\n",
        f"{INFO}/dash.list": "/bin/sh\n",
        f"{INFO}/plain.list": "/etc/own\n",
    }
    asked = ["/bin/sh", "/bin/sh.distrib", "/etc/own", "/etc/own.orig"]
    assert owners(Planted(files), asked) == {"/bin/sh": "dash", "/bin/sh.distrib": "bash", "/etc/own.orig": "plain"}


def test_images_without_dpkg_itself_have_sums() -> None:
    text = "d41d8cd98f00b204e9800998ecf8427e  usr/bin/agent\n"
    assert owners(Planted({"/var/lib/dpkg/status.d/agent.md5sums": text}), ["/usr/bin/agent"]) == {"/usr/bin/agent": "agent"}


def test_apk_and_pacman() -> None:
    apk = "C:Q1\nP:busybox\nV:1.36\nF:bin\nR:busybox\na:0:0:755\nF:etc\n\nP:openrc\nF:etc/init.d\nR:cron\n"
    assert owners(Planted({"/lib/apk/db/installed": apk}), ["/bin/busybox", "/etc/init.d/cron", "/etc/init.d"]) == {
        "/bin/busybox": "busybox",
        "/etc/init.d/cron": "openrc",
    }
    pacman = {"/var/lib/pacman/local/docker-compose-2.1-1/files": "%FILES%\nusr/\nusr/bin/docker-compose\n"}
    assert owners(Planted(pacman), ["/usr/bin/docker-compose"]) == {"/usr/bin/docker-compose": "docker-compose"}


def test_no_database_is_said_to_be_none() -> None:
    assert not known(Planted({}))
    assert known(Planted({"/lib/apk/db/installed": ""}))
    assert owners(Planted({}), ["/bin/sh"]) == {}


@pytest.mark.parametrize(("name", "kind"), [("Packages", "Berkeley DB"), ("Packages.db", "ndb")])
def test_databases_of_rpm_that_cannot_be_read_are_named(name: str, kind: str) -> None:
    tree = Planted({f"/var/lib/rpm/{name}": b"x"})
    assert owners(tree, ["/bin/sh"]) == {}
    assert len(tree.troubles) == 1
    assert kind in tree.troubles[0]


def test_on_a_real_debian_every_unit_and_script_is_of_the_package_that_dpkg_says() -> None:
    root = debian()
    if shutil.which("dpkg-query") is None:
        pytest.skip("dpkg-query is not installed")
    files = [
        *root.glob("usr/lib/systemd/system/*"),
        *root.glob("etc/init.d/*"),
        *root.glob("etc/cron.*/*"),
        *root.glob("usr/sbin/*"),
    ]
    asked = sorted(f"/{path.relative_to(root)}" for path in files if not path.is_dir())  # several packages share a directory
    assert len(asked) > 300
    with Directory(str(root)) as tree:
        found = owners(tree, asked)
    forms = {path: [path, path.removeprefix("/usr")] for path in asked}
    command = [
        "dpkg-query",
        f"--admindir={root}/var/lib/dpkg",
        "--search",
        *(form.replace("\\", "\\\\") for two in forms.values() for form in two),
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    truth: dict[str, str] = {}
    for line in said.splitlines():
        packages, _, path = line.partition(": ")
        if not line.startswith("diversion "):
            truth[path] = packages.split(",")[0].partition(":")[0]
    expected = {path: truth[form] for path, two in forms.items() for form in two if form in truth}
    assert found == expected
    assert len(found) > 300


SPEC = """\
Name: exhume-test-agent
Version: 1
Release: 1
Summary: A test
License: none
BuildArch: noarch
%description
A test
%install
mkdir -p %{buildroot}/usr/lib/systemd/system %{buildroot}/etc
touch %{buildroot}/usr/lib/systemd/system/agent.service %{buildroot}/etc/agent.conf
%files
/usr/lib/systemd/system/agent.service
/etc/agent.conf
"""


@pytest.fixture(scope="module")
def fedora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root whose database rpm itself made, in SQLite."""
    if os.geteuid() != 0 or shutil.which("rpmbuild") is None:
        pytest.skip("making a real database needs root and the Debian package rpm")
    here = tmp_path_factory.mktemp("rpm")
    (here / "agent.spec").write_text(SPEC)
    quiet = {"capture_output": True, "text": True, "check": False}
    built = subprocess.run(["rpmbuild", "-bb", "--define", f"_topdir {here}", str(here / "agent.spec")], **quiet)  # type: ignore[call-overload]
    packages = [str(path) for path in here.glob("RPMS/*/*.rpm")]
    assert packages, built.stderr
    root = here / "root"
    root.mkdir()
    install = ["rpm", "--root", str(root), "--define", "_db_backend sqlite", "--dbpath", "/var/lib/rpm", "--force-debian"]
    done = subprocess.run([*install, "--nodeps", "--noscripts", "-i", *packages], **quiet)  # type: ignore[call-overload]
    assert (root / "var/lib/rpm/rpmdb.sqlite").exists(), done.stderr
    return root


def test_a_real_database_of_rpm_names_the_package(fedora: Path) -> None:
    with Directory(str(fedora)) as tree:
        asked = ["/usr/lib/systemd/system/agent.service", "/lib/systemd/system/agent.service", "/etc/agent.conf", "/etc/other"]
        assert owners(tree, asked) == dict.fromkeys(asked[:3], "exhume-test-agent")
        assert tree.troubles == []


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_database_of_rpm_brings_an_answer_or_a_sentence(fedora: Path, seed: int) -> None:
    import random

    chance = random.Random(seed)
    data = bytearray((fedora / "var/lib/rpm/rpmdb.sqlite").read_bytes())
    for _ in range(chance.choice([1, 20, 2000])):
        data[chance.randrange(len(data))] = chance.randrange(256)
    tree = Planted({"/var/lib/rpm/rpmdb.sqlite": bytes(data[: chance.choice([50, 5000, len(data)])])})
    found = owners(tree, ["/etc/agent.conf"])
    assert found in ({}, {"/etc/agent.conf": "exhume-test-agent"}) or list(found) == ["/etc/agent.conf"]
    assert all(trouble.endswith(".") for trouble in tree.troubles)


def test_a_database_that_would_never_answer_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "db"
    connection = sqlite3.connect(path)
    endless = "with recursive n(x) as (select 1 union all select x + 1 from n) select x as hnum, 'sh' as key from n where x < 0"
    connection.execute(f"create view Basenames as {endless}")
    connection.commit()
    connection.close()
    tree = Planted({"/var/lib/rpm/rpmdb.sqlite": path.read_bytes()})
    assert owners(tree, ["/bin/sh"]) == {}
    assert any("prohibited" in trouble or "not authorized" in trouble for trouble in tree.troubles), tree.troubles


def test_a_database_that_is_too_large_is_not_taken_in(tmp_path: Path) -> None:
    (tmp_path / "var/lib/rpm").mkdir(parents=True)
    with open(tmp_path / "var/lib/rpm/rpmdb.sqlite", "wb") as file:
        file.truncate(10 << 30)
    with Directory(str(tmp_path)) as tree:
        assert owners(tree, ["/bin/sh"]) == {}
        assert "more than are read" in tree.troubles[0]


def header(name: bytes, files: list[tuple[bytes, bytes]]) -> bytes:
    directories = sorted({directory for directory, _ in files})
    data = name + b"\0"
    entries = [(1000, 6, 0, 1)]
    for tag, values in ((1117, [base for _, base in files]), (1118, directories)):
        entries.append((tag, 8, len(data), len(values)))
        data += b"".join(value + b"\0" for value in values)
    data += bytes(-len(data) % 4)
    entries.append((1116, 4, len(data), len(files)))
    data += b"".join(struct.pack(">I", directories.index(directory)) for directory, _ in files)
    return struct.pack(">II", len(entries), len(data)) + b"".join(struct.pack(">iIiI", *entry) for entry in entries) + data


NAMES = st.binary(min_size=1, max_size=8).filter(lambda name: b"\0" not in name)


@settings(max_examples=examples(100))
@given(NAMES, st.lists(st.tuples(NAMES, NAMES), max_size=6))
def test_a_header_comes_back_as_it_was_written(name: bytes, files: list[tuple[bytes, bytes]]) -> None:
    found, paths = rpm.header(header(name, files))
    assert found == name.decode("utf-8", "backslashreplace")
    assert paths == [directory + base for directory, base in files]


@settings(max_examples=examples(200))
@given(st.binary(max_size=120), st.integers(0, 200), st.binary(max_size=8))
def test_any_bytes_are_a_header_or_are_refused(noise: bytes, position: int, patch: bytes) -> None:
    whole = header(b"agent", [(b"/etc/", b"a"), (b"/usr/", b"b")])
    for blob in (noise, whole[:position], whole[:position] + patch + whole[position + len(patch) :]):
        try:
            name, paths = rpm.header(blob)
        except rpm.Malformed:
            continue
        assert isinstance(name, str)
        assert all(isinstance(path, bytes) for path in paths)


@settings(max_examples=examples(100))
@given(st.binary(max_size=200), st.text(max_size=20))
def test_any_databases_and_paths_bring_an_answer(text: bytes, path: str) -> None:
    assert all(isinstance(by, str) for _, by in diversions(text).values())
    files = {
        f"{INFO}/x.list": text,
        "/var/lib/dpkg/diversions": text,
        "/lib/apk/db/installed": text,
        "/var/lib/rpm/rpmdb.sqlite": text,
    }
    tree = Planted({**files, "/var/lib/pacman/local/a-1-1/files": text})
    assert set(owners(tree, [f"/{path}", path])) <= {f"/{path}", path}


def test_text_of_a_database_comes_as_bytes(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db")
    connection.execute("pragma journal_mode=wal")
    connection.execute("create table t (a text)")
    connection.execute("insert into t values (cast(x'ff41' as text))")
    connection.commit()
    connection.close()
    database = Database.read(Planted({"/db": (tmp_path / "db").read_bytes()}), "/db")
    assert database is not None
    with database:
        assert list(database.rows("select a from t")) == [(b"\xffA",)]
