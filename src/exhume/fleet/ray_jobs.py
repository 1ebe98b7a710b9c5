"""Outcomes of jobs as the dashboard of a Ray cluster knows them: the job table, and where their tasks and actors ran.

`/api/jobs/` has the jobs (JobDetails), `/api/v0/{nodes,tasks,actors}` is the state API (ray/util/state/common.py). Ray forgets:
tasks beyond 100,000 or so, dead actors beyond 100,000, everything when the head starts anew. What is left is read, and what is
missing is told. (task_events_max_num_task_in_gcs and maximum_gcs_destroyed_actor_cached_count of ray_config_def.h.)
"""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import quote, urlencode

from exhume.cluster.document import Document, list_in, text_in, within
from exhume.errors import ExhumeError, UsageError
from exhume.fleet.model import Job
from exhume.fleet.ray_jobs_log import LONGEST, died
from exhume.host.http import client as http
from exhume.host.http.address import join_host, port_of, split_url
from exhume.host.http.retry import backoff_s
from exhume.text import decode, from_json, printable

PORT: Final = 8265
LIMIT_BYTES: Final = 256 << 20
ATTEMPTS: Final = 3
TIMEOUT_S: Final = 60.0
# Where Ray's own clients look for the token, if the cluster asks for one; a file of ours goes first.
TOKEN_FILES: Final = ("EXHUME_RAY_TOKEN_FILE", "RAY_AUTH_TOKEN_PATH")
TOKEN: Final = "RAY_AUTH_TOKEN"
# JobStatus (ray/dashboard/modules/job/common.py).
_OUTCOMES: Final = {"SUCCEEDED": "succeeded", "FAILED": "failed", "STOPPED": "stopped"}
# ray/util/state/common.py: RAY_MAX_LIMIT_FROM_API_SERVER.
_LIMIT: Final = 10_000
_MOST_LOGS: Final = 2000
# The actor of Ray's own that starts a job's driver.
_SUPERVISOR: Final = "JobSupervisor"

Ask = Callable[[str], Any]


class Dashboard:
    def __init__(self, address: str, timeout_s: float = TIMEOUT_S) -> None:
        text = address if "://" in address else f"http://{address}"
        try:
            url = split_url(text)
        except ValueError:
            shown = printable(address.rpartition("@")[2])
            raise UsageError(f"{shown} is not the address of a Ray dashboard: say ray:http://HOST:{PORT}") from None
        if url.port is None and url.scheme == "http":
            url = url._replace(netloc=f"{url.netloc.rstrip(':')}:{PORT}")
        self._base = url.path.rstrip("/")
        self._http = http.Client(url.geturl(), timeout_s=timeout_s, limit_bytes=LIMIT_BYTES)
        self.described = printable(f"{url.scheme}://{join_host(url.hostname or '', port_of(url))}{self._base}")

    def ask(self, path: str) -> Any:
        """The reply, read as JSON; None if there is no such thing (404)."""
        for attempt in range(ATTEMPTS):
            after_s = None
            try:
                reply = self._http.request("GET", self._base + path, _headers())
            except http.RequestError as error:
                failed, final = str(error), error.kind in ("settings", "proxy", "certificate", "size")
            else:
                if reply.status == 404:
                    return None
                if reply.status in (401, 403):
                    names = " or ".join((*TOKEN_FILES, TOKEN))
                    raise ExhumeError(f"{self.described} wants a token ({reply.status}): name the file that has it by {names}")
                if reply.status < 300:
                    return parsed(reply.body, self.described)
                failed, final = f"it says {reply.status}: {printable(decode(reply.body[:200]))}", not reply.temporary
                after_s = reply.retry_after_s
            if final:
                break
            if attempt + 1 < ATTEMPTS:
                time.sleep(backoff_s(attempt, after_s))
        raise ExhumeError(f"the Ray dashboard at {self.described} does not answer: {failed}")


def parsed(raw: bytes, described: str) -> Any:
    try:
        return from_json(raw)
    except ValueError:
        raise ExhumeError(f"{described} does not speak as a Ray dashboard does: {printable(decode(raw[:80]))}") from None


def _headers() -> list[tuple[str, str]]:
    path = next(filter(None, map(os.environ.get, TOKEN_FILES)), "")
    token = http.read_token(path) if path else os.environ.get(TOKEN, "").strip()
    bearer = [("Authorization", f"Bearer {http.check_token(token, TOKEN)}")] if token else []
    return [("Accept", "application/json"), *bearer]


def load(address: str, progress: Callable[[float], None] | None = None) -> tuple[list[Job], list[str]]:
    return read(Dashboard(address).ask, progress)


