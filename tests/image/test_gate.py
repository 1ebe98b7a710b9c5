"""The gate's judgement on recordings made of numbers: counts, leaks, steps, loops, and what could not be seen."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.image.gate import COUNT, LOOPS, SOURCES, judge_node
from exhume.image.gate_growth import NAME as GROWTH
from exhume.image.gate_growth import certain
from exhume.image.gate_model import Check, Gate, Options, as_json
from exhume.recording.recording import Recording
from exhume.recording.source_state import Absent, Failed, SourceState
from tests.diagnosis.findings import made
from tests.diagnosis.findings.lives import count, life, walk, window
from tests.diagnosis.findings.made import SECOND

ON = ("cpu", "memcg", "units", "cgroup-events", "zombies")
MINUTE, DAY = 60, 86_400


def soaked(seconds: float, dying: int = 0, live: int = 100, on: tuple[str, ...] = ON) -> Recording:
    """A soak in which nothing happens: every source that is not on is off, because."""
    recording = made.recording(on=on)
    for name in ON:
        if name not in on:
            recording.add_source(0, name, SourceState.off(Failed(f"{name} needs root")))
    window(recording, seconds)
    if "memcg" in on:
        for at in range(0, int(seconds) + 1, max(1, int(seconds) // 200)):
            count(recording, at, dying, live)
    if "zombies" in on:
        recording.count(round(seconds * SECOND), "memcg_walk_zombies", dying)
        recording.count(round(seconds * SECOND), "memcg_walk_live", live)
        recording.count(round(seconds * SECOND), "memcg_walk_longest_ns", 1)
    return recording


def judged(recording: Recording, options: Options | None = None) -> dict[str, Check]:
    return {check.name: check for check in judge_node(recording, Thresholds(), options or Options()).checks}


def leak(recording: Recording, start: float, end: float, period: float, path: str = "/system.slice/ecs.service") -> int:
    moments = np.arange(start, end, period).tolist()
    for number, at in enumerate(moments):
        life(recording, path, at, at + 0.1, 1_000 + number)
    return len(moments)


def test_a_quiet_soak_long_enough_passes_all() -> None:
    gate = judge_node(soaked(70 * MINUTE, live=10), Thresholds(), Options())
    assert {check.name: check.status for check in gate.checks} == dict.fromkeys((COUNT, GROWTH, LOOPS, SOURCES), "passed")
    assert gate.status == "passed"
    assert gate.exit_code() == gate.exit_code(strict=True) == 0
    assert as_json(gate)["passed"] is True


def test_a_quiet_soak_of_ten_minutes_promises_nothing_for_fourteen_days_and_says_what_would() -> None:
    gate = judge_node(soaked(10 * MINUTE + 1, live=100), Thresholds(), Options())
    growth = next(check for check in gate.checks if check.name == GROWTH)
    assert growth.status == "warning"
    assert growth.message == (
        "10 min without a new zombie exclude no leak slower than 0.3 a minute (95 %), which would bring 6,039 in 14 d, and "
        "there is room for 900: this soak cannot promise it. A soak of 1 h 8 min without one could"
    )
    assert (growth.measured, growth.limit) == (6_039, 900)
    assert (gate.exit_code(), gate.exit_code(strict=True), gate.exit_code(allow_warnings=True)) == (1, 2, 0)
    told = as_json(gate)
    assert told["passed"] is False
    assert told["bound"] == {
        "seen": 0,
        "seconds": 600.0,
        "confidence": 0.95,
        "excluded_above_per_minute": 0.299573,
        "at_end_of_life": 6039,
    }


def test_a_soak_as_long_as_it_says_does_promise_it() -> None:
    assert judged(soaked(68 * MINUTE, live=100))[GROWTH].status == "passed"
    assert judged(soaked(67 * MINUTE, live=100))[GROWTH].status == "warning"


def test_the_same_soak_promises_a_shorter_life() -> None:
    assert judged(soaked(10 * MINUTE + 1), Options(life_s=2 * DAY))[GROWTH].status == "passed"


def test_too_many_memory_cgroups_fail() -> None:
    check = judged(soaked(70 * MINUTE, dying=68_440, live=240))[COUNT]
    assert (check.status, check.measured, check.limit) == ("failed", 68_680, 1_000)
    assert check.message == "68,680 memory cgroups, 68,440 of them zombies: more than 1,000"


def test_a_leak_fails_and_its_source_is_named() -> None:
    recording = soaked(10 * MINUTE)
    came = leak(recording, 5, 590, 10)
    gate = judge_node(recording, Thresholds(), Options())
    checks = {check.name: check for check in gate.checks}
    assert checks[GROWTH].status == checks[SOURCES].status == "failed"
    (blamed,) = checks[GROWTH].blamed
    assert blamed.subject == "ecs.service"
    assert f"left {came} zombies" in blamed.message
    assert [one.subject for one in checks[SOURCES].blamed] == ["ecs.service"]
    assert gate.exit_code() == gate.exit_code(allow_warnings=True) == 2


def test_groups_that_die_and_go_away_again_are_no_leak() -> None:
    """Deploy noise: a hundred in a row, each a zombie for half a minute."""
    recording = soaked(70 * MINUTE)
    for number in range(100):
        life(recording, f"/system.slice/setup-{number}.service", number, number + 1, number, released=number + 31)
    assert judged(recording)[GROWTH].status == "passed"


def test_a_step_is_not_taken_for_a_leak_and_is_not_called_a_pass_either() -> None:
    recording = soaked(10 * MINUTE)
    leak(recording, 300, 312, 0.5, "/system.slice/once.service")
    checks = judged(recording)
    assert checks[GROWTH].status == "warning"
    assert "24 new zombies in 9 min 59 s, by cgroup events, at once and not all along. That" in checks[GROWTH].message
    assert checks[SOURCES].status == "passed"


def test_what_a_boot_leaves_behind_is_not_counted_while_it_settles() -> None:
    recording = soaked(72 * MINUTE + 1, live=10)
    leak(recording, 1, 100, 4, "/system.slice/boot.service")
    assert judged(recording)[GROWTH].status != "passed"
    settled = judged(recording, Options(settle_s=120))[GROWTH]
    assert settled.status == "passed"
    assert settled.message.startswith("1 h 10 min without a new zombie")


def test_without_events_the_count_is_judged_by_its_lowest_points() -> None:
    off = tuple(name for name in ON if name != "cgroup-events")
    noisy = soaked(100 * MINUTE, on=off)
    for at in range(1_000, 2_000, 7):  # a thousand come, and go again
        count(noisy, at, 1_000, 100)
    growth = judged(noisy)[GROWTH]
    assert growth.status == "passed"
    assert growth.message.startswith("1 h 20 min without a new zombie")  # the edges are not counted
    leaking = made.recording(on=off)
    window(leaking, 600)
    for at in range(0, 601, 2):
        count(leaking, at, at // 10 + 30 * (at % 20 == 0), 100)
    growth = judged(leaking)[GROWTH]
    assert growth.status == "failed"
    assert "the kernel's count" in growth.message
    step = made.recording(on=off)
    window(step, 600)
    for at in range(0, 601, 2):
        count(step, at, 80 * (at > 300), 100)
    assert judged(step)[GROWTH].status == "warning"


def test_lost_events_are_not_trusted() -> None:
    recording = soaked(100 * MINUTE)
    recording.count(0, "cgroup_events_lost", 7)
    assert "the kernel's count" not in judged(recording)[GROWTH].message
    assert judged(recording)[GROWTH].message.startswith("1 h 20 min")
    below = judged(recording, Options(under="/a"))[GROWTH]
    assert below.status == "unknown"
    assert "7 cgroup events were lost" in below.message


def test_what_cannot_be_seen_is_not_passed() -> None:
    recording = soaked(100 * MINUTE, on=("cpu",))
    checks = judged(recording)
    assert {check.status for check in checks.values()} == {"unknown"}
    assert "memcg needs root" in checks[COUNT].message
    assert "units needs root" in checks[LOOPS].message
    gate = judge_node(recording, Thresholds(), Options())
    assert gate.exit_code() == gate.exit_code(allow_warnings=True) == 3
    assert as_json(gate)["passed"] is False


def test_zombies_without_names_have_no_source_that_could_be_cleared() -> None:
    off = tuple(name for name in ON if name != "zombies")
    many, few = soaked(100, dying=60, on=off), soaked(100, dying=20, on=off)
    assert judged(many)[SOURCES].status == "unknown"
    assert judged(few)[SOURCES].status == "passed"


def test_old_zombies_of_a_known_place_fail_by_their_number() -> None:
    recording = soaked(70 * MINUTE, dying=80)
    walk(recording, 70 * MINUTE, "/system.slice/agent.service", "/system.slice", 60, unit="agent.service")
    walk(recording, 70 * MINUTE, "/system.slice/other.service", "/system.slice", 20, unit="other.service")
    check = judged(recording)[SOURCES]
    assert check.status == "failed"
    assert [blamed.subject for blamed in check.blamed] == ["agent.service"]
    assert judged(recording, Options(under="/user.slice"))[SOURCES].status == "passed"


def units(recording: Recording, name: str, restarts: list[int], sub: str = "auto-restart") -> None:
    for at, number in enumerate(restarts):
        recording["units"].add(
            at * 10 * SECOND, name, "activating", sub, number, "exit-code", "enabled", 0, f"/system.slice/{name}", ""
        )


def test_a_crash_loop_fails_and_a_restart_or_two_warn() -> None:
    recording = soaked(60)
    units(recording, "ecs.service", [1, 3, 5, 7, 9, 11])
    check = judged(recording)[LOOPS]
    assert check.status == "failed"
    assert [blamed.subject for blamed in check.blamed] == ["ecs.service"]
    recording = soaked(60)
    units(recording, "slow.service", [0, 1, 2])
    check = judged(recording)[LOOPS]
    assert check.status == "warning"
    assert [blamed.subject for blamed in check.blamed] == ["slow.service"]


def test_a_unit_that_systemd_soon_gave_up_fails_all_the_same() -> None:
    recording = soaked(600)
    units(recording, "ecs.service", [0, 5, *[5] * 58], "failed")
    assert judged(recording)[LOOPS].status == "failed"


def test_a_loop_that_nobody_could_have_seen_is_not_ruled_out() -> None:
    partly = soaked(60, on=tuple(name for name in ON if name != "cgroup-events"))
    partly["units"].add(0, "a.service", "active", "running", 0, "success", "enabled", 1, "/system.slice/a.service", "")
    check = judged(partly)[LOOPS]
    assert check.status == "warning"
    assert "loops inside a unit only cgroup events would show: cgroup-events needs root" in check.message
    without = soaked(60, on=tuple(name for name in ON if name != "units"))
    assert judged(without)[LOOPS].status == "warning"  # somebody is there who did not answer
    without.add_source(1, "units", SourceState.off(Absent("systemd is not running here")))
    assert judged(without)[LOOPS].status == "passed"


def test_a_dozen_groups_at_once_are_no_crash_loop() -> None:
    recording = soaked(600)
    for number in range(12):
        life(recording, f"/job/z{number}", 300 + number / 50, 300 + number / 50 + 0.01, number)
    check = judged(recording)[LOOPS]
    assert check.status == "warning"
    assert "no crash loop is certain" in check.message


def test_only_what_is_below_a_place_is_judged_there() -> None:
    recording = soaked(70 * MINUTE, dying=300)
    leak(recording, 5, 600, 10, "/other/z")
    walk(recording, 70 * MINUTE, "/other/z", "/other", 300)
    checks = judged(recording, Options(under="/mine"))
    assert [checks[name].status for name in (COUNT, GROWTH, SOURCES)] == ["passed"] * 3
    assert judged(recording, Options(under="/oth"))[GROWTH].status == "passed"  # by whole names
    assert judged(recording, Options(under="/other"))[COUNT].measured == 300


def test_a_leak_is_certain_before_the_time_is_over_only_when_it_is() -> None:
    fast, slow = soaked(130), soaked(130)
    leak(fast, 0, 128, 2)
    leak(slow, 0, 128, 30)
    assert certain(fast, Options(settle_s=20), 300)
    assert not certain(slow, Options(settle_s=20), 300)
    assert not certain(soaked(130), Options(), 300)
    assert not certain(fast, Options(settle_s=20), 600)  # a burst, for all one knows so early


@given(st.integers(0, 2**32), st.floats(0.0, 0.0495))
def test_a_leak_that_a_node_would_survive_never_ends_a_soak_early(seed: int, per_minute: float) -> None:
    """14 days at 0.0495 a minute are 998: allowed."""
    random = np.random.default_rng(seed)
    recording = soaked(600)
    for number, at in enumerate(sorted(random.uniform(0, 598, random.poisson(per_minute * 10)).tolist())):
        life(recording, "/slow", at, at + 0.01, number)
    assert not certain(recording, Options(), 600)


@given(st.lists(st.tuples(st.text(), st.floats(0, 590), st.booleans()), max_size=30))
def test_hostile_names_are_judged_and_shown_safely(groups: list[tuple[str, float, bool]]) -> None:
    recording = soaked(600)
    for number, (name, at, released) in enumerate(groups):
        life(recording, f"/{name}", at, at + 1, number, at + 2 if released else None)
    for check in judged(recording).values():
        assert check.message.isprintable()
        assert all(blamed.message.isprintable() for blamed in check.blamed)


def test_a_gate_without_checks_has_judged_nothing() -> None:
    assert Gate("x", (), Options()).exit_code() == 3
