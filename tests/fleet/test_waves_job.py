"""What a Job that fixes a node asks for, and how its end is read, whatever it is."""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli.main import main
from exhume.cluster.client import Client
from exhume.cluster.replies import ApiError
from exhume.errors import ExhumeError, UsageError
from exhume.fleet import waves_job_pod, waves_job_run
from exhume.fleet.waves_job import Asked, manifest, name
from exhume.fleet.waves_job_run import Clock, fix

ASKED = Asked("registry.test/team/exhume:1.2@sha256:" + "a" * 64, "ecs.service")
WORDS = [
    *("status", "conditions", "type", "reason", "message", "containerStatuses", "state", "terminated", "waiting", "exitCode"),
    *("phase", "Complete", "Failed", "True"),
]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


def test_the_job_is_pinned_bounded_and_holds_no_credentials() -> None:
    made = manifest(ASKED, "node-1")
    spec, pod = made["spec"], made["spec"]["template"]["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (0, 1800, 3600)
    assert (pod["nodeName"], pod["hostPID"], pod["automountServiceAccountToken"]) == ("node-1", True, False)
    assert pod["tolerations"] == [{"operator": "Exists"}]
    container = pod["containers"][0]
    assert container["resources"]["limits"]["memory"] == "768Mi"
    assert "cpu" not in container["resources"]["limits"]
    assert container["command"] == [
        *("exhume", "fix", "--host", "/host", "--apply", "--yes", "--verify", "--verify-for", "10m", "--", "ecs.service")
    ]
    assert (
        "--yes-irreversible"
        in manifest(replace(ASKED, irreversible=True), "n")["spec"]["template"]["spec"]["containers"][0]["command"]
    )


def test_the_name_is_the_same_for_the_same_work_and_no_other() -> None:
    others = [replace(ASKED, target="x.service"), replace(ASKED, namespace="other"), replace(ASKED, irreversible=True)]
    assert name(ASKED, "a") == name(replace(ASKED, timeout_s=5.0), "a")
    assert len({name(one, "a") for one in (ASKED, *others)} | {name(ASKED, "b")}) == 5


@pytest.mark.parametrize("image", ["", "-v", "a b", "a;b", "a\n", "\x1b[31m", "a" * 2000])
def test_what_is_no_image_is_refused(image: str) -> None:
    with pytest.raises(UsageError, match="is not the name of an image"):
        Asked(image, "t")


@pytest.mark.parametrize("namespace", ["", "../x", "A", "a/b", "-a"])
def test_what_is_no_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(UsageError):
        Asked("i", "t", namespace)


@given(ANYTHING, ANYTHING, st.binary(max_size=300))
def test_whatever_an_api_server_says_nothing_but_a_container_that_ended_with_0_is_fixed(job: Any, pod: Any, log: bytes) -> None:
    end = waves_job_pod.ended(job if isinstance(job, dict) else {})
    document = pod if isinstance(pod, dict) else {}
    assert isinstance(waves_job_pod.begun(document), bool)
    assert waves_job_pod.stuck(document).isprintable()
    assert waves_job_pod.waits_for(document).isprintable()
    for each in (end, waves_job_pod.Ended(True), waves_job_pod.Ended(False, "BackoffLimitExceeded", "\ud800\x1b")):
        if each is not None:
            told = waves_job_pod.result("n", each, document, log, 60)
            assert told.said.isprintable()
            codes = [text for text in _codes(document) if text == 0]
            assert told.outcome != "fixed" or (each.complete and codes)


def _codes(pod: dict[str, Any]) -> list[object]:
    status = pod.get("status")
    containers = status.get("containerStatuses") if isinstance(status, dict) else None
    found = [one.get("state") for one in containers if isinstance(one, dict)] if isinstance(containers, list) else []
    ends = [one.get("terminated") for one in found if isinstance(one, dict)]
    return [one.get("exitCode") for one in ends if isinstance(one, dict)]


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        ({"status": {"reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}}, "OutOfcpu: Node didn't"),
        ({"status": {"reason": "Evicted", "message": "The node was low on memory"}}, "Evicted: The node was low"),
        ({"status": {"containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]}}, "768 MiB"),
        ({}, "BackoffLimitExceeded"),
    ],
)
def test_what_the_node_did_to_the_pod_is_told(pod: dict[str, Any], said: str) -> None:
    told = waves_job_pod.result("n", waves_job_pod.Ended(False, "BackoffLimitExceeded"), pod, b"", 60)
    assert told.outcome == "failed"
    assert said in told.said


class Moody(Client):
    """An API server that is away, or too busy, for a while."""

    def __init__(self, troubles: list[Exception]) -> None:
        self.troubles = troubles

    def get(self, path: str, **query: str) -> dict[str, Any]:
        if self.troubles:
            raise self.troubles.pop(0)
        return {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}

    def close(self) -> None:
        pass


def test_an_api_server_that_is_away_for_a_while_is_waited_for_and_one_that_refuses_is_not() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    clock = Clock(lambda: now[0], sleep)
    away = [ExhumeError("the API server cannot be reached"), ApiError("too busy", 429, retry_after_s=30.0)]
    assert "not ready" in fix(lambda: Moody(list(away)), ASKED, "n", clock).said
    assert now[0] >= 30 + waves_job_run.POLL_S
    assert fix(lambda: Moody([ApiError("it may not", 403)]), ASKED, "n", clock).said == "it may not"
    for_ever: list[Exception] = [ExhumeError("it cannot be reached")] * 1000
    assert fix(lambda: Moody(for_ever), ASKED, "n", clock).said == "it cannot be reached"


def test_the_manifests_are_printed_and_nothing_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fleet", "fix", "none.csv", "ecs.service", "--nodes", "a,b", "--image", "r.test/exhume:1", "--print-manifest"]
    assert main(command) == 0
    made = list(yaml.safe_load_all(capsys.readouterr().out))
    asked = Asked("r.test/exhume:1", "ecs.service")
    assert made == json.loads(json.dumps([manifest(asked, "a"), manifest(asked, "b")]))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--exec", "x {node}", "--print-manifest"], "--print-manifest goes with --image"),
        (["--exec", "x {node}", "--yes-irreversible"], "--yes-irreversible goes with --image"),
        (["--exec", "x {node}", "--image", "i"], "not allowed with"),
        (["--image", "i", "--timeout", "10m"], "--timeout must be longer than --verify-for"),
        ([], "one of the arguments --exec --image is required"),
    ],
)
def test_options_that_do_not_go_together_are_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code: object = main(["fleet", "fix", "none.csv", "t", "--nodes", "a", *words])
    except SystemExit as left:
        code = left.code
    assert code == 64
    assert said in capsys.readouterr().err
