"""Jobs from Ray's dashboard and from logs: replies as Ray 2.60 gives them, servers that misbehave, and anything at all."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import ExhumeError, UsageError
from exhume.fleet import jobs_sources, ray_jobs
from exhume.fleet.model import Job
from exhume.fleet.ray_jobs import Dashboard, busiest, read
from exhume.fleet.ray_jobs_log import died, from_log

ONE, TWO, THREE = "1f" * 28, "2e" * 28, "3d" * 28
LOG = f"""\
2026-11-16 15:11:49,265\tINFO job_manager.py:581 -- Runtime env is setting up.
\x1b[33m(raylet)\x1b[0m A worker died or was killed while executing a task by an unexpected system error. Lease ID: 00 \
Worker ID: c77c Node ID: {TWO} Worker IP address: 10.0.0.2 Worker port: 40903 Worker PID: 11063
Traceback (most recent call last):
  File "job.py", line 8, in <module>
    ray.get(A.remote().die.remote())
ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.
\tclass_name: A
\tip: 10.0.0.3
2026-11-16 15:13:00,500\tINFO done
"""


def job(name: str, status: str, **more: Any) -> dict[str, Any]:
    usual = {"type": "SUBMISSION", "job_id": None, "message": "", "error_type": None, "driver_node_id": None}
    times = {"start_time": 1794841909000, "end_time": 1794841921500}
    return {**usual, **times, "submission_id": name, "status": status, **more}


def listed(*some: dict[str, Any]) -> dict[str, Any]:
    return {"result": True, "msg": "", "data": {"result": {"total": len(some), "result": list(some)}}}


def actor(node: str, gpus: float, job_id: str = "03000000") -> dict[str, Any]:
    return {"actor_id": "a", "class_name": "A", "job_id": job_id, "node_id": node, "required_resources": {"GPU": gpus}}


def task(node: str, gpus: float, start: int | None, end: int | None, kind: str = "NORMAL_TASK") -> dict[str, Any]:
    times = {"start_time_ms": start, "end_time_ms": end}
    return {"task_id": "t", "job_id": "03000000", "node_id": node, "type": kind, "required_resources": {"GPU": gpus}, **times}


REPLIES: dict[str, Any] = {
    "/api/v0/nodes": listed(
        {"node_id": ONE, "node_ip": "10.0.0.1", "node_name": "10.0.0.1", "resources_total": {"GPU": 8.0}},
        {"node_id": TWO, "node_ip": "10.0.0.2", "node_name": "10.0.0.2", "resources_total": {"GPU": 8.0}},
        {"node_id": THREE, "node_ip": "10.0.0.3", "node_name": "worker-3", "resources_total": {}},
    ),
    "/nodes": {"data": {"summary": [{"hostname": "host-1", "raylet": {"nodeId": ONE}}]}},
}


def asked(jobs: list[dict[str, Any]], **more: Any) -> tuple[list[Job], list[str]]:
    replies = {**REPLIES, "/api/jobs/": jobs, **more.get("replies", {})}
    return read(lambda path: replies.get(path.partition("?")[0]))


def test_a_job_is_on_every_node_where_something_of_it_ran() -> None:
    replies = {
        "/api/v0/actors": listed(
            actor(TWO, 4), actor(TWO, 4), actor(THREE, 1, "other"), {**actor(ONE, 8), "class_name": "JobSupervisor"}
        ),
        "/api/v0/tasks": listed(task(THREE, 0, 1, 2)),
    }
    failed = job("train", "FAILED", job_id="03000000", driver_node_id=ONE, message="ray.exceptions.ActorDiedError: It died.\n")
    found, troubles = asked([failed], replies=replies)
    times = (1794841909.0, 1794841921.5)
    assert found == [
        Job("train", "10.0.0.2", *times, "failed", 8.0, "ActorDiedError: It died."),
        Job("train", "worker-3", *times, "failed", 0.0, "ActorDiedError: It died."),
        Job("train", "host-1", *times, "failed", 0.0, "ActorDiedError: It died."),
    ]
    assert troubles == []


def test_more_tasks_than_ray_tells_of_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_jobs, "_LIMIT", 2)
    replies = {"/api/v0/tasks": listed(task(ONE, 0, 1, 2), task(TWO, 0, 1, 2))}
    found, troubles = asked([job("many", "SUCCEEDED", job_id="03000000")], replies=replies)
    assert [row.node for row in found] == ["host-1", "10.0.0.2"]
    assert troubles == ["of 1 jobs Ray tells no more than 2 tasks: nodes may be missing"]


def test_outcomes_are_those_of_submitted_jobs() -> None:
    found, troubles = asked(
        [
            job("good", "SUCCEEDED", driver_node_id=ONE),
            job("halted", "STOPPED", driver_node_id=ONE),
            job("runs", "RUNNING", driver_node_id=ONE, end_time=0),
            job("", "SUCCEEDED", type="DRIVER", job_id="01000000", driver_node_id=ONE),
            job("nowhere", "FAILED"),
        ]
    )
    assert [(row.job, row.outcome, row.ended_s) for row in found] == [
        ("good", "succeeded", 1794841921.5),
        ("halted", "stopped", 1794841921.5),
        ("runs", "", None),
    ]
    assert troubles == [
        "1 jobs connected to Ray and were not submitted to it: how they ended is not known",
        "of 1 jobs Ray has forgotten where they ran: left out",
    ]


def test_what_the_job_table_does_not_say_is_looked_up_in_the_log() -> None:
    failed = job(
        "a/b?c", "FAILED", message="Job entrypoint command failed with exit code 1", error_type="JOB_ENTRYPOINT_COMMAND_ERROR"
    )
    found, _ = asked([failed], replies={"/api/jobs/a%2Fb%3Fc/logs": {"logs": LOG}})
    assert [(row.node, row.error) for row in found] == [
        ("10.0.0.2", "ActorDiedError: The actor died unexpectedly before finishing this task.")
    ]
    found, _ = asked([{**failed, "driver_node_id": ONE}])
    assert found[0].error == "JOB_ENTRYPOINT_COMMAND_ERROR: Job entrypoint command failed with exit code 1"


def test_gpus_are_those_held_at_once() -> None:
    assert busiest([task(ONE, 2, 10, 20), task(ONE, 2, 20, 30), task(ONE, 2, 25, None)]) == 4
    assert busiest([actor(ONE, 1), actor(ONE, 0.5), task(ONE, 2, 5, 6), task(ONE, 9, 5, 6, "ACTOR_CREATION_TASK")]) == 3.5
    assert busiest([task(ONE, 2, None, 3), {"required_resources": None}]) == 0


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (LOG, "ActorDiedError: The actor died unexpectedly before finishing this task."),
        (
            "ray.exceptions.ObjectFetchTimedOutError: Failed to retrieve object ff",
            "ObjectFetchTimedOutError: Failed to retrieve object ff",
        ),
        ("Traceback (most recent call last):\n  File x\ntorch.cuda.OutOfMemoryError: CUDA", "OutOfMemoryError: CUDA"),
        ("Traceback (most recent call last):\n  File x\nmine.errors.Odd\n", "Odd"),
        ("Traceback (most recent call last):\n  File x\nValueError: no\nbye\n", "ValueError: no"),
        ("INFO NodeDiedErrors are rare", ""),
        ("all is well", ""),
    ],
)
def test_what_a_log_says_the_job_died_of(log: str, error: str) -> None:
    assert died(log).error == error


def test_a_log_names_nodes_and_times(tmp_path: Path) -> None:
    found = died(LOG)
    assert (found.nodes, found.addresses) == ((TWO,), ("10.0.0.2", "10.0.0.3"))
    (tmp_path / "job-driver-x.log").write_text(LOG)
    given_rows = jobs_sources.read(str(tmp_path / "job-driver-x.log"))
    assert given_rows is not None
    assert given_rows[0] == [
        Job("job-driver-x", address, 1794841909.265, 1794841980.5, "failed", 0.0, found.error) for address in found.addresses
    ]
    (tmp_path / "quiet.log").write_text("nothing\n")
    assert jobs_sources.read(str(tmp_path / "quiet.log")) == (
        [],
        [f"{tmp_path}/quiet.log names no address of a node: nothing can be joined with it"],
    )


OVER = threading.Event()


class Served(BaseHTTPRequestHandler):
    """Answers by the path: what the test asks about is in its last part."""

    def do_GET(self) -> None:
        what = self.path.rpartition("/")[2]
        if what == "silent":
            OVER.wait(30)
            return
        body = {"garbage": b"\x1b[31m<html>", "deep": b"[" * 100_000}.get(
            what, json.dumps(self.headers.get("Authorization")).encode()
        )
        self.send_response(int(what) if what.isdecimal() else 200)
        self.send_header("Content-Length", str(len(body) + (what == "short")))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr("time.sleep", lambda _: None)
    for name in (*ray_jobs.TOKEN_FILES, ray_jobs.TOKEN):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Served)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    OVER.clear()
    yield f"127.0.0.1:{server.server_port}"
    OVER.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/500", "does not answer: it says 500"),
        ("/400", "does not answer: it says 400"),
        ("/401", r"wants a token \(401\): name the file that has it by EXHUME_RAY_TOKEN_FILE"),
        ("/garbage", r"does not speak as a Ray dashboard does: \\x1b\[31m<html>"),
        ("/deep", "does not speak as a Ray dashboard does"),
        ("/short", "does not answer: the reply is incomplete"),
    ],
)
def test_a_dashboard_that_misbehaves_is_told_in_a_sentence(dashboard: str, path: str, said: str) -> None:
    with pytest.raises(ExhumeError, match=said):
        Dashboard(dashboard, 5).ask(path)


def test_a_dashboard_that_is_silent_is_given_up(dashboard: str) -> None:
    with pytest.raises(ExhumeError, match=r"does not answer: no answer within 200 ms"):
        Dashboard(dashboard, 0.2).ask("/silent")


def test_what_is_not_there_is_none_and_who_is_not_there_a_sentence(dashboard: str) -> None:
    assert Dashboard(dashboard).ask("/404") is None
    with pytest.raises(ExhumeError, match=r"does not answer: .*refused"):
        ray_jobs.load("127.0.0.1:1")
    for wrong in ("ftp://x", "http://", "a b", "http://x:0", "http://[", "x:99999"):
        with pytest.raises(UsageError, match="is not the address of a Ray dashboard"):
            Dashboard(wrong)


def test_a_token_is_sent_from_the_file_that_is_named(dashboard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = Dashboard(f"http://{dashboard}/prefix/")
    assert asking.ask("/token") is None
    monkeypatch.setenv(ray_jobs.TOKEN, "from-environment")
    assert asking.ask("/token") == "Bearer from-environment"
    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv(ray_jobs.TOKEN_FILES[0], str(tmp_path / "token"))
    assert asking.ask("/token") == "Bearer from-file"
    (tmp_path / "token").write_text("two\nlines")
    with pytest.raises(ExhumeError, match="holds no valid token"):
        asking.ask("/token")
    monkeypatch.setenv(ray_jobs.TOKEN_FILES[0], str(tmp_path / "none"))
    with pytest.raises(ExhumeError, match="cannot be read"):
        asking.ask("/token")


NAMES = (
    "type job_id submission_id status message error_type start_time end_time driver_node_id data result summary raylet nodeId "
    "hostname node_id node_name node_ip resources_total required_resources GPU task_id start_time_ms end_time_ms logs "
    "class_name"
).split()
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from([ONE, "FAILED", "j", "NORMAL_TASK"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    max_leaves=20,
)
SHAPED = st.lists(st.dictionaries(st.sampled_from(NAMES), ANY, max_size=8), max_size=4)


@given(ANY | SHAPED, SHAPED, SHAPED, ANY)
def test_replies_of_any_shape_become_rows_or_nothing(jobs: Any, nodes: Any, ran: Any, other: Any) -> None:
    def ask(path: str) -> Any:
        if path.startswith("/api/jobs/"):
            return jobs if path == "/api/jobs/" else other
        some = nodes if "nodes" in path else [{**each, "job_id": "j"} for each in ran]
        return {"data": {"result": {"result": some}}} if path.startswith("/api/v0") else other

    found, troubles = read(ask)
    assert all(isinstance(each, str) for each in troubles)
    for row in found:
        assert row.node
        assert row.outcome in ("succeeded", "failed", "stopped", "")
        assert 0 <= row.gpus < float("inf")


@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from([*LOG.splitlines(), "\x1b[", "ip: 999.1.1.1", "X: y"]), max_size=12).map("\n".join)
)
def test_any_text_is_a_log(text: str) -> None:
    found = died(text)
    assert len(found.error) <= 400
    assert "\n" not in found.error
    assert all(len(node) == 56 for node in found.nodes)
    assert len(from_log("x", text)) == len(found.addresses)
