"""What cron would run: every dialect's rules, against a real Debian's crontab(1) where it can be asked."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.directory import Directory
from exhume.host.service import Service
from exhume.image import cron
from exhume.image.crontab import Job, Mistake, anacron_jobs, command_of, jobs
from tests.examples import examples
from tests.image.planted import Planted
from tests.image.roots import debian

CRONTAB = """\
SHELL=/bin/sh
# m h dom mon dow user  command
17 *	* * *	root	cd / && run-parts --report /etc/cron.hourly
25 6	* * *	root	test -x /usr/sbin/anacron || { cd / && run-parts --report /etc/cron.daily; }
@reboot backup /usr/local/bin/backup --password hunter2 % ignored
"""
DEBIAN = {"/usr/sbin/cron": "#!", "/var/lib/dpkg/status": "", "/etc/crontab": CRONTAB}


def by_name(services: list[Service]) -> dict[str, Service]:
    return {service.name: service for service in services}


def test_a_crontab_of_the_system_is_read_line_by_line() -> None:
    found = by_name(cron.read(Planted(DEBIAN)))
    assert list(found) == ["/etc/crontab:3", "/etc/crontab:4", "/etc/crontab:5"]
    boot = found["/etc/crontab:5"]
    assert boot.description == "@reboot, as backup"
    assert boot.command == ("/usr/local/bin/backup --password ***",)
    assert boot.starts
    assert boot.pulled_by == ("cron",)
    assert boot.state == "enabled"


def test_without_a_cron_nothing_runs_and_it_is_said() -> None:
    files = {path: text for path, text in DEBIAN.items() if path != "/usr/sbin/cron"} | {"/etc/cron.daily/x": "#!/bin/sh"}
    services = cron.read(Planted(files))
    assert len(services) == 4
    assert not any(service.starts for service in services)
    assert {service.conditions[0] for service in services} == {"no cron is installed on this image, so nothing runs it"}


@pytest.mark.parametrize(
    ("links", "why"),
    [
        ({"/etc/systemd/system/cron.service": "/dev/null"}, "cron.service is masked, so nothing runs it"),
        ({}, "cron.service is not enabled, so nothing runs it"),
        ({"/etc/systemd/system/multi-user.target.wants/cron.service": "/usr/lib/systemd/system/cron.service"}, ""),
    ],
)
def test_a_cron_that_systemd_does_not_start_runs_nothing(links: dict[str, str], why: str) -> None:
    files = {**DEBIAN, "/usr/lib/systemd/system/cron.service": "[Service]\n", "/etc/cron.hourly/job": "#!/bin/sh"}
    services = cron.read(Planted(files, links))
    assert {service.conditions for service in services} == ({(why,)} if why else {()})
    assert all(service.starts != bool(why) for service in services)


@pytest.mark.parametrize(
    ("name", "debian_takes", "cronie_takes"),
    [
        ("sysstat", True, True),
        ("e2scrub_all", True, True),
        ("0hourly", True, True),
        ("backup.sh", False, True),
        (".placeholder", False, False),
        ("job~", False, False),
        ("job.rpmsave", False, False),
        ("job.dpkg-old", False, False),
        ("ünï", False, True),
    ],
)
def test_names_in_cron_d_that_each_cron_reads(name: str, debian_takes: bool, cronie_takes: bool) -> None:
    for program, takes in (("/usr/sbin/cron", debian_takes), ("/usr/sbin/crond", cronie_takes)):
        services = cron.read(Planted({program: "", f"/etc/cron.d/{name}": "* * * * * root /bin/true\n"}))
        assert [service.starts for service in services] == [takes]


def test_scripts_run_only_where_a_line_runs_their_directory() -> None:
    scripts = {f"/etc/cron.{period}/job": "#!/bin/sh" for period in ("hourly", "daily", "weekly")}
    scripts |= {
        "/etc/cron.daily/with.dot": "#!/bin/sh",
        "/etc/cron.daily/plain": "no script",
        "/etc/cron.daily/.placeholder": "",
    }
    found = by_name(cron.read(Planted({**DEBIAN, **scripts})))
    assert found["/etc/cron.hourly/job"].pulled_by == ("/etc/crontab:3",)
    assert found["/etc/cron.daily/job"].starts
    assert found["/etc/cron.weekly/job"].conditions == ("no line of any crontab runs /etc/cron.weekly",)
    assert found["/etc/cron.daily/with.dot"].conditions == ("run-parts leaves out files of that name",)
    assert found["/etc/cron.daily/plain"].conditions == ("it may not be executed, and run-parts leaves it out",)
    assert "/etc/cron.daily/.placeholder" not in found


def test_fedoras_run_parts_takes_dots_and_leaves_out_leftovers() -> None:
    assert cron.run_parts_takes("0yum-daily.cron", debian=False)
    assert not cron.run_parts_takes("0yum-daily.cron", debian=True)
    assert not cron.run_parts_takes("job.rpmnew", debian=False)


def test_anacron_runs_what_its_table_says() -> None:
    lines = ["SHELL=/bin/sh", "RANDOM_DELAY=45", "1\t5\tcron.daily\tnice run-parts /etc/cron.daily"]
    table = "\n".join([*lines, "@monthly 45 m run-parts /etc/cron.monthly", "7 x y z", ""])
    files = {"/usr/sbin/crond": "", "/usr/sbin/anacron": "", "/etc/anacrontab": table, "/etc/cron.daily/a.b": "#!/bin/sh"}
    tree = Planted(files)
    found = by_name(cron.read(tree))
    assert found["/etc/anacrontab:3"].description == "every 1 d, 5 min late, as root"
    assert found["/etc/cron.daily/a.b"].pulled_by == ("/etc/anacrontab:3",)
    assert found["/etc/anacrontab:4"].description.startswith("@monthly")
    assert any("line 5" in trouble for trouble in tree.troubles)


def test_crontabs_of_users_lie_where_each_cron_has_them() -> None:
    line = "*/5 * * * * /bin/job\n"
    for program, path in (("cron", "/var/spool/cron/crontabs/ann"), ("crond", "/var/spool/cron/ann")):
        (service,) = cron.read(Planted({f"/usr/sbin/{program}": "", path: line}))
        assert service.description == "*/5 * * * *, as ann"
        assert service.starts
    busybox = Planted(
        {"/bin/busybox": "#!", "/etc/crontabs/root": line},
        {"/usr/sbin/crond": "/bin/busybox", "/var/spool/cron/crontabs": "/etc/crontabs"},
    )
    assert [service.pulled_by for service in cron.read(busybox)] == [("busybox crond",)]


def test_systemd_cron_runs_the_directories_by_its_timers() -> None:
    files = {"/usr/lib/systemd/system-generators/systemd-crontab-generator": "#!", "/etc/cron.daily/job": "#!/bin/sh"}
    (service,) = cron.read(Planted(files))
    assert service.pulled_by == ("cron-daily.timer",)


def test_one_wrong_line_costs_debian_the_whole_file_and_others_that_line() -> None:
    text = "* * * * * root /bin/good\n61 * * * * root /bin/bad\n"
    for program, starts in (("cron", False), ("crond", True)):
        tree = Planted({f"/usr/sbin/{program}": "", "/etc/cron.d/job": text})
        (service,) = cron.read(tree)
        assert service.starts is starts
        assert any("line 2" in trouble for trouble in tree.troubles)
    (service,) = cron.read(Planted({"/usr/sbin/cron": "", "/etc/cron.d/job": "* * * * * root /bin/good"}))
    assert "no newline" in service.conditions[0]


def test_a_crontab_that_others_may_write_is_refused() -> None:
    tree = Planted({"/usr/sbin/cron": "", "/etc/cron.d/job": "* * * * * root /bin/x\n"}, modes={"/etc/cron.d/job": 0o666})
    assert not cron.read(tree)[0].starts


def test_a_percent_sign_ends_the_command_unless_it_is_escaped() -> None:
    assert command_of(r"date +\%F > /tmp/x%input") == "date +%F > /tmp/x"


LINES = [
    "* * * * * /bin/true",
    "*/5 0-23/2 1,15 jan-mar mon-fri /bin/true",
    "0 0 * * 7 /bin/true",
    "0 0 * * 8 /bin/true",
    "60 * * * * /bin/true",
    "* 24 * * * /bin/true",
    "* * 0 * * /bin/true",
    "* * 32 * * /bin/true",
    "* * * 13 * /bin/true",
    "* * * foo * /bin/true",
    "* * * * funday /bin/true",
    "*/0 * * * * /bin/true",
    "1-5/2 * * * * /bin/true",
    "1,2,3 * * * * /bin/true",
    "1,,3 * * * * /bin/true",
    "x * * * * /bin/true",
    "-1 * * * * /bin/true",
    "@reboot /bin/true",
    "@hourly /bin/true",
    "@midnight /bin/true",
    "@sometimes /bin/true",
    "@daily",
    "* * * * *",
    "* * * *",
    "NAME=value",
    "NAME = value",
    '"QUOTED"=value',
    "* * * * * A=b /bin/true",
    "# a comment",
    "   # another",
    "0 12 * JAN SUN /bin/true",
]


@pytest.mark.parametrize("line", LINES)
def test_lines_are_taken_or_refused_as_debians_crontab_does(line: str) -> None:
    """crontab(1) checks a file before it installs it. Its spool is a file system of ours, in a namespace of its own."""
    root = debian()
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a mount namespace needs root and unshare")
    spool = f"{root}/var/spool/cron"
    script = 'mount -t tmpfs none "$1" && mkdir -m 1730 "$1/crontabs" && exec chroot "$0" crontab -u root -'
    command = ["unshare", "--mount", "sh", "-c", script, str(root), spool]
    said = subprocess.run(command, input=f"{line}\n", capture_output=True, text=True, check=False)
    assert "unshare" not in said.stderr
    assert "mount" not in said.stderr
    mistakes = [one for one in jobs(f"{line}\n".encode(), "root") if isinstance(one, Mistake)]
    assert bool(mistakes) == (said.returncode != 0), said.stderr


def test_the_cron_files_of_a_real_debian_are_all_read() -> None:
    root = debian()
    with Directory(str(root)) as tree:
        found = by_name(cron.read(tree))
        assert tree.troubles == []
    expected = {f"/{path.relative_to(root)}" for path in Path(root, "etc").glob("cron.*ly/*") if path.name != ".placeholder"}
    assert expected
    assert expected <= set(found)
    assert all(found[name].starts for name in expected)
    assert {name.partition(":")[0] for name in found} >= {"/etc/crontab", "/etc/cron.d/e2scrub_all"}


@settings(max_examples=examples(200))
@given(st.binary(max_size=300), st.sampled_from([None, "root"]))
def test_any_bytes_are_jobs_or_mistakes(text: bytes, user: str | None) -> None:
    found = [*jobs(text, user), *anacron_jobs(text)]
    assert all(1 <= one.line <= text.count(b"\n") + 1 for one in found)
    assert all(one.command.isprintable() or "\n" not in one.command for one in found if isinstance(one, Job))


@settings(max_examples=examples(100))
@given(
    st.lists(st.sampled_from(["*", "0", "59", "60", "7", "mon", "jan", "*/2", "1-5", "root", "/bin/x", "%", "="]), max_size=9)
)
def test_what_has_five_times_and_a_command_is_a_job_or_says_why_not(words: list[str]) -> None:
    found = list(jobs(" ".join(words).encode(), "root"))
    assert len(found) <= 1
    if len(words) > 5 and all(word == "*" for word in words[:5]):
        assert isinstance(found[0], Job)


@settings(max_examples=examples(60))
@given(st.dictionaries(st.from_regex(r"[^/\0]{1,12}", fullmatch=True), st.binary(max_size=80), max_size=5))
def test_hostile_names_and_texts_in_every_place_end_in_services(files: dict[str, bytes]) -> None:
    files = {name: text for name, text in files.items() if name not in (".", "..")}
    places = ("/etc/cron.d", "/etc/cron.daily", "/var/spool/cron/crontabs", "/var/spool/cron")
    planted = {f"{place}/{name}": b"#!" + text for place in places for name, text in files.items() if name != "crontabs"}
    for program in ("cron", "crond"):
        services = cron.read(Planted({**planted, f"/usr/sbin/{program}": b""}))
        assert all(service.kind == "cron" and bool(service.conditions) != service.starts for service in services)


def test_a_minus_sign_in_front_is_cronies() -> None:
    line = b"-* * * * * /bin/true\n"
    assert [type(one) for one in jobs(line, "root", quiet=True)] == [Job]
    assert [type(one) for one in jobs(line, "root")] == [Mistake]
