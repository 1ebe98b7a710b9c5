"""Scripts of /etc/init.d: which of them systemd-sysv-generator would make a unit of, with the real generator as the judge."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.directory import Directory
from exhume.image import sysv
from tests.examples import examples
from tests.image.planted import Planted
from tests.image.roots import debian

SCRIPT = """\
#!/bin/sh
### BEGIN INIT INFO
# Provides:          agent
# Required-Start:    $network $remote_fs
# Default-Start:     2 3 4 5
# Short-Description: An agent of old
### END INIT INFO
"""
SYSTEMD = {"/usr/lib/systemd/systemd": "#!", "/usr/lib/systemd/system-generators/systemd-sysv-generator": "#!"}
AGENT = {"/etc/init.d/agent": SCRIPT}
LINKS = {
    "/etc/rc2.d/S01agent": "../init.d/agent",
    "/etc/rc0.d/K01agent": "../init.d/agent",
    "/etc/rc5.d/S01agent": "../init.d/agent",
}


def test_a_script_with_links_is_started_by_the_targets_of_its_runlevels() -> None:
    (service,) = sysv.read(Planted({**SYSTEMD, **AGENT}, LINKS))
    assert service.name == "agent.service"
    assert service.starts
    assert service.pulled_by == ("multi-user.target", "graphical.target")
    assert service.description == "An agent of old"
    assert service.needs == ("$network", "$remote_fs")
    assert service.command == ("/etc/init.d/agent start",)


def test_a_script_without_s_links_is_not_started() -> None:
    (service,) = sysv.read(Planted({**SYSTEMD, **AGENT}, {"/etc/rc2.d/K01agent": "../init.d/agent"}))
    assert not service.starts
    assert service.state == "disabled"


@pytest.mark.parametrize("place", ["/etc/systemd/system", "/usr/lib/systemd/system", "/run/systemd/system"])
def test_a_unit_of_that_name_takes_the_scripts_place_even_if_masked(place: str) -> None:
    assert sysv.read(Planted({**SYSTEMD, **AGENT, f"{place}/agent.service": ""}, LINKS)) == []
    assert sysv.read(Planted({**SYSTEMD, **AGENT}, {**LINKS, f"{place}/agent.service": "/dev/null"})) == []


def test_a_unit_that_a_generator_made_is_not_in_the_way() -> None:
    tree = Planted({**SYSTEMD, **AGENT, "/run/systemd/generator.late/agent.service": ""}, LINKS)
    assert [service.name for service in sysv.read(tree)] == ["agent.service"]


def test_what_may_not_be_executed_is_left_out() -> None:
    assert sysv.read(Planted({**SYSTEMD, **AGENT}, LINKS, {"/etc/init.d/agent": 0o644})) == []


def test_without_the_generator_nothing_starts_it() -> None:
    (service,) = sysv.read(Planted({"/usr/lib/systemd/systemd": "#!", **AGENT}, LINKS))
    assert not service.starts
    assert "systemd-sysv-generator" in service.conditions[0]


def test_without_systemd_the_runlevel_of_inittab_counts() -> None:
    links = {"/etc/rc3.d/S20agent": "../init.d/agent"}
    (service,) = sysv.read(Planted({**AGENT, "/etc/inittab": "# id\nid:3:initdefault:\n"}, links))
    assert service.pulled_by == ("runlevel 3",)
    (service,) = sysv.read(Planted(AGENT, links))
    assert not service.starts


def test_a_real_debians_scripts_are_those_that_the_generator_makes_units_of(tmp_path: Path) -> None:
    """The generator itself, on the same root, with scripts of ours on top: unit by unit, and what each target wants."""
    root = debian()
    generator = root / "usr/lib/systemd/system-generators/systemd-sysv-generator"
    if os.geteuid() != 0 or not generator.exists():
        pytest.skip("running the generator in its root needs root, and the generator")
    upper, work, merged, out = (tmp_path / name for name in ("upper", "work", "merged", "upper/out"))
    for directory in (upper / "etc/init.d", work, merged, out):
        directory.mkdir(parents=True)
    for name, levels in (("one", "2345"), ("two", "3"), ("three.sh", "5"), ("none", ""), ("cron", "2345")):
        script = upper / "etc/init.d" / name
        script.write_text(SCRIPT.replace("agent", name))
        script.chmod(0o755)
        for level in levels:
            place = upper / f"etc/rc{level}.d"
            place.mkdir(exist_ok=True)
            (place / f"S01{name}").symlink_to(f"../init.d/{name}")
    # Both in one namespace of mounts: the overlay is nowhere else.
    reader = (
        "import sys; from exhume.image import sysv; from exhume.host.directory import Directory\n"
        "for s in sysv.read(Directory(sys.argv[1])): print(s.name, *s.pulled_by)"
    )
    (tmp_path / "reader.py").write_text(reader)
    steps = (
        f"mount -t overlay overlay -o lowerdir={root},upperdir={upper},workdir={work} {merged}",
        f"chroot {merged} /usr/lib/systemd/system-generators/systemd-sysv-generator /out /out /out",
        f"cp -a {merged}/out {tmp_path}/made",
        f"exec {sys.executable} {tmp_path}/reader.py {merged}",
    )
    command = " && ".join(steps)
    environment = {**os.environ, "PYTHONPATH": str(Path(sysv.__file__).parents[2])}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command], capture_output=True, text=True, check=False, env=environment
    )
    if "mount" in done.stderr and "overlay" in done.stderr:
        pytest.skip(f"no overlay file system here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    made = {path.name for path in (tmp_path / "made").glob("*.service") if not path.is_symlink()}
    wanted: dict[str, set[str]] = {name: set() for name in made}
    for link in (tmp_path / "made").glob("*.wants/*.service"):
        wanted.setdefault(link.name, set()).add(link.parent.name.removesuffix(".wants"))
    read = {words[0]: set(words[1:]) for words in (line.split() for line in done.stdout.splitlines())}
    assert made >= {"one.service", "two.service", "three.service", "none.service"}
    assert read == wanted


def test_a_real_debian_is_read_without_trouble() -> None:
    with Directory(str(debian())) as tree:
        assert all(service.kind == "sysv" for service in sysv.read(tree))
        assert tree.troubles == []


@settings(max_examples=examples(200))
@given(st.binary(max_size=300))
def test_any_header_is_a_dictionary_of_texts(text: bytes) -> None:
    found = sysv.lsb_header(b"### BEGIN INIT INFO\n" + text)
    assert all(key == key.lower() and "\n" not in value for key, value in found.items())


@settings(max_examples=examples(60))
@given(st.dictionaries(st.from_regex(r"[^/\0]{1,12}", fullmatch=True), st.binary(max_size=80), max_size=5))
def test_hostile_names_end_in_services(files: dict[str, bytes]) -> None:
    files = {name: text for name, text in files.items() if name not in (".", "..")}
    planted = {f"/etc/init.d/{name}": b"#!" + text for name, text in files.items()}
    services = sysv.read(
        Planted({**planted, **{f"/etc/rc2.d/S01{name}": b"" for name in files}, **{k: v.encode() for k, v in SYSTEMD.items()}})
    )
    assert all(service.starts for service in services)
