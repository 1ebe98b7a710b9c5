"""A remedy in waves: a canary first, nothing after a failure, nothing lost by a crash, no name that becomes a command."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli.main import main
from exhume.errors import Refused, UsageError
from exhume.fleet import waves, waves_command
from exhume.fleet.waves import Journal, Plan, Result, carry_out, plan

NODES = [f"node-{i}" for i in range(12)]


def fixed(node: str) -> Result:
    return Result(node, "fixed", "it ended well")


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 8))
def test_every_node_is_in_one_wave_and_no_wave_is_larger_than_allowed(nodes: int, canary: int, at_most: int) -> None:
    names = [f"n{i}" for i in range(nodes)]
    made = plan("ecs.service", "run {node}", names, canary, at_most)
    assert list(made.nodes) == names
    assert len(made.waves[0]) == min(canary, nodes)
    assert all(0 < len(wave) <= max(canary, at_most) for wave in made.waves)


@pytest.mark.parametrize("name", ["-oProxyCommand=reboot", "a b", "a;reboot", "$(reboot)", "", "a\nb", "../x", "a" * 300])
def test_a_name_that_could_be_more_than_a_name_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        plan("x", "run {node}", [name])


def test_the_first_failure_ends_it_and_the_rest_is_left_alone(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j"))
    touched = []

    def fix(node: str) -> Result:
        touched.append(node)
        return Result(node, "failed", "no") if node == "node-3" else fixed(node)

    assert not carry_out(plan("x", "{node}", NODES, 1, 2), journal, fix)
    assert "node-3" in touched
    assert set(touched) <= set(NODES[:5])
    assert {r.outcome for r in journal.results.values()} == {"fixed", "failed"}


def test_a_canary_is_proven_before_any_other_node_is_touched(tmp_path: Path) -> None:
    order: list[str] = []

    def fix(node: str) -> Result:
        order.append(f"begins {node}")
        time.sleep(0.01)
        order.append(f"ends {node}")
        return fixed(node)

    assert carry_out(plan("x", "{node}", NODES, 1, 4), Journal(str(tmp_path / "j")), fix)
    assert order[:2] == ["begins node-0", "ends node-0"]
    assert len(order) == 2 * len(NODES)


def test_never_more_than_allowed_at_a_time(tmp_path: Path) -> None:
    now, most, lock = 0, 0, threading.Lock()

    def fix(node: str) -> Result:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1
        return fixed(node)

    assert carry_out(plan("x", "{node}", NODES, 1, 3), Journal(str(tmp_path / "j")), fix)
    assert 1 < most <= 3


@pytest.mark.parametrize("torn", range(0, 60, 7))
def test_what_was_done_is_not_done_again_however_it_was_cut_off(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "j"
    whole = plan("x", "{node}", NODES, 1, 2)
    journal = Journal(str(path))
    journal.begin(whole)
    assert not carry_out(whole, journal, lambda node: fixed(node) if node < "node-4" else Result(node, "failed", "no"))
    with open(path, "ab") as file:
        file.truncate(max(0, path.stat().st_size - torn))
    again = Journal(str(path))
    assert again.plan == whole
    known = {node for node, result in again.results.items() if result.outcome == "fixed"}
    touched: list[str] = []

    def fix(node: str) -> Result:
        touched.append(node)
        return fixed(node)

    assert carry_out(whole, again, fix)
    assert not known & set(touched)
    assert known | set(touched) == set(NODES)
    assert {r.outcome for r in Journal(str(path)).results.values()} == {"fixed"}


@pytest.mark.parametrize(
    ("code", "printed", "outcome"),
    [
        (0, b"", "fixed"),
        (0, b'{"schema": "exhume.proof/2", "passed": true}', "fixed"),
        (0, b'{"schema": "exhume.proof/2", "passed": false}', "failed"),
        (0, b'{"schema": "exhume.proof/2", "passed": null}', "not proven"),
        (0, b'text\n{"proof": {"schema": "exhume.proof/2", "passed": true}}\n', "fixed"),
        (0, b'{"schema": "exhume.proof/1", "passed": false}', "failed"),
        (3, b"", "not proven"),
        (2, b"", "failed"),
        (255, b"\xff\xfe", "failed"),
    ],
)
def test_what_a_command_says_is_believed_only_as_far_as_it_goes(code: int, printed: bytes, outcome: str) -> None:
    assert waves_command.judged("n", code, printed, b"the last line").outcome == outcome


@given(st.integers(-5, 300), st.binary(max_size=200), st.binary(max_size=200))
def test_any_output_is_judged(code: int, printed: bytes, said: bytes) -> None:
    result = waves_command.judged("n", code, printed, said)
    assert result.outcome != "fixed" or code == 0
    assert result.said.isprintable()


def test_no_shell_is_between(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    template = f"{sys.executable} -c 'import sys; print(sys.argv[1:])' {{node}} '{{target}}; touch {canary}'"
    command = waves_command.arguments(template, "n1", "$(touch x)`y`")
    assert command[-2:] == ["n1", f"$(touch x)`y`; touch {canary}"]
    assert waves_command.run(command, "n1", 30).outcome == "fixed"
    assert not canary.exists()


@pytest.mark.parametrize("template", ["ssh node", "", "ssh '{node}"])
def test_a_command_without_a_node_is_refused(template: str) -> None:
    with pytest.raises(UsageError):
        waves_command.arguments(template, "n", "t")


def test_a_command_that_does_not_end_or_is_not_there_is_a_failure() -> None:
    assert "did not end" in waves_command.run(["sleep", "30"], "n", 0.2).said
    assert "cannot be run" in waves_command.run(["/no/such/program"], "n", 1).said


def test_the_command_plans_first_then_acts_then_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken, done = tmp_path / "broken", tmp_path / "done"
    done.mkdir()
    broken.touch()
    script = tmp_path / "fix.py"
    script.write_text(
        "import os, sys\n"
        f"if sys.argv[1] == 'c' and os.path.exists({str(broken)!r}): sys.exit('the disk is full')\n"
        f"open(os.path.join({str(done)!r}, sys.argv[1]), 'a').write('x')\n"
    )
    command = ["fleet", "fix", "none.csv", "ecs.service", "--nodes", "a,b,c,d", "--journal", str(tmp_path / "j")]
    command += ["--exec", f"{sys.executable} {script} {{node}}"]
    assert main(command) == 0
    assert "Nothing was done" in capsys.readouterr().out
    assert not any(done.iterdir())
    assert main([*command, "--apply"]) == 2
    said = capsys.readouterr()
    assert "the disk is full" in said.err
    assert "1 nodes were left alone" in said.out
    assert sorted(each.name for each in done.iterdir()) == ["a", "b"]
    assert main([*command, "--apply"]) == 2  # an earlier roll-out is not begun anew by mistake
    broken.unlink()
    assert main([*command, "--apply", "--resume", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (told["passed"], told["left"]) == (True, [])
    assert {each.name: each.read_text() for each in done.iterdir()} == dict.fromkeys("abcd", "x")


def test_a_kill_in_the_middle_leaves_a_journal_to_go_on_from(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = [
        sys.executable,
        "-m",
        "exhume",
        "fleet",
        "fix",
        "none.csv",
        "t",
        "--nodes",
        "a,b",
        "--journal",
        str(tmp_path / "j"),
    ]
    slow = [*command, "--apply", "--exec", f"sh -c 'test {{node}} = a || {{ touch {mark}; sleep 60; }}'"]
    child = subprocess.Popen(slow, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert mark.exists()
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    journal = Journal(str(tmp_path / "j"))
    assert (set(journal.results), journal.begun) == ({"a"}, {"b"})
    assert isinstance(journal.plan, Plan)
    assert waves.carry_out(journal.plan, journal, fixed)
    assert set(Journal(str(tmp_path / "j")).results) == {"a", "b"}
