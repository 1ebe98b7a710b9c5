"""What a recording and a pushed profile must not hold: arguments, environments, tenants' stacks; and who can read them."""

import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exhume.agent import push_profile
from exhume.host.owners import PERHAPS
from exhume.host.root import Root
from exhume.recording import tally
from exhume.sources.sampling.profiler import Profiler
from exhume.sources.sampling.sampler import Sampler
from exhume.sources.sampling.user_symbols import UserSymbols
from tests import systemd, zombies
from tests.agent.agents import agent
from tests.agent.private import holding, modes
from tests.agent.push_reading import pprof
from tests.agent.push_receiver import receiving
from tests.recorders import exhume
from tests.sources.sampling.test_profiler import CPUS, HZ, Kept, Live, Row, empty

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an agent that sees everything needs root")

NAME = "exh-private"
SPIN = f"""\
import ctypes, zlib
ctypes.CDLL(None).prctl(15, b"{NAME}", 0, 0, 0)
print(flush=True)
data = bytes(1 << 16)
while True:
    zlib.crc32(data)
    open("/proc/self/stat").read()
"""


@contextmanager
def spinning(*arguments: str, environment: dict[str, str] | None = None, cgroup: Path | None = None) -> Iterator[int]:
    """A process that runs in libraries and in the kernel, under a name that can be looked for."""
    command = [sys.executable, "-S", "-c", SPIN, *arguments]
    if cgroup is not None:
        command = ["/bin/sh", "-c", f'echo $$ > "{cgroup}/cgroup.procs"; exec "$@"', "sh", *command]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, **(environment or {})}) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process.pid
        finally:
            process.kill()


@pytest.mark.ci
def test_no_argument_and_no_environment_is_in_a_recording_or_in_what_is_pushed(tmp_path: Path) -> None:
    secret = f"hunter2-{uuid.uuid4().hex}"
    with receiving() as receiver, spinning(f"--password={secret}", environment={"TOKEN": secret}) as pid:
        seen = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
        assert seen.count(secret.encode()) == 2
        settings = {"PUSH_URL": receiver.url, "PUSH_FORM": "pprof", "PUSH_EVERY_S": "3", "PUSH_NAMESPACES": "*"}
        settings |= {"USER_STACKS": "all", "HZ": "97", "LATENCY": "1"}
        environment = {f"EXHUME_AGENT_{key}": value for key, value in settings.items()}
        with agent(tmp_path / "r", environment=environment) as it:
            # Which of them is the first that it is in is the machine's affair.
            it.until(lambda: any(stack[0] == NAME for one in receiver.came for stack in pprof(one.body).stacks), 180)
            came = list(receiver.came)
            assert it.end(signal.SIGTERM) == 0
    assert holding(tmp_path / "r", NAME.encode()), "whoever is not found when he is there says nothing when he is not"
    assert holding(tmp_path, secret.encode()) == []
    profiles = [pprof(one.body) for one in came]
    assert not [text for one in profiles for text in one.texts if "hunter2" in text]
    assert secret not in "".join(f"{one.path}{one.headers}" for one in came) + it.text


def test_a_recording_and_its_spool_are_for_root_alone_whatever_the_umask_is(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "state", 0o700)
    with receiving() as receiver:
        settings = {"EXHUME_AGENT_PUSH_URL": receiver.url, "EXHUME_AGENT_PUSH_EVERY_S": "1"}
        with agent(tmp_path / "state" / "r", prelude="import os; os.umask(0)", environment=settings) as it:
            it.ready()
            it.until(lambda: (tmp_path / "state" / "r.spool").exists())
            assert modes(tmp_path / "state") == {}
            assert it.end(signal.SIGTERM) == 0
    assert modes(tmp_path / "state") == {}


UNIT = """\
[Unit]
StartLimitIntervalSec=0
[Service]
Environment=TOKEN=%s
ExecStart=/bin/sh -c 'exit 7' --password=%s
Restart=always
RestartSec=200ms
"""


@pytest.mark.ci
@pytest.mark.skipif(bool(systemd.unavailable()), reason=systemd.unavailable() or "-")
def test_nor_are_those_of_a_unit_that_systemd_and_the_journal_tell_of(tmp_path: Path) -> None:
    secret = f"hunter2-{uuid.uuid4().hex}"
    with systemd.boot({"exh-private.service": UNIT % (secret, secret)}) as machine:
        machine.run(["systemctl", "start", "exh-private.service"])
        assert secret in machine.run(["systemctl", "show", "-p", "ExecStart,Environment", "exh-private.service"]).stdout
        done = exhume("record", str(tmp_path / "r"), "--host", machine.root, "--for", "4s", "--no-latency")
    assert done.returncode == 0, done.stderr
    assert holding(tmp_path / "r", b"exh-private.service")
    assert holding(tmp_path, secret.encode()) == []


# Stacks of tenants


@contextmanager
def hiding() -> Iterator[Live]:
    with Sampler(CPUS, HZ, False) as sampler:
        profiler = Profiler(Root(), sampler.cgroups, symbols=UserSymbols(Root()), hide_tenants=True)
        try:
            yield Live(sampler, profiler, Kept())
        finally:
            profiler.close()


