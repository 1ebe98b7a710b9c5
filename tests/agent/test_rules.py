"""The rules: what promtool says of them, that each fires and stays silent as told, and that they speak of what there is."""

import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.agent import rules_agent, rules_exporters
from exhume.agent.gathering import _RECLAIM
from exhume.agent.metrics import METRICS
from exhume.agent.rules import EDITIONS, Edition, Making, groups, printed
from exhume.agent.rules_fleet import RECORDS
from exhume.cli.main import command_parser, main
from exhume.diagnosis.findings.model import SEVERITIES
from exhume.diagnosis.findings.registry import BY_NAME
from exhume.errors import UsageError
from exhume.image.policy import DRIFTS
from tests.agent import rule_cases_agent, rule_cases_exporters, rule_cases_fleet
from tests.agent.deployed import DEPLOY, EXPORTERS, FILES
from tests.agent.prometheus import free_port, needs, promtool, until
from tests.agent.rule_cases import Case, document
from tests.examples import examples

ALERTS = {"agent": rules_agent.ALERTS, "node-exporter": rules_exporters.ALERTS}
CASES = {"agent": rule_cases_agent.CASES, "node-exporter": rule_cases_exporters.CASES}
NAMES = [(edition, alert.name) for edition, alerts in ALERTS.items() for alert in alerts]
RUNBOOK = DEPLOY.parent / "docs" / "alerts.md"
# What a reset broke stays broken, and a link that went and came back is the nearest sign of it: one is enough.
ONCE = ("ExhumeNicResetExplained", "ExhumeNicResetUnexplained", "NodeLinkBounced")


@pytest.mark.parametrize("name", FILES)
def test_what_is_deployed_is_what_the_code_makes(name: str) -> None:
    assert (DEPLOY / name).read_text() == FILES[name](), "run: .venv/bin/python -m tests.agent.deployed"


@pytest.mark.parametrize("edition", EDITIONS)
@pytest.mark.parametrize(
    "making", [Making(), Making(node="node", job="a/b", docs="https://docs.example.org"), Making(speed=100)]
)
def test_promtool_has_nothing_to_say_against_them(tmp_path: Path, edition: Edition, making: Making) -> None:
    (tmp_path / "rules.yml").write_text(printed(edition, making))
    checked = promtool("check", "rules", "--lint=all", "--lint-fatal", str(tmp_path / "rules.yml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.ci
@pytest.mark.parametrize("edition", EDITIONS)
def test_every_case_goes_as_told(edition: Edition) -> None:
    tested = promtool("test", "rules", str(DEPLOY / "prometheus" / "tests" / f"{edition}.yml"))
    assert tested.returncode == 0, (tested.stdout + tested.stderr).decode()


def _of(edition: str, name: str) -> list[Case]:
    return [case for case in CASES[edition] if name in case.alerts]


# Values of labels as the code has them, for every matcher of every rule.
VALUES = {
    ("exhume_audit_drift", "kind"): DRIFTS,
    ("exhume_findings", "kind"): tuple(BY_NAME),
    ("exhume_findings", "severity"): SEVERITIES,
    ("exhume_memory_cgroups", "state"): ("live", "dying"),
    ("exhume_reclaim_pages_total", "by"): tuple(by for by, _ in _RECLAIM.values()),
    ("exhume_reclaim_pages_total", "action"): tuple(action for _, action in _RECLAIM.values()),
    ("exhume_profiles_pushed_total", "outcome"): ("sent", "failed", "dropped"),
    ("exhume_stalls_total", "what"): ("napi", "softirq", "runqueue"),
    ("exhume_stall_seconds_total", "what"): ("napi", "softirq", "runqueue"),
    ("exhume_agent_lost_total", "what"): ("rows, .*",),
}


def test_every_rule_asks_for_values_that_the_agent_gives() -> None:
    expressions = [alert.expr for alert in rules_agent.ALERTS] + [record.expr for record in RECORDS]
    asked = {
        (name, label, value)
        for expression in expressions
        for name, matchers in re.findall(r"(exhume_\w+)\{([^}]*)\}", expression)
        for label, value in re.findall(r'(\w+)(?:=~|!~|!=|=)"([^"]*)"', matchers)
    }
    assert len(asked) > 8
    for name, label, value in asked:
        assert value in VALUES[name, label], (name, label, value)


@pytest.mark.parametrize(("edition", "name"), NAMES)
def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(edition: str, name: str) -> None:
    mine = _of(edition, name)
    assert any("firing" in states.get(name, "") for case in mine for states in case.states.values())
    assert any(case.silent_until for case in mine)


@pytest.mark.parametrize(("edition", "name"), [each for each in NAMES if each[1] not in ONCE])
def test_every_alert_has_a_case_in_which_half_a_minute_is_not_enough(edition: str, name: str) -> None:
    assert any(case.silent_until and re.search("30 s|restarted$", case.name) for case in _of(edition, name))


def test_every_recording_rule_has_a_case() -> None:
    cases = [case for case in rule_cases_fleet.CASES if any(case.records.values())]
    assert {name for case in cases for name, samples in case.records.items() if samples} == {each.name for each in RECORDS}


def test_a_case_that_is_wrong_is_found_out(tmp_path: Path) -> None:
    """promtool's silence means something: with a threshold that is never reached, the case fails."""
    rules = groups("agent", Making())
    first = rules["groups"][0]["rules"][0]
    first["expr"] = first["expr"].replace(">= 1000", ">= 1000000000")
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules))
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document("rules.yml", rule_cases_agent.BASE, rule_cases_agent.CASES[:1])))
    tested = promtool("test", "rules", str(tmp_path / "test.yml"))
    assert tested.returncode != 0
    assert b"ExhumeZombieMemoryCgroups" in tested.stdout + tested.stderr


