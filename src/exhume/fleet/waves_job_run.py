"""A Job made, watched to its end, read and deleted: one node fixed under the operator's own credentials.

An API server that cannot be reached for a while is waited for: the Job goes on without us. What never began is deleted before
it is given up, so that nothing acts on a node after the roll-out was stopped; what failed is left to be looked at.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from exhume.cluster.client import ApiError, Client
from exhume.cluster.cordon import ready
from exhume.cluster.document import Document, checked_name, list_in, text_in
from exhume.cluster.rights import missing
from exhume.errors import ExhumeError, Refused
from exhume.fleet.waves import Result
from exhume.fleet.waves_job import JOB_RIGHTS, KEEP_S, NODE_RIGHTS, Asked, manifest, name
from exhume.fleet.waves_job_pod import begun, ended, result, stuck, waits_for
from exhume.host.quantities import SECOND, duration
from exhume.text import printable

POLL_S = 2.0
NO_POD_S = 60.0
"""So long the cluster may take to make a pod of a Job."""
BEGIN_S = 300.0
"""And the node to begin it: an image is pulled meanwhile."""
_UNREACHABLE_S = 300.0
_GONE_S = 120.0
_TAIL_LINES = "2000"
# Answers of a server that is busy, or of a gateway before it.
_AGAIN = (408, 429, 500, 502, 503, 504)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Clock:
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def refuse_without_rights(client: Client, asked: Asked) -> None:
    """Before anything is done: who cannot read how a Job ends is not to begin one."""
    lacking = (*missing(client, NODE_RIGHTS), *missing(client, JOB_RIGHTS, asked.namespace))
    if lacking:
        verbs = [f"{one.verb} {one.resource}" for one in lacking]
        raise Refused(
            f"the credentials of {printable(client.described)} give too little in the namespace {asked.namespace}: "
            f"{', '.join(verbs)} {'is' if len(lacking) == 1 else 'are'} missing; without {verbs[0]} {lacking[0].without}"
        )


def fix(connect: Callable[[], Client], asked: Asked, node: str, clock: Clock | None = None) -> Result:
    """Never raises for what is the cluster's or the node's: that is a failure of the node, and ends the roll-out."""
    try:
        with connect() as client:
            return _Run(client, asked, node, clock or Clock()).carried_out()
    except ExhumeError as error:
        return Result(node, "failed", str(error))


class _Run:
    def __init__(self, client: Client, asked: Asked, node: str, clock: Clock) -> None:
        self._client, self._asked, self._clock = client, asked, clock
        self._node = checked_name(node)
        self._name = name(asked, node)
        self._jobs = f"/apis/batch/v1/namespaces/{asked.namespace}/jobs"
        self._core = f"/api/v1/namespaces/{asked.namespace}"

    def carried_out(self) -> Result:
        found = self._patiently(lambda: self._client.get(f"/api/v1/nodes/{self._node}"))
        if not ready(found):
            return Result(self._node, "failed", "the cluster says that the node is not ready: no Job would begin there")
        job = self._made()
        return self._watched(text_in(job, "metadata", "uid"))

    def _made(self) -> Document:
        """A Job that runs already is the one that we, or somebody with the same wish, began before: it is not begun twice."""
        body = manifest(self._asked, self._node)
        for _ in range(3):
            try:
                return self._patiently(lambda: self._client.create(self._jobs, body))
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
            there = self._job()
            if there is not None and not ended(there) and not text_in(there, "metadata", "deletionTimestamp"):
                return there
            if there is not None:
                self._delete()
            self._until_gone()
        raise ExhumeError(f"the Job {self._name} is made again and again by somebody else")

    def _watched(self, uid: str) -> Result:
        began = self._clock.now()
        last = began + self._asked.timeout_s + NO_POD_S + BEGIN_S
        running = False
        while True:
            job = self._job()
            if job is None or text_in(job, "metadata", "uid") != uid:
                return Result(self._node, "not proven", f"the Job {self._name} was deleted by somebody before it ended")
            pod = self._pod(uid)
            if end := ended(job):
                return self._read(result(self._node, end, pod, self._log(pod), self._asked.timeout_s))
            running = running or (pod is not None and begun(pod))
            waited = self._clock.now() - began
            if pod is not None and (why := stuck(pod)):
                return self._given_up(f"its container cannot begin: {why}")
            if pod is None and not running and waited > NO_POD_S:
                return self._given_up(f"the cluster made no pod of it within {duration(NO_POD_S * SECOND)}{self._said(uid)}")
            if pod is not None and not running and waited > BEGIN_S:
                return self._given_up(f"it did not begin within {duration(BEGIN_S * SECOND)}: {waits_for(pod)}")
            if self._clock.now() > last:
                return self._given_up(
                    f"it did not end within {duration(self._asked.timeout_s * SECOND)}, and the cluster did not end it"
                )
            self._clock.sleep(POLL_S)

    def _read(self, found: Result) -> Result:
        if found.outcome == "fixed":
            try:
                self._delete()
            except ExhumeError:  # it is done, and the cluster deletes it after KEEP_S by itself
                return found
            return found
        left = f"the Job {self._name} is left for {duration(KEEP_S * SECOND)}"
        return Result(found.node, found.outcome, f"{found.said}; {left}")

    def _given_up(self, why: str) -> Result:
        try:
            self._delete()
        except ExhumeError as error:
            return Result(self._node, "failed", f"{why}; the Job {self._name} could not be deleted and may begin yet: {error}")
        return Result(self._node, "failed", f"{why}; the Job was deleted")

    def _job(self) -> Document | None:
        try:
            return self._patiently(lambda: self._client.get(f"{self._jobs}/{self._name}"))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _pod(self, uid: str) -> Document | None:
        """The Job controller labels its pods (batch/v1, LegacyControllerUidLabel, which is set beside the newer one)."""
        selector = f"controller-uid={uid}"
        found = self._patiently(lambda: list(self._client.list(f"{self._core}/pods", labelSelector=selector)))
        return found[0] if found else None

    def _log(self, pod: Document | None) -> bytes:
        called = text_in(pod, "metadata", "name")
        if not called or not list_in(pod, "status", "containerStatuses"):
            return b""
        try:
            return self._client.text(f"{self._core}/pods/{called}/log", container="fix", tailLines=_TAIL_LINES)
        except ExhumeError:  # the kubelet may be out of reach: what the container left as its last message is in the pod
            return b""

    def _said(self, uid: str) -> str:
        """What the Job controller complains of, where we may read it."""
        try:
            found = self._client.get(f"{self._core}/events", fieldSelector=f"involvedObject.uid={uid}")
        except ExhumeError:
            found = {}
        warned = [text_in(one, "message") for one in list_in(found, "items") if text_in(one, "type") == "Warning"]
        return f": {printable(warned[-1], 300)}" if warned else f" (kubectl describe job {self._name} may say why)"

    def _delete(self) -> None:
        # Background: the pod goes with it (metav1.DeletionPropagation); by default of batch/v1 it would stay.
        query = {"propagationPolicy": "Background"}
        try:
            self._patiently(lambda: self._client.request("DELETE", f"{self._jobs}/{self._name}", query=query))
        except ApiError as error:
            if error.status != 404:
                raise

    def _until_gone(self) -> None:
        end = self._clock.now() + _GONE_S
        while self._job() is not None:
            if self._clock.now() > end:
                raise ExhumeError(f"an earlier Job {self._name} does not go away")
            self._clock.sleep(POLL_S)

    def _patiently(self, ask: Callable[[], T]) -> T:
        end = self._clock.now() + _UNREACHABLE_S
        while True:
            try:
                return ask()
            except ExhumeError as error:
                if isinstance(error, ApiError) and error.status not in _AGAIN:
                    raise
                if self._clock.now() > end:
                    raise
                self._clock.sleep(max(POLL_S, error.retry_after_s if isinstance(error, ApiError) else 0.0))