def read(ask: Ask, progress: Callable[[float], None] | None = None) -> tuple[list[Job], list[str]]:
    """Rows and what could not be had, by something that answers a path with JSON."""
    table = ask("/api/jobs/")
    jobs = [each for each in table if isinstance(each, dict)] if isinstance(table, list) else []
    names, gpus = nodes(ask("/api/v0/nodes?" + urlencode({"limit": _LIMIT, "detail": 1})))
    hosts = _hostnames(ask("/nodes?view=summary"))
    names = {key: hosts.get(key) or name for key, name in names.items()}
    submitted = [each for each in jobs if text_in(each, "type") != "DRIVER"]
    troubles = []
    if len(jobs) > len(submitted):
        # A driver that was started by hand is SUCCEEDED for Ray as soon as it is gone, however it went.
        drivers = len(jobs) - len(submitted)
        troubles.append(f"{drivers:,} jobs connected to Ray and were not submitted to it: how they ended is not known")
    rows: list[Job] = []
    placeless = logs = cut = 0
    for index, job in enumerate(submitted):
        ran, whole = _ran(ask, text_in(job, "job_id"))
        cut += not whole
        outcome = _OUTCOMES.get(text_in(job, "status"), "")
        error = ""
        logged: tuple[str, ...] = ()
        if outcome == "failed":
            found = died(text_in(job, "message"))
            if not found.error and logs < _MOST_LOGS:
                logs += 1
                found = died(text_in(ask(f"/api/jobs/{quote(_name(job), safe='')}/logs"), "logs"))
            error, logged = found.error or _said(job), found.nodes
        placed = rows_of(job, ran, names, gpus, outcome, error, logged)
        placeless += not placed
        rows += placed
        if progress is not None:
            progress((index + 1) / len(submitted))
    if placeless:
        troubles.append(f"of {placeless:,} jobs Ray has forgotten where they ran: left out")
    if cut:
        troubles.append(f"of {cut:,} jobs Ray tells no more than {_LIMIT:,} tasks: nodes may be missing")
    return rows, troubles


def nodes(reply: object) -> tuple[dict[str, str], dict[str, float]]:
    """Name and GPUs of each Ray node, by its id, the dead ones too."""
    names, gpus = {}, {}
    for each in list_in(reply, "data", "result", "result"):
        if key := text_in(each, "node_id"):
            names[key] = text_in(each, "node_name") or text_in(each, "node_ip") or key
            gpus[key] = _number(within(each, "resources_total", "GPU"))
    return names, gpus


def _hostnames(reply: object) -> dict[str, str]:
    """What the kernel calls the nodes, of those that are alive: node_name is the address unless `ray start` was given one."""
    return {
        key: host
        for each in list_in(reply, "data", "summary")
        if (key := text_in(each, "raylet", "nodeId")) and (host := text_in(each, "hostname"))
    }


def _ran(ask: Ask, job_id: str) -> tuple[list[Document], bool]:
    """Tasks and actors of a job, and whether these are all that Ray knows of."""
    if not job_id:
        return [], True
    query = {"filter_keys": "job_id", "filter_predicates": "=", "filter_values": job_id, "limit": _LIMIT, "detail": 1}
    ran, whole = [], True
    for what in ("actors", "tasks"):
        reply = list_in(ask(f"/api/v0/{what}?" + urlencode(query)), "data", "result", "result")
        whole &= len(reply) < _LIMIT
        ran += [each for each in reply if text_in(each, "job_id") == job_id and text_in(each, "class_name") != _SUPERVISOR]
    return ran, whole


def rows_of(
    job: Document,
    ran: Iterable[Document],
    names: dict[str, str],
    gpus: dict[str, float],
    outcome: str,
    error: str,
    logged: Iterable[str] = (),
) -> list[Job]:
    """One for each node that it ran on."""
    used: dict[str, list[Document]] = {}
    for each in ran:
        if node := text_in(each, "node_id"):
            used.setdefault(node, []).append(each)
    for node in (text_in(job, "driver_node_id"), *logged):
        if node:
            used.setdefault(node, [])
    started, ended = _seconds(job.get("start_time")), _seconds(job.get("end_time"))
    return [
        Job(
            _name(job),
            names.get(node, node),
            started,
            ended if outcome else None,
            outcome,
            min(busiest(some), gpus.get(node) or float("inf")),
            error,
        )
        for node, some in used.items()
    ]


def busiest(ran: Iterable[Document]) -> float:
    """GPUs that were held at once: actors hold theirs as long as they live, tasks while they run."""
    held, changes = 0.0, []
    for each in ran:
        wants = _number(within(each, "required_resources", "GPU"))
        if wants <= 0:
            continue
        if "task_id" not in each:
            held += wants
        elif text_in(each, "type") == "NORMAL_TASK" and (start := _seconds(each.get("start_time_ms"))) is not None:
            end = _seconds(each.get("end_time_ms"))
            changes += [(start, 1, wants), (float("inf") if end is None else max(start, end), 0, -wants)]
    most = now = 0.0
    for _, _, change in sorted(changes):
        now += change
        most = max(most, now)
    return held + most


def _name(job: Document) -> str:
    return text_in(job, "submission_id") or text_in(job, "job_id") or "(nameless)"


def _said(job: Document) -> str:
    first = text_in(job, "message").strip().partition("\n")[0]
    kind = text_in(job, "error_type")
    return (f"{kind}: {first}" if kind and first else kind or first)[:LONGEST]


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9 else 0.0


def _seconds(value: object) -> float | None:
    """From milliseconds since 1970; Ray has 0 for what has not ended."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e14:
        return None
    return value / 1000