@contextmanager
def group(*names: str) -> Iterator[Path]:
    """A cgroup of the memory hierarchy, and those above it, which go when it is left."""
    path, made = zombies.MEMORY, []
    try:
        for name in (f"exhumetest{uuid.uuid4().hex[:8]}.slice", *names):
            path = path / name
            path.mkdir()
            made.append(path)
        yield path
    finally:
        for one in reversed(made):
            one.rmdir()


def _in_both_spaces(rows: list[Row]) -> bool:
    """Seen often, and in both: where the samples fall is chance, and fifty may all lie in a library."""
    return len(rows) > 50 and min(sum(row.kind == kind for row in rows) for kind in ("user", "system")) > 5


UID, ID = "12345678-90ab-cdef-1234-567890abcdef", "0123456789abcdef" * 4


@pytest.mark.skipif(bool(zombies.unavailable()), reason=zombies.unavailable() or "-")
def test_of_pods_only_the_kernels_frames_are_kept_and_of_host_services_all() -> None:
    with (
        group("kubepods", f"pod{UID}", ID) as pod,
        group("exh-host.service") as service,
        spinning(cgroup=pod) as tenant,
        spinning(cgroup=service) as host,
        hiding() as seen,
    ):
        seen.until(lambda: all(_in_both_spaces(seen.kept.of(pid)) for pid in (tenant, host)))
        of_tenant, of_host = seen.kept.of(tenant), seen.kept.of(host)
    assert {row.thread["pod"] for row in of_tenant} == {UID}
    assert {row.thread["unit"] for row in of_host} == {"exh-host.service"}
    assert {frame["space"] for row in of_tenant for frame in row.frames} == {"kernel"}
    assert {row.kind for row in of_tenant} >= {"user", "system"}
    assert {frame["space"] for row in of_host for frame in row.frames} == {"kernel", "user"}


MOVES = """\
import os, sys, zlib
data = bytes(1 << 20)
print(flush=True)
sys.stdin.readline()
open(sys.argv[1] + "/cgroup.procs", "w").write("0")
os.execv(sys.executable, [sys.executable, "-S", "-c", sys.argv[2]])
"""


@pytest.mark.skipif(bool(zombies.unavailable()), reason=zombies.unavailable() or "-")
def test_one_that_goes_into_a_pod_is_hidden_from_then_on() -> None:
    """As a runtime does it: into the cgroup, then exec."""
    with group("kubepods", f"pod{UID}", ID) as pod, hiding() as seen:
        command = [sys.executable, "-S", "-c", textwrap.dedent(MOVES), str(pod), SPIN]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdout.readline()
                seen.batch(0.1)
                process.stdin.write(b"\n")
                process.stdin.flush()
                process.stdout.readline()
                seen.until(lambda: sum(row.thread["comm"] == NAME for row in seen.kept.of(process.pid)) > 30)
            finally:
                process.kill()
        rows = [row for row in seen.kept.of(process.pid) if row.thread["comm"] == NAME]
    assert {row.thread["pod"] for row in rows} == {UID}
    assert rows
    assert "user" not in {frame["space"] for row in rows for frame in row.frames}  # it may have been in no kernel function


RUNTIME = """\
import os, sys
for _ in range(3):
    if os.fork() == 0:
        open(sys.argv[1] + "/cgroup.procs", "w").write("0")
        os.execv(sys.executable, [sys.executable, "-S", "-c", sys.argv[2]])
    os.wait()
"""
SHORT = f"""\
import ctypes, time
ctypes.CDLL(None).prctl(15, b"{NAME}", 0, 0, 0)
end = time.process_time() + 0.2
while time.process_time() < end:
    open("/proc/self/stat").read()
"""


@pytest.mark.skipif(bool(zombies.unavailable()), reason=zombies.unavailable() or "-")
def test_a_pods_first_process_that_ends_before_it_was_read_does_not_leave_as_its_runtimes() -> None:
    """On cgroup v1 nothing in a sample says where the process was."""
    with group("kubepods", f"pod{UID}", ID) as pod, group("exh-runtime.service") as service, hiding() as seen:
        command = [sys.executable, "-S", "-c", RUNTIME, str(pod), SHORT]
        joined = ["/bin/sh", "-c", f'echo $$ > "{service}/cgroup.procs"; exec "$@"', "sh", *command]
        with subprocess.Popen(joined) as process:
            assert process.wait(60) == 0  # all of it is over before the first batch is looked at
        recording = empty()
        seen.profiler.add(seen.sampler.take(), recording)
        seen.kept.add(recording)
        rows = [row for row in seen.kept.rows() if row.thread["comm"] == NAME]
    assert len(rows) > 50
    named = {(row.thread["pod"], row.thread["container"]) for row in rows}
    assert named in ({("", PERHAPS)}, {(UID, ID)}), named  # where the kernel tells cgroups apart, it is known for sure
    pushed = push_profile.rows(tally.of_recording(recording), recording, (), lambda _: push_profile.Tenant())
    assert pushed.withheld >= len(rows)
    assert NAME not in {frame.name for frame in pushed.frames}
