"""Signs that something happens on a node: quiet batches have none, and each kind of trouble begins with one."""

import pytest

from exhume.recorder.policy import DEFAULT
from exhume.recorder.profiles import FLIGHT
from exhume.recorder.signs import Signs, busy
from exhume.recorder.trigger import WINDOW_NS
from exhume.recording.recording import Node, Recording, labels

SECOND = 1_000_000_000
NODE = Node("node-7", "boot", "6.1.0", "v1", 2)
BATCH = SECOND * 7 // 5


def quiet(number: int, work_ticks: int = 0, **counters: int) -> Recording:
    """A batch of two cores without work, the second of which did so much of it."""
    rows = Recording(NODE)
    begin = number * BATCH
    for step in range(15):
        at = begin + step * 100_000_000
        for core in range(2):
            worked = work_ticks * step // 14 if core else 0
            rows["cpu"].add(at, core, 0, 0, worked, at // 10_000_000 - worked, 0, 0, 0, 0, 0, 0)
    rows["memcg"].add(begin, "/", 12, 100, 112, "proc-cgroups", "node", 1)
    for name in ("vmstat_pgscan_direct", "nic_tx_errors", "printk_records", "vmstat_pgfault"):
        rows.count(begin, name, 1000 + counters.get(name, 0))
    rows.count(begin, "pressure_us", number * 1000 + counters.get("pressure_us", 0), labels(resource="io", kind="some"))
    return rows


def told(*batches: Recording) -> list[bool]:
    signs = Signs()
    return [bool(signs.seen(batch)) for batch in batches]


def test_a_quiet_node_shows_none() -> None:
    assert told(*map(quiet, range(5))) == [False] * 5


def test_a_core_that_worked_for_a_moment_is_none_and_one_that_worked_for_long_is_one() -> None:
    assert told(quiet(0, work_ticks=15), quiet(1, work_ticks=30)) == [False, True]


def test_time_that_nobody_accounted_is_one() -> None:
    rows = Recording(NODE)
    for at in range(5):
        rows["cpu"].add(at * SECOND, 0, *[7] * 10)
    assert busy(rows, DEFAULT.sign_idle_ratio)


@pytest.mark.parametrize(
    ("name", "more"),
    [("vmstat_pgscan_direct", 1), ("nic_tx_errors", 1), ("printk_records", 100), ("pressure_us", 500_000)],
)
def test_a_counter_that_grows_is_one_and_one_that_has_grown_is_none(name: str, more: int) -> None:
    assert told(quiet(0), quiet(1, **{name: more}), quiet(2, **{name: more})) == [False, True, False]


def test_counters_that_always_grow_are_none() -> None:
    assert told(quiet(0), quiet(1, vmstat_pgfault=100_000, printk_records=1, pressure_us=500)) == [False, False]


@pytest.mark.parametrize("table", ["events", "cgroup_events"])
def test_whatever_happened_is_one(table: str) -> None:
    rows = quiet(1)
    if table == "events":
        rows[table].add(BATCH, "oom", "memory", "critical", "", ())
    else:
        rows[table].add(BATCH, "rmdir", 4, 77, 2, "/system.slice/x", 1, "systemd")
    assert told(quiet(0), rows, quiet(2)) == [False, True, False]


def test_zombies_that_become_more_are_one() -> None:
    rows = quiet(1)
    rows["memcg"].add(BATCH + 1, "/", 12, 101, 113, "proc-cgroups", "node", 1)
    assert told(quiet(0), rows, quiet(2)) == [False, True, False]


def test_a_service_that_restarted_is_one_and_services_as_they_were_are_none() -> None:
    def with_unit(number: int, restarts: int) -> Recording:
        rows = quiet(number)
        rows["units"].add(number * BATCH, "ecs.service", "active", "running", restarts, "", "", 7, "/x", "?")
        rows["units"].add(number * BATCH, "dbus.service", "active", "running", 0, "", "", 8, "/y", "?")
        return rows

    assert told(with_unit(0, 3), quiet(1), with_unit(2, 3), with_unit(3, 4)) == [False, False, False, True]


def test_what_has_no_sign_does_not_fall_between_two_turns() -> None:
    assert DEFAULT.judge_quiet_s * SECOND + 2 * FLIGHT.quiet_batch_ns < WINDOW_NS


def test_nothing_that_was_read_shows_nothing() -> None:
    assert told(Recording(NODE)) == [False]