def _used(text: str) -> set[str]:
    """Names of metrics in a query or a template: of ours, of exporters, of the kubelet."""
    return set(re.findall(r"\b(?<![:$.])(?:exhume|node|container)_[a-z0-9_]+(?![:\w])", text))


def _texts(edition: Edition) -> list[str]:
    found = []
    for group in groups(edition, Making(node="instance"))["groups"]:
        for rule in group["rules"]:
            found += [rule["expr"], *rule.get("annotations", {}).values()]
    return found


def known(name: str) -> bool:
    return name in METRICS or (
        name.removesuffix("_bucket") in METRICS and METRICS[name.removesuffix("_bucket")].kind == "histogram"
    )


def test_the_agents_rules_use_the_agents_metrics_and_no_other() -> None:
    used = {name for text in _texts("agent") for name in _used(text)}
    assert len(used) > 15
    assert all(known(name) for name in used), {name for name in used if not known(name)}


def test_the_exporters_rules_use_what_a_real_node_exporter_has(tmp_path: Path) -> None:
    needs("prometheus-node-exporter")
    port = free_port()
    flags = ["--collector.cgroups", "--collector.vmstat.fields=^(pgscan|pgsteal)_.*", f"--web.listen-address=127.0.0.1:{port}"]

    def scraped() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=300) as reply:
                return str(reply.read().decode())
        except OSError:
            return ""

    with (tmp_path / "log").open("wb") as log:
        exporter = subprocess.Popen(["prometheus-node-exporter", *flags], stdout=log, stderr=log)
    try:
        text = until(scraped, "node_exporter answers")
    finally:
        exporter.terminate()
        exporter.wait(120)
    there = set(re.findall(r"^(\w+)", text, re.MULTILINE))
    if re.search(r'node_scrape_collector_success\{collector="softnet"\} 0', text):
        pytest.skip("this kernel has no /proc/net/softnet_stat")
    exprs = [rule["expr"] for group in groups("node-exporter", Making())["groups"] for rule in group["rules"]]
    used = {name for expr in exprs for name in _used(expr) if name.startswith("node_")}
    # systemd's are there only where a system manager runs; the name is in the program.
    assert used - there == {"node_systemd_service_restart_total"}
    assert b"service_restart_total" in Path(shutil.which("prometheus-node-exporter") or "").read_bytes()


