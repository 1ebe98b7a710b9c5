"""The sampler on the real kernel: what it opens, what it leaves behind, CPUs that come and go."""

import contextlib
import errno
import os
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.kernel.bpf import Tracefs
from exhume.kernel.perf import Attributes, Flag, Kind, Sample, Tracepoints, open_on_cpu
from exhume.sources.facts import online_cpus
from exhume.sources.sampling import records, sampler
from exhume.sources.sampling.sampler import Sampler
from tests.waiting import wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="system-wide samples need root")
CPUS = online_cpus(Root())


def open_files(pid: int | str = "self") -> list[str]:
    """What a process has open; names of those that went as we looked are left out."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found


def rings() -> int:
    return Path("/proc/self/maps").read_bytes().count(b"anon_inode:[perf_event]")


def cores_seen(each: Sampler) -> set[int]:
    found: set[int] = set()
    for taken in each.take():
        found |= {*records.samples(taken.samples, each.cgroups).core.tolist()}
    return found


@needs_root
@pytest.mark.parametrize("hz", [1, 49, 97, 99, 999])
def test_the_kernel_takes_every_rate_that_is_offered(hz: int) -> None:
    with Sampler(CPUS, hz) as taking:
        assert taking.cpus == CPUS
        assert taking.event in ("cycles", "cpu-clock")
        assert len(taking.descriptors()) == 2 * len(CPUS)


@needs_root
def test_rings_and_descriptors_are_gone_when_it_is_closed() -> None:
    before, mapped = sorted(open_files()), rings()
    taking = Sampler(CPUS, 97)
    assert len(open_files()) >= len(before) + 2 * len(CPUS)
    assert rings() == mapped + 2 * len(CPUS)
    taking.close()
    taking.close()
    assert sorted(open_files()) == before
    assert rings() == mapped


@needs_root
def test_nothing_is_left_open_when_a_cpu_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(open_files())

    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(sampler, "enable", refuse)
    with pytest.raises(MemoryError):
        Sampler(CPUS, 97)
    assert sorted(open_files()) == before


CHILD = """
import sys
sys.path[:] = sys.argv[1:]
from exhume.sources.facts import online_cpus
from exhume.host.root import Root
from exhume.sources.sampling.sampler import Sampler
with Sampler(online_cpus(Root()), 97):
    print("open", flush=True)
    sys.stdin.read()
"""


@needs_root
def test_a_kill_takes_everything_away() -> None:
    """An event lives as long as a descriptor or a mapping of it; both die with their process, which nobody shares them with."""
    with subprocess.Popen([sys.executable, "-c", CHILD, *sys.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        assert len([name for name in open_files(child.pid) if "perf_event" in name]) >= 2 * len(CPUS)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
    assert not os.path.exists(f"/proc/{child.pid}/fd")


@needs_root
def test_a_child_that_executes_something_gets_no_descriptor_of_ours() -> None:
    with Sampler(CPUS, 97):
        listed = subprocess.run(
            ["ls", "-l", "/proc/self/fd"], capture_output=True, text=True, check=True, close_fds=False
        ).stdout
    assert "perf_event" not in listed


@needs_root
def test_samples_come_from_every_cpu_idle_or_not() -> None:
    with Sampler(CPUS, 999) as taking:
        if taking.event == "cycles":
            pytest.skip("an idle CPU has no cycles to count")
        seen: set[int] = set()

        def all_there() -> bool:
            seen.update(cores_seen(taking))
            return seen == {*CPUS}

        wait_for(all_there)


@needs_root
def test_what_is_taken_is_taken_once() -> None:
    with Sampler(CPUS, 999) as taking:
        time.sleep(0.2)
        first = [records.samples(each.samples, taking.cgroups).time for each in taking.take()]
        time.sleep(0.1)
        second = [records.samples(each.samples, taking.cgroups).time for each in taking.take()]
    for before, after in zip(first, second, strict=True):
        assert not {*before.tolist()} & {*after.tolist()}
        assert before.tolist() == sorted(before.tolist())


@needs_root
@pytest.mark.skipif(len(CPUS) < 2, reason="one CPU cannot go")
def test_cpus_that_go_and_come_are_followed() -> None:
    with Sampler(CPUS, 999) as taking:
        assert taking.follow(CPUS) == []
        taking.take()
        assert taking.follow(CPUS[:1]) == [f"CPU {cpu} went offline" for cpu in CPUS[1:]]
        assert len(taking.descriptors()) == 2
        taking.take()
        time.sleep(0.05)
        assert cores_seen(taking) == {CPUS[0]}
        assert taking.follow(CPUS) == [f"CPU {cpu} came online" for cpu in CPUS[1:]]
        seen: set[int] = set()

        def back() -> bool:
            seen.update(cores_seen(taking))
            return seen == {*CPUS}

        wait_for(back)
        assert taking.follow(CPUS) == []


@needs_root
def test_a_cpu_that_was_away_and_is_back_is_opened_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel takes an event off a CPU that goes: the time it was enabled stands still. Here it is made to."""
    with Sampler(CPUS, 97) as taking:
        stopped = taking.descriptors()[0]
        read = sampler._times
        monkeypatch.setattr(sampler, "_times", lambda fd: (5, 5) if fd == stopped else read(fd))
        assert taking.follow(CPUS) == []
        assert taking.follow(CPUS) == [f"CPU {CPUS[0]} was away", f"CPU {CPUS[0]} came online"]
        assert sorted(taking.cpus) == CPUS


