"""exhume diagnose on recordings that were really written: what people see, and which incident of several."""

import gzip
import json
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.cli import diagnose, record
from exhume.cli.diagnose_text import MOST_LINES, render
from exhume.cli.main import command_parser, main
from exhume.cli.report_text import RIVALS, safe
from exhume.cli.report_text import render as check_text
from exhume.cli.terminal import Style
from exhume.diagnosis.findings.kind import Culprit
from exhume.diagnosis.findings.registry import CAUSES, TENANTS
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.judge import judge
from exhume.recording.folder import Folder
from exhume.recording.recording import labels
from exhume.render import sentences
from exhume.render.scene import Scene
from tests.diagnosis.findings import made
from tests.render.test_report_html import seen
from tests.render.told import BEGIN, REAL, SECOND, Names, told, write
from tests.trees import Moving, incident

CAPTURE = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("one") / "recording", told())


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three times the same, minutes apart."""
    made = told(560, held=((60.0, 66.6), (260.0, 266.6), (460.0, 466.6)), cpus=8, core=3, sampled=1)
    return write(tmp_path_factory.mktemp("three") / "recording", made)


@pytest.fixture(scope="module")
def scene() -> Scene:
    return seen(told())


def diagnosed(capsys: CAPTURE, *argv: str, code: int = 2) -> str:
    assert main(["diagnose", *argv]) == code
    return capsys.readouterr().out


def test_the_report_fits_two_screens_and_tells_all_of_it(one: str, capsys: CAPTURE) -> None:
    lines = diagnosed(capsys, one).splitlines()
    assert len(lines) <= MOST_LINES
    assert all(len(line) <= 100 for line in lines if not line.lstrip().startswith(("exhume ", "Look")))
    assert "\x1b" not in "".join(lines)
    text = " ".join(" ".join(lines).split())
    assert text.startswith("CRITICAL ")
    for wanted in (
        *("confidence ", "2025-10-09 08:54:20.000 to 08:54:27.600 UTC", "ip-10-1-7-7 · Linux 5.4.0-1128-aws · 96 cores"),
        *("ecs.service leaks memory cgroups", "└▶ 68,440 zombie memory cgroups", "└▶ core 39 at 100% system", "6,600 ms"),
        *("└▶ eth0 queue 5 not polled", "└▶ eth0 reset by ena", "Who kubelet [4242] in /system.slice/kubelet.service"),
        *("Stack mem_cgroup_nr_lru_pages <", "Log ena 0000:20:03.0 eth0: TX q 5 is paused", "Ruled out cpu-throttled: 0"),
        *("Do now ", "Seen with 9 of 10 sources of data. Off: napi (the kernel has no BTF)"),
    ):
        assert wanted in text, wanted
    chain = [line for line in lines if "└▶" in line]
    assert [line.index("└") for line in chain] == sorted({line.index("└") for line in chain})  # each one further in


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 140])
def test_it_keeps_to_the_width_of_the_terminal(scene: Scene, columns: int) -> None:
    text = render(scene, Style(sys.stdout, False), columns)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("exhume ", "Look"))]
    assert max(map(len, lines)) <= columns
    assert "core 39" in text
    painted = render(scene, Style(sys.stdout, True), columns)
    assert "\x1b[31m" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == text


@pytest.mark.parametrize("columns", [40, 60, 100])
def test_what_to_do_is_never_cut(scene: Scene, columns: int) -> None:
    lines = render(scene, Style(sys.stdout, False), columns).splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("  Do now"))
    end = next(i for i, line in enumerate(lines) if line.startswith(("  Switch on", "  Seen with")))
    text = "".join("".join(line[13:].split()) for line in lines[begin:end])
    steps = [*sentences.to_do(scene.verdict), *(advice.text for advice in scene.verdict.advice)]
    assert len(steps) > 3
    for step in steps:
        assert "".join(step.split()) in text, step


def test_commands_for_another_node_say_so(scene: Scene) -> None:
    assert "\n  Do now     on ip-10-1-7-7:\n" in render(replace(scene, elsewhere=True), Style(sys.stdout, False), 100)
    assert "on ip-10-1-7-7" not in render(scene, Style(sys.stdout, False), 100)


def test_every_culprit_is_in_the_terminal_where_the_sentence_has_not_all(scene: Scene) -> None:
    assert "Culprit" not in render(scene, Style(sys.stdout, False), 100)
    both = (Culprit("ecs.service", 0.9), Culprit("other.service", 0.1))
    report = replace(scene.report, verdict=replace(scene.verdict, culprits=both))
    text = render(replace(scene, report=report), Style(sys.stdout, False), 100)
    assert "  Culprits   ecs.service (90%), other.service (10%)\n" in text


def test_commands_of_a_page_can_be_typed_in_any_time_zone(one: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "r.md"
    assert main(["diagnose", one, "--quiet", "--markdown", str(page)]) == 2
    typed = [shlex.split(found) for found in re.findall(rf"exhume (\w+ {one}.*)$", page.read_text(), re.MULTILINE)]
    assert [words[3] for words in typed] == ["2025-10-09T08:54:20.000Z", "2025-10-09T08:54:00.000Z"]
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    assert [main(words) for words in typed] == [0, 0]


def test_the_commands_it_names_exist_and_show_the_very_window(one: str, capsys: CAPTURE) -> None:
    text = diagnosed(capsys, one)
    typed = [shlex.split(found) for found in re.findall(rf"exhume (\w+ {one}.*)$", text, re.MULTILINE)]
    assert [words[0] for words in typed] == ["flame", "heat"]
    for words in typed:
        command_parser(words[0]).parse_args(words[1:])
    assert typed[0][2:] == ["--at", "08:54:20.000", "--for", "8s", "--cpu", "39"]
    assert main(typed[0]) == 0
    assert "mem_cgroup_nr_lru_pages" in capsys.readouterr().out


def test_the_timeline_of_the_terminal_has_its_lanes(one: str, capsys: CAPTURE) -> None:
    lines = diagnosed(capsys, one).splitlines()
    lanes = {
        line[2:16].strip(): line for line in lines if re.match(r"  (core \d+|zombies|eth0 late|restarts|kernel log) ", line)
    }
    assert set(lanes) == {"core 39", "core 0", "zombies", "eth0 late", "restarts", "kernel log"}
    assert lanes["core 39"].index("█") <= lanes["eth0 late"].index("━") + 1
    assert lanes["eth0 late"].rindex("━") <= lanes["kernel log"].index("▼")
    assert any(line.split()[0] == "08:54:00" for line in lines if line.strip())


def test_verbose_has_every_finding_and_evidence_every_number(one: str, capsys: CAPTURE) -> None:
    verbose = diagnosed(capsys, one, "-v")
    assert "would be disproved by: " in verbose
    assert "Not judged" in verbose
    assert " …" not in verbose
    assert re.search(r"· restarts: 6,853\s+\[systemd NRestarts\]", diagnosed(capsys, one, "--evidence"))


def test_as_json_it_is_a_report(one: str, capsys: CAPTURE) -> None:
    report = json.loads(diagnosed(capsys, one, "--json"))
    assert report["schema"] == "exhume.report/2"
    assert report["health"] == "critical"
    assert report["node"]["cpus"] == 96
    (incident,) = report["incidents"]
    assert incident["start"] == "2025-10-09T08:54:20.000Z"
    known = {finding["id"] for finding in report["findings"]}
    assert {link["finding"] for link in report["verdict"]["chain"]} <= known


def test_a_recording_of_several_says_when_else(three: str, capsys: CAPTURE) -> None:
    text = diagnosed(capsys, three)
    assert "2025-10-09 09:01:00.000 to 09:01:07.600" in text  # as bad as the others, and the last
    assert re.search(r"Again +2 more like this: 08:54:20, 08:57:40", text)


@pytest.mark.parametrize(
    ("asked", "begin"),
    [
        (["--last"], "09:01:00.000"),
        (["--at", "08:57:45"], "08:57:40.000"),
        (["--at", "08:58:30"], "08:57:40.000"),
        (["--at", "+60s"], "08:54:20.000"),
        (["--from", "08:54:00", "--to", "08:56:00"], "08:54:20.000"),
        (["--from", "+0s", "--for", "2m"], "08:54:20.000"),
    ],
)
def test_which_incident_can_be_said(three: str, capsys: CAPTURE, asked: list[str], begin: str) -> None:
    assert f"  2025-10-09 {begin} to " in diagnosed(capsys, three, *asked)
    report = json.loads(diagnosed(capsys, three, *asked, "--json"))
    assert {link["finding"] for link in report["verdict"]["chain"]} <= {finding["id"] for finding in report["findings"]}


def test_a_time_that_was_not_recorded_is_refused_with_what_was(one: str, capsys: CAPTURE) -> None:
    for text in ("03:00", "-2m", "08:53:00", "08:56"):
        assert main(["diagnose", one, "--at", text]) == 3
        told_why = capsys.readouterr().err
        assert "is not in the recording, which covers 2025-10-09 08:53:20.000 to 2025-10-09 08:55:00.001 UTC" in told_why


def test_a_window_in_which_nothing_was_recorded_is_told(tmp_path: Path, capsys: CAPTURE) -> None:
    place = write(tmp_path / "recording", told(20, held=(), cpus=2, core=1))
    write(tmp_path / "recording", told(20, held=(), cpus=2, core=1, begin=BEGIN + 3600 * SECOND))
    assert main(["diagnose", place, "--from", "+10m", "--to", "+20m"]) == 3
    assert "nothing was recorded in 2025-10-09 09:03:20.000 to 2025-10-09 09:13:20.000 UTC" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["--at", "12:00", "--last"], "choose one"),
        (["--last", "--from", "12:00"], "choose one"),
        (["--last", "--for", "3s"], "length of a window"),
        (["--html", "-", "--json"], "only one report"),
        (["--html", "-", "--markdown", "-"], "only one report"),
        (["--quiet"], "nothing to be seen"),
        (["--html", "-", "--baseline", "+9s..+3s"], "ends before it begins"),
    ],
)
def test_what_cannot_be_meant_is_said(one: str, capsys: CAPTURE, asked: list[str], why: str) -> None:
    assert main(["diagnose", one, *asked]) == 64
    assert why in capsys.readouterr().err


def test_a_file_is_written_beside_the_report_and_alone_if_quiet(one: str, capsys: CAPTURE, tmp_path: Path) -> None:
    page, text = tmp_path / "r.html", tmp_path / "r.md"
    assert diagnosed(capsys, one, "--html", str(page)).startswith("CRITICAL")
    assert diagnosed(capsys, one, "--markdown", str(text), "--quiet") == ""
    assert page.read_text().startswith("<!doctype html>")
    assert text.read_text().startswith("# ip-10-1-7-7: ")
    assert main(["diagnose", one, "--html", str(tmp_path / "no" / "r.html")]) == 3
    assert "could not be written: No such file or directory" in capsys.readouterr().err


def test_a_report_on_stdout_is_alone_there(one: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["diagnose", one, "--html", "-"]) == 2
    page = capfdbinary.readouterr().out.decode()
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")


def test_the_flame_graph_is_compared_with_what_was_said(one: str, tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    for baseline, expected in (
        ("auto", "against a quiet time: 08:54:12.400 to 08:54:20.000"),
        ("+0s..+5s", "against a quiet time: 08:53:20.000 to 08:53:25.000"),
        ("none", "There is no quiet time"),
    ):
        assert main(["diagnose", one, "--quiet", "--html", str(page), "--baseline", baseline]) == 2
        assert expected in page.read_text()
    assert main(["diagnose", one, "--quiet", "--html", str(page), "--baseline", "+3h..+4h"]) == 3


def test_a_quiet_node_is_one_line(tmp_path: Path, capsys: CAPTURE) -> None:
    made = told(seconds=20, held=(), cpus=4, core=1)
    for table in ("memcg", "memcg_walk", "units"):
        made.tables.pop(table)
    text = diagnosed(capsys, write(tmp_path / "recording", made), code=0)
    assert len(text.splitlines()) <= 2
    assert text.startswith("HEALTHY  No sign of starvation")


def test_what_tenants_suffer_from_is_told_of_a_healthy_node(tmp_path: Path, capsys: CAPTURE) -> None:
    held_back = made.recording(cpus=2, on=("cpu", "throttling"))
    made.cores(held_back, 3.0, {})
    group = labels(cgroup="/kubepods/pod1/slow")
    for second in range(4):
        for name, count in (("cpu_periods", 10 * second), ("cpu_throttled_periods", 9 * second), ("cpu_quota_us", 20_000)):
            held_back.count(second * SECOND, name, count, group)
    place = write(tmp_path / "recording", held_back)
    text = diagnosed(capsys, place, code=0)
    assert text.startswith("HEALTHY  No sign of starvation")
    assert re.search(r"^  Also       cpu-throttled: /kubepods/pod1/slow", text, re.MULTILINE)
    report = judge(held_back, Thresholds())
    assert "  Also       cpu-throttled: /kubepods/pod1/slow" in check_text(report, Style(sys.stdout, False), 100)
    for option in ("--html", "--markdown"):
        assert "cpu-throttled: /kubepods/pod1/slow" in diagnosed(capsys, place, option, "-", code=0).partition("##")[0]


def test_hostile_names_do_not_reach_the_terminal(tmp_path: Path, capsys: CAPTURE) -> None:
    names = Names("\x1b[2Jh", "\x1b]0;c\x07", "/s/\x1b[31mg", "u\x00\x1b[5m.service", "e\r0", "s\x9b", "m\u202e\x1b[31m")
    place = write(tmp_path / "recording", told(70, cpus=41, names=names, sampled=1))
    for more in ([], ["-v"], ["--evidence"], ["--json"]):
        text = diagnosed(capsys, place, *more)
        assert not set(text) - {"\n"} & {*map(chr, range(32)), "\x7f", "\x9b", "\u202e"}
        assert len(text.splitlines()) > 20


def test_a_log_alone_is_judged_and_told_in_its_own_seconds(tmp_path: Path, capsys: CAPTURE) -> None:
    log = tmp_path / "dmesg.txt"
    lines = ("TX q 5 is paused for too long (threshold 5000000). Time since last napi 6596000 usec. napi scheduled: 1", "x")
    log.write_text("".join(f"[ {1000 + i}.000000] ena 0000:20:03.0 eth0: {line}\n" for i, line in enumerate(lines)))
    text = diagnosed(capsys, str(log))
    assert "  1000.000 to " in text
    assert "eth0 queue 5 not polled" in text
    assert "exhume flame" not in text
    assert "node not known · cgroups not known" in text
    assert "Seen with  kernel log alone, which has nothing about what the cores did" in text
    verbose = diagnosed(capsys, str(log), "--markdown", "-")
    assert "(at 1000.000)" in verbose
    assert " ago" not in verbose


def test_a_log_without_a_line_that_is_known_is_one_sentence(tmp_path: Path, capsys: CAPTURE) -> None:
    log = tmp_path / "quiet.txt"
    log.write_text("[   12.345678] hello\n[   13.000000] world\n")
    packed = tmp_path / "quiet.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    for path in (log, packed):
        assert main(["diagnose", str(path)]) == 3
        assert capsys.readouterr().err == f"exhume: {path}: 2 lines read, none that exhume knows: nothing to judge\n"


def test_what_is_nearly_a_recording_is_opened_or_told(one: str, tmp_path: Path, capsys: CAPTURE) -> None:
    bundle = tmp_path / "b.tar.gz"
    assert main(["bundle", one, "-o", str(bundle), "--no-samples"]) == 0
    capsys.readouterr()
    for command in ("diagnose", "flame", "info"):
        assert main([command, str(bundle)]) == 3
        assert f"{bundle} is a bundle: unpack it (tar xzf {bundle}) and name exhume-bundle-" in capsys.readouterr().err
    (tmp_path / "out").mkdir()
    subprocess.run(["tar", "xzf", bundle, "-C", tmp_path / "out"], check=True)
    (top,) = (tmp_path / "out").iterdir()
    assert f"exhume latency {top}" not in diagnosed(capsys, str(top))
    (chapter,) = (path for path in Path(one).iterdir() if path.is_dir())
    for part in (chapter, next(path for path in chapter.iterdir() if path.is_dir())):
        assert main(["diagnose", str(part)]) == 3
        assert f"{part} is a part of the recording {one}: name that" in capsys.readouterr().err
    (tmp_path / "x.gz").write_bytes(bundle.read_bytes()[:40])
    assert main(["diagnose", str(tmp_path / "x.gz")]) == 3
    assert "is a bundle" not in capsys.readouterr().err


def test_without_a_name_it_is_what_the_recorder_of_this_node_has(
    tmp_path: Path, capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write(tmp_path / "recording", told(70, cpus=41, sampled=1))
    monkeypatch.setattr(record, "DEFAULT", place)
    monkeypatch.setattr("time.time_ns", lambda: REAL + 600 * SECOND)
    assert "ip-10-1-7-7" in diagnosed(capsys, "--last")
    monkeypatch.setattr("time.time_ns", lambda: REAL + 2 * 3600 * SECOND)
    assert main(["diagnose", "--last"]) == 64
    assert f"no recording of the last hour in {place}" in capsys.readouterr().err


def test_a_node_without_a_recorder_is_recorded_now(tmp_path: Path, capsys: CAPTURE, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "DEFAULT", str(tmp_path / "nothing"))
    with Moving(incident(tmp_path / "host"), cpus=96, saturated=39, process=4242):
        report = json.loads(diagnosed(capsys, "--host", str(tmp_path / "host"), "--for", "2s", "--json"))
    assert report["node"]["cpus"] == 96
    # The kernel's log tells of what was before, too.
    assert {"zombie-memcgs", "napi-starved", "nic-reset"} <= {finding["kind"] for finding in report["findings"]}
    assert main(["diagnose", "--for", "11m"]) == 64
    assert main(["diagnose", "--host", str(tmp_path / "no"), "--for", "1s"]) == 3


def test_rivals_are_kinds_that_detectors_have() -> None:
    assert set(RIVALS) <= {*CAUSES, *TENANTS}


def test_stacks_without_times_carry_no_verdict(tmp_path: Path, capsys: CAPTURE) -> None:
    folded = tmp_path / "x.folded"
    folded.write_text("a;b;asm_exc_page_fault_[k];handle_mm_fault_[k] 400\nb;c 100\n")
    text = diagnosed(capsys, str(folded), code=3)
    assert text.startswith("UNKNOWN  Nothing can be said of when and for how long: the times of these stacks are made up;")
    assert "exhume flame" in " ".join(text.split())
    assert "core 0 " not in text


def test_too_little_is_told_with_what_there_was(tmp_path: Path, capsys: CAPTURE) -> None:
    script = tmp_path / "x.txt"
    sample = "sleeper  {pid}/{pid} [00{core}] {at:.6f}: 1 cpu-clock: \n\tffffffff81000000 do_idle ([kernel.kallsyms])\n\n"
    script.write_text("".join(sample.format(pid=7, core=i % 2, at=100 + i / 1000) for i in range(10)))
    text = " ".join(diagnosed(capsys, str(script), code=3).split())
    assert "UNKNOWN No sign of starvation in 10 stack samples, which is too little to judge the node: too few" in text


def test_too_long_a_list_loses_its_end_and_not_its_middle() -> None:
    items = [f"python [{i}] of {'n' * 40}" for i in range(20)]
    text = safe("most by " + ", ".join(items))
    assert text == "most by " + ", ".join(items[: text.count("python")]) + " …"
    assert "…" in safe("n" * 500)[200:300]


@pytest.mark.parametrize(("alone", "code"), [("enable_on_exec = 1", 3), ("inherit = 1", 1)])
def test_a_machine_is_not_judged_by_the_samples_of_a_command(tmp_path: Path, capsys: CAPTURE, alone: str, code: int) -> None:
    script = tmp_path / "x.txt"
    header = (
        f"# ========\n# nrcpus online : 2\n# event : name = cpu-clock, , sample_freq = 99, freq = 1, {alone}\n# ========\n#\n"
    )
    sample = "job  {pid}/{pid} [00{core}] {at:.6f}: 1 cpu-clock: \n\t     55d0c0de work (/usr/bin/job)\n\n"
    samples = (sample.format(pid=7 + i % 2, core=i % 2, at=100 + i / 198) for i in range(990))
    script.write_text(header + "".join(samples))
    text = " ".join(diagnosed(capsys, str(script), code=code).split())
    told = "No sign of starvation in 990 stack samples, which is too little to judge the node: the samples are of one command"
    assert (told in text) == (code == 3)
    assert ("the machine is full; most by job [8 and 1 more] (10," in text) == (code == 1)


def test_a_second_of_which_a_part_of_a_microsecond_is_missing_is_not_the_one_before(one: str) -> None:
    folder = Folder(one)
    whole = BEGIN - folder.real_ns(BEGIN) % SECOND + 2 * SECOND
    clock = diagnose._clock(folder, BEGIN)
    assert (clock.short(whole - 200), clock.short(whole)) == (clock.exact(whole)[:-4],) * 2
    assert clock.short(whole - 2_000_000) != clock.short(whole)
