"""What reports point at first: of each kind the program, the core, the stack and the line of the log."""

from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.defunct_processes import DefunctProcesses
from exhume.diagnosis.findings.oom import Oom
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.unreaped import Parent
from exhume.render.sentences import who
from tests.diagnosis.findings.facts import finding


def test_a_process_without_a_name_is_called_by_its_pid() -> None:
    assert str(Process("", 7)) == "PID 7"
    assert str(Process("", 7, 2)) == "PID 7 and 2 more"
    assert str(Process("runc", 7, 2)) == "runc [7 and 2 more]"
    assert str(Process("runc")) == "runc"


def test_a_kill_points_at_its_victim_and_its_line() -> None:
    oom = finding(Oom, victim_comm="java", victim_cgroup="/kubepods/pod1/c", last_line="Killed process 7 (java)")
    assert who([oom]) == "java in /kubepods/pod1/c"
    assert oom.facts.focus_line == "Killed process 7 (java)"
    assert finding(Oom, victim_cgroup="/kubepods/pod1/c").facts.focus_offender is None


def test_a_loop_points_at_what_is_started() -> None:
    loop = finding(CrashLoop, process=Process("agent"), process_source="cgroup tracepoints", cgroup="/system.slice/a.service")
    assert who([loop]) == "agent"
    assert finding(CrashLoop).facts.focus_offender is None


def test_defunct_processes_point_at_their_parent() -> None:
    parent = Parent(7, "shim", "/system.slice/a.service")
    defunct = finding(DefunctProcesses, parent=parent, parent_process=parent.process, parent_unit="a.service")
    assert who([defunct]) == "shim [7]"
    assert defunct.facts.focus_offender is not None
    assert defunct.facts.focus_offender.name == "a.service"
    assert finding(DefunctProcesses, parent=Parent(1, "systemd", "/init.scope")).facts.focus_offender is None