@needs_root
def test_counters_that_others_use_too_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the kernel lets events take turns, the time it ran grows slower than the time it was enabled: made to here."""
    clock = iter(range(1_000, 100_000, 1_000))
    with Sampler(CPUS[:1], 97) as taking:
        assert taking.reason == ""
        monkeypatch.setattr(sampler, "_times", lambda fd: ((now := next(clock)), now // 2))
        taking.follow(CPUS[:1])
        assert taking.reason == ""
        taking.follow(CPUS[:1])
        assert taking.shared == 0.5
        assert "in 50 % of the time" in taking.reason


@needs_root
def test_a_cpu_that_goes_as_it_is_opened_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(attributes: Attributes, cpu: int) -> int:
        if cpu == 4000:
            raise OSError(errno.ENODEV, "No such device")
        return open_on_cpu(attributes, cpu)

    monkeypatch.setattr(sampler, "open_on_cpu", gone)
    with Sampler([*CPUS, 4000], 97) as taking:
        assert taking.cpus == CPUS
        assert taking.follow([*CPUS, 4000]) == []


@needs_root
def test_a_cpu_that_cannot_be_opened_later_is_told_and_stops_nothing() -> None:
    with Sampler(CPUS, 97) as taking:
        (told,) = taking.follow([*CPUS, 1 << 20])
        assert told.startswith("stack samples of CPU 1048576 cannot be read")
        assert taking.cpus == CPUS


def test_a_large_machine_gets_the_files_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: asked.append(limits))
    sampler._make_room(2)
    assert asked == []
    sampler._make_room(300)
    assert asked == [(4096, 4096)]


def test_no_cpu_at_all_is_said() -> None:
    with pytest.raises(Unreadable, match="no CPU is there"):
        Sampler([], 97)


def as_nobody(what: Callable[[], str]) -> str:
    """What a child without any privilege has to say."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: other threads may hold locks, none of which we take
        pid = os.fork()
    if pid == 0:
        answer = ""
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            answer = what()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, answer.encode())
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:
        answer = file.read().decode()
    os.waitpid(pid, 0)
    return answer


@needs_root
def test_without_privilege_it_says_what_it_takes() -> None:
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 1:
        pytest.skip("kernel.perf_event_paranoid lets everybody")

    def try_it() -> str:
        Sampler(CPUS, 97).close()
        return "opened"

    answer = as_nobody(try_it)
    assert answer.startswith("Unreadable: stack samples cannot be read: it takes root or CAP_PERFMON")


def test_the_rings_of_a_large_machine_stay_bounded() -> None:
    for cpus in range(1, 513):
        size = sampler._ring_size(cpus, 1 << 20)
        assert size & (size - 1) == 0
        assert 2 * cpus * size <= max(48 << 20, 2 * cpus << 17)


@needs_root
def test_a_counter_that_somebody_else_has_is_made_up_for_by_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    real = open_on_cpu

    def busy(attributes: Attributes, cpu: int) -> int:
        if attributes.kind == Kind.HARDWARE:
            raise OSError(errno.EBUSY, "Device or resource busy")
        return real(attributes, cpu)

    monkeypatch.setattr(sampler, "open_on_cpu", busy)
    with Sampler(CPUS, 97) as taking:
        assert taking.event == "cpu-clock"
        assert taking.cpus == CPUS


def test_a_rate_that_the_kernel_has_lowered_its_limit_below_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(sampler, "open_on_cpu", refuse)
    monkeypatch.setattr(sampler, "_highest_hz", lambda: 500)
    with pytest.raises(Unreadable, match=r"at most 500 stack samples a second: .* kernel.perf_event_max_sample_rate"):
        Sampler(CPUS, 999)
    with pytest.raises(Unreadable, match="Invalid argument"):
        Sampler(CPUS, 97)


@needs_root
def test_before_5_7_samples_come_without_a_cgroup(monkeypatch: pytest.MonkeyPatch) -> None:
    real = open_on_cpu

    def old(attributes: Attributes, cpu: int) -> int:
        if attributes.sample & Sample.CGROUP or attributes.flags & Flag.CGROUP:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(attributes, cpu)

    monkeypatch.setattr(sampler, "open_on_cpu", old)
    with Sampler(CPUS, 999) as taking:
        assert not taking.cgroups
        wait_for(lambda: bool(cores_seen(taking)))


@needs_root
def test_names_alone_are_held_back_and_nothing_is_held_where_nothing_came() -> None:
    """Of kernel/perf.py: a listener for rare tracepoints on a quiet node must not grow by its own reading."""
    try:
        with Tracefs() as tracefs:
            number = tracefs.tracepoint("cgroup", "cgroup_mkdir").id
    except Unreadable as error:
        pytest.skip(str(error))
    with Tracepoints({number: 'path == "/no-such-path"'}, CPUS, comm=True) as listening:
        listening.read()
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        assert listening.read() == []
        assert listening._unread
        held = len(listening._unread)
        for _ in range(50):
            listening.read()
        assert len([data for data in listening._unread if not data]) == 0
        assert len(listening._unread) < held + 50 * len(CPUS)


@needs_root
@pytest.mark.skipif(len(CPUS) < 2, reason="one CPU is of one kind")
def test_cpus_of_two_kinds_are_all_sampled_by_the_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hybrid processors: cycles without a PMU's number can only be counted on the CPUs of one kind."""
    tried = []

    def open_one_kind(attributes: Attributes, cpu: int) -> int:
        if attributes.kind == Kind.HARDWARE:
            tried.append(cpu)
            if cpu != CPUS[0]:
                raise OSError(errno.ENOENT, "")
            attributes = replace(attributes, kind=Kind.SOFTWARE)
        return open_on_cpu(attributes, cpu)

    monkeypatch.setattr(sampler, "open_on_cpu", open_one_kind)
    with Sampler(CPUS, 97) as taking:
        assert taking.event == "cpu-clock"
        assert taking.cpus == CPUS
    assert tried[:1] == CPUS[:1]
    assert CPUS[1] in tried