@pytest.mark.parametrize(("edition", "name"), NAMES)
def test_every_alert_tells_numbers_and_leads_to_its_runbook(edition: Edition, name: str) -> None:
    making = Making(docs="https://docs.example.org/exhume/") if edition == "agent" else EXPORTERS
    every = [rule for group in groups(edition, making)["groups"] for rule in group["rules"]]
    rule: dict[str, Any] = next(rule for rule in every if rule.get("alert") == name)
    told = rule["annotations"]
    anchor = told["runbook_url"].partition("#")[2]
    assert told["runbook_url"].startswith(
        "https://docs.example.org/exhume/alerts.md#" if edition == "agent" else "docs/alerts.md#"
    )
    headings = re.findall(r"^#+ (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert anchor in [heading.lower() for heading in headings]
    assert rule["labels"]["severity"] in ("info", "warning", "critical")
    about_no_node = name == "ExhumeAgentAbsent"
    assert about_no_node or f"$labels.{making.node}" in told["summary"]
    countless = ("ExhumeAgentDown", "ExhumeAgentAbsent", "ExhumeAgentStuck", "NodeExporterDown")
    assert name in countless or "$value" in told["description"] or "| query" in told["description"]


@pytest.mark.parametrize(("edition", "name"), NAMES)
def test_every_alert_says_what_to_do_and_the_commands_that_it_names_exist(edition: Edition, name: str) -> None:
    every = [rule for group in groups(edition, Making())["groups"] for rule in group["rules"]]
    action = next(rule for rule in every if rule.get("alert") == name)["annotations"]["action"]
    assert action.endswith((".", "?", ")."))
    for command in re.findall(r"`(?:sudo )?exhume ([^`]+)`", action):
        command_words = re.sub(r"\{\{[^}]*\}\}", "some.service", command).split()
        command_parser(command_words[0]).parse_args(command_words[1:])
    assert "exhume" in action or name.endswith(("Down", "Absent", "Stuck", "SteppedDown", "Stale", "NotPushed", "Bounced"))


def test_the_runbook_has_no_alert_that_there_is_not() -> None:
    told = set(re.findall(r"^### (\w+)$", RUNBOOK.read_text(), re.MULTILINE))
    assert told == {name for _, name in NAMES}


def test_the_runbook_says_for_how_long_and_how_severe() -> None:
    text = RUNBOOK.read_text()
    for alerts in ALERTS.values():
        for alert in alerts:
            section = text.partition(f"### {alert.name}\n")[2].partition("\n### ")[0]
            assert f"*{alert.severity}, for {Making().duration(alert.for_s)}*" in section, alert.name


def test_durations_are_divided_by_the_speed() -> None:
    fast = Making(speed=100)
    assert fast.fit("x[5m] offset 1h > <7d>") == "x[3s] offset 36s > 6048"
    assert (Making().duration(90), fast.duration(30), fast.duration(0.001)) == ("90s", "300ms", "1ms")
    assert Making(node="node", job="a").fit('up{job="JOB"} and on (NODE) x_NODE') == 'up{job="a"} and on (node) x_NODE'


@pytest.mark.parametrize(
    "given", [{"node": "a-b"}, {"node": ""}, {"node": "1a"}, {"job": 'a"} or up'}, {"exporters": ""}, {"docs": "{{ .x }}"}]
)
def test_what_cannot_be_put_in_is_refused_with_a_sentence(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"no name of a label|cannot be a job|no address"):
        Making(**given)


_LABELS = st.one_of(st.text(), st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]*", fullmatch=True), st.sampled_from(["JOB", "NODE"]))
_JOBS = st.one_of(st.text(), st.from_regex(r"[\w./-]+", fullmatch=True), st.sampled_from(["EXPORTERS", "NODE"]))


@settings(max_examples=examples(50))
@given(_LABELS, _JOBS, st.text())
def test_whatever_is_put_in_there_are_the_same_rules_or_a_sentence(node: str, job: str, docs: str) -> None:
    try:
        making = Making(node=node, job=job, docs=docs)
    except UsageError:
        return
    rules = yaml.safe_load(printed("agent", making))["groups"][0]["rules"]
    assert [rule["alert"] for rule in rules] == [alert.name for alert in rules_agent.ALERTS]
    exprs = {rule["alert"]: rule["expr"] for rule in rules}
    assert exprs["ExhumeAgentDown"] == f'up{{job="{job}"}} == 0'
    assert f"and on ({node}) max_over_time(exhume_memory_cgroup_leak_rate[5m]) > 0\n" in exprs["ExhumeMemoryCgroupLeak"]
    assert rules[0]["annotations"]["runbook_url"].startswith(docs.rstrip("/"))


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["--print-rules"], "prometheus/exhume-agent.yml"),
        (["--print-rules", "--edition", "node-exporter"], "prometheus/exhume-node-exporter.yml"),
        (["--print-dashboard", "node"], "grafana/exhume-node.json"),
        (["--print-dashboard", "fleet"], "grafana/exhume-fleet.json"),
    ],
)
def test_the_command_prints_what_is_deployed(words: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", *words]) == 0
    assert capsys.readouterr().out == (DEPLOY / name).read_text()


@pytest.mark.parametrize(
    "words",
    [
        ["--print-rules", "--print-dashboard", "node"],
        ["--edition", "agent"],
        ["--print-dashboard", "fleet", "--edition", "agent"],
        ["--job", "a"],
        ["--print-rules", "--node-label", "a b"],
    ],
)
def test_options_that_do_not_go_together_are_refused_with_a_sentence(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agent", *words]) == 64
    said = capsys.readouterr()
    assert said.out == ""
    assert re.match(r"exhume: .*(goes with|one at a time|no name of a label)", said.err)


def test_the_command_puts_in_what_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--print-rules", "--node-label", "host", "--job", "exhume-agents", "--docs-url", "https://wiki.example.org/x/"]
    assert main(["agent", *words]) == 0
    rules = {rule["alert"]: rule for rule in yaml.safe_load(capsys.readouterr().out)["groups"][0]["rules"]}
    assert rules["ExhumeAgentDown"]["expr"] == 'up{job="exhume-agents"} == 0'
    assert "$labels.host" in rules["ExhumeAgentDown"]["annotations"]["summary"]
    assert rules["ExhumeAgentDown"]["annotations"]["runbook_url"] == "https://wiki.example.org/x/alerts.md#exhumeagentdown"
